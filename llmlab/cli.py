"""The command line: `llmlab generate | chat | train | lab | bench | doctor`."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llmlab
from llmlab.json_file import local_path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character shows its code
        if getattr(stream, "errors", None) == "strict":
            stream.reconfigure(errors="backslashreplace")
    options = make_parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, ImportError) as error:
        print(f"llmlab {options.command}: {error}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmlab", description="A textbook you run, on how large language models work."
    )
    parser.add_argument("--version", action="version", version=f"llmlab {llmlab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    generate = commands.add_parser(
        "generate", help="continue a text", description="Continue a text, token by token."
    )
    generate.add_argument(
        "prompt", help="the text to continue; '' starts from the begin token alone"
    )
    _add_model_options(generate)
    generate.add_argument(
        "--cache",
        choices=("static", "dynamic", "none"),
        default="static",
        help="key-value cache (default: static)",
    )
    generate.add_argument(
        "--stats", action="store_true", help="print times and counted work at the end"
    )
    generate.set_defaults(run=run_generate)

    chat = commands.add_parser(
        "chat",
        help="talk to the model",
        description="Talk to the model. /reset forgets, /quit ends. Ctrl-C ends an answer; where "
        "none is being given, the conversation.",
        epilog="Questions may also be piped in, one a line: only answers then go to standard "
        "output, what cannot be answered is told on standard error while the rest goes on, and "
        "the exit status is 1 if there was any such.",
    )
    _add_model_options(chat)
    chat.add_argument(
        "--stats", action="store_true", help="after each reply, print what the cache saved"
    )
    chat.set_defaults(run=run_chat)

    train = commands.add_parser(
        "train",
        help="train the embedded model again",
        description="Make the embedded model from nothing: corpus, vocabulary, weights, card. "
        "An interrupted run goes on where it was.",
    )
    train.add_argument(
        "--run",
        default="runs/toyworld",
        dest="run_folder",
        metavar="FOLDER",
        help="checkpoints of the run (default: runs/toyworld)",
    )
    train.add_argument(
        "--output",
        default="runs/toyworld/model",
        metavar="FOLDER",
        help="where the finished model goes (default: runs/toyworld/model)",
    )
    train.add_argument("--steps", type=_positive, help="fewer steps, for a trial")
    train.set_defaults(run=run_train)

    lab = commands.add_parser(
        "lab", help="open the book in JupyterLab", description="Open the book in JupyterLab."
    )
    lab.add_argument("--port", type=_positive, default=8888, help="preferred port (default: 8888)")
    lab.add_argument(
        "--ip",
        default="localhost",
        help="address to listen on (default: localhost; 0.0.0.0 lets other machines in)",
    )
    lab.add_argument(
        "--chapter", default="", help="open the chapter whose file name starts so, such as 05"
    )
    lab.set_defaults(run=run_lab)

    bench = commands.add_parser(
        "bench",
        help="measure this machine: ratios within one run",
        description="Measurements that compare within one run, and with what is possible.",
    )
    benches = bench.add_subparsers(dest="bench", metavar="WHAT", required=True)
    flash = benches.add_parser(
        "flash",
        help="attention: naive, tiled, flash, PyTorch's own; accuracy, time, memory, roofline",
        description="Attention checked against float64 and timed, forward, over many lengths: on "
        "a GPU naive PyTorch, naive Triton, flash Triton and each back end of PyTorch's own; on a "
        "CPU the reference, tiled attention and PyTorch's own. Writes flash.csv and flash.svg.",
    )
    flash.add_argument("--quick", action="store_true", help="a few small sizes only")
    flash.add_argument(
        "--output",
        default="bench",
        metavar="FOLDER",
        help="where flash.csv and flash.svg go (default: bench)",
    )
    flash.set_defaults(run=run_bench_flash)
    serving = benches.add_parser(
        "serving",
        help="many requests: one at a time, in padded batches, and by the engine",
        description="The same requests served one at a time, in padded batches by transformers, "
        "and by this book's engine under each policy; answers compared, tokens a second as ratios.",
    )
    serving.add_argument("--quick", action="store_true", help="a few short requests only")
    serving.set_defaults(run=run_bench_serving)

    doctor = commands.add_parser(
        "doctor",
        help="what this machine can do",
        description="What this machine can do for the book.",
    )
    doctor.set_defaults(run=run_doctor)
    return parser


def _number(kind: type, right: Callable[[Any], bool], words: str) -> Callable[[str], Any]:
    """A type for argparse, whose error says in words what the option takes."""

    def read(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not right(number):
            raise argparse.ArgumentTypeError(f"{words}, not {text!r}")
        return number

    return read


_positive = _number(int, lambda number: number > 0, "a whole number above 0")
_seed = _number(int, lambda number: 0 <= number < 2**63, "a whole number from 0 on")
_share = _number(float, lambda number: 0 < number <= 1, "a number above 0 and at most 1")
_temperature = _number(
    float,
    lambda number: 0 < number < math.inf,
    "a number above 0 (leave it out to get the most likely token every time)",
)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="a Hugging Face folder or Hub name (default: the embedded model)",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=_positive,
        default=64,
        metavar="N",
        help="stop after N tokens (default: 64)",
    )
    parser.add_argument(
        "--temperature",
        type=_temperature,
        metavar="T",
        help="sample at this temperature (default: greedy)",
    )
    parser.add_argument(
        "--top-k", type=_positive, metavar="K", help="sample among the K most likely tokens"
    )
    parser.add_argument(
        "--top-p",
        type=_share,
        metavar="P",
        help="sample among the tokens that make up probability P",
    )
    parser.add_argument("--seed", type=_seed, help="make sampling repeatable")
    parser.add_argument(
        "--attention",
        metavar="NAME",
        default="sdpa",
        help="what computes attention: reference, sdpa, tiled or flash (default: sdpa, PyTorch's "
        "own; flash is this book's Triton kernel, slow where its interpreter runs it)",
    )


def _sampler(options: argparse.Namespace):
    """None for greedy decoding, which is what no sampling option means."""
    from llmlab.decoding import Sampler

    if (options.temperature, options.top_k, options.top_p) == (None, None, None):
        if options.seed is not None:
            raise ValueError(
                "--seed needs something to sample: add --temperature, --top-k or --top-p"
            )
        return None
    temperature = 1.0 if options.temperature is None else options.temperature
    return Sampler(
        temperature=temperature, top_k=options.top_k, top_p=options.top_p, seed=options.seed
    )


def _load(options: argparse.Namespace):
    from llmlab.attention import attention_function
    from llmlab.model import load_model
    from llmlab.tokenization import load_tokenizer

    attention = attention_function(options.attention)  # a wrong name is told before the work
    model = load_model(options.model)
    model.set_attention(attention)
    return model, load_tokenizer(options.model)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def run_generate(options: argparse.Namespace) -> None:
    from llmlab.decoding import ModelText, generate

    sampler = _sampler(options)
    model, tokenizer = _load(options)
    ids = tokenizer.encode(options.prompt, add_special_tokens=True)
    if not ids and tokenizer.bos_id is None:
        raise ValueError("the prompt is empty, and this model has no begin token: give it a text")
    streaming = ModelText(tokenizer)
    _write(options.prompt)
    generation = generate(
        model,
        ids or [tokenizer.bos_id],
        options.max_new_tokens,
        cache=None if options.cache == "none" else options.cache,
        sampler=sampler,
        stop_ids=model.config.eos_ids,
        on_token=lambda token_id: _write(streaming.push(token_id)),
    )
    _write(streaming.flush() + "\n")
    if options.stats:
        print(_statistics(generation), file=sys.stderr)


def _statistics(generation) -> str:
    parts = [f"{len(generation.ids)} tokens", f"{generation.projected_tokens} projected"]
    parts.append(f"first after {generation.time_to_first_token * 1e3:.1f} ms")
    if generation.time_per_output_token is not None:
        parts.append(f"then {generation.time_per_output_token * 1e3:.1f} ms a token")
    return "[" + ", ".join(parts) + "]"


def run_chat(options: argparse.Namespace) -> int:
    from llmlab.decoding import Chat

    sampler = _sampler(options)
    model, tokenizer = _load(options)
    chat = Chat(model, tokenizer, sampler=sampler, max_new_tokens=options.max_new_tokens)
    interactive = sys.stdin.isatty()
    if interactive:
        print("Ask something. /reset forgets the conversation, /quit or Ctrl-D ends.")
    status = 0
    while True:
        try:
            text = input("you: " if interactive else "")
        except EOFError:
            if interactive:
                print()
            return status
        text = text.removeprefix("\ufeff").strip()  # some programs begin a text with this mark
        if text == "/quit":
            return status
        if text == "/reset":
            chat.reset()
        elif text and not _answer(chat, text, interactive=interactive, stats=options.stats):
            status = 0 if interactive else 1


def _answer(chat, text: str, *, interactive: bool, stats: bool) -> bool:
    """Print the model's answer; False where there is none."""
    from llmlab.decoding import ConversationFull

    if interactive:
        _write("model: ")
    try:
        reply = chat.ask(text, on_text=_write)
    except KeyboardInterrupt:
        if not interactive:
            raise
        print(" (interrupted)")
        return False
    except ValueError as error:
        if isinstance(error, ConversationFull):
            error = "there is no room for an answer: ask a shorter question, or /reset to forget"
        if interactive:
            print(f"({error})")
        else:
            print(f"llmlab chat: {error}", file=sys.stderr)
        return False
    print()
    if stats:
        print(
            f"[{reply.reused_tokens} tokens reused, {reply.prefilled_tokens} prefilled]",
            file=sys.stderr,
        )
    return True


def run_train(options: argparse.Namespace) -> None:
    from dataclasses import replace

    from llmlab.toyworld.export import export
    from llmlab.toyworld.train import TrainingPlan, train

    plan = TrainingPlan() if options.steps is None else replace(TrainingPlan(), steps=options.steps)
    output = local_path(options.output)
    output.mkdir(parents=True, exist_ok=True)  # a bad place is told before the work
    model, tokenizer = train(local_path(options.run_folder), plan=plan)
    export(model, tokenizer, output, plan=plan)
    print(f"the model is in {output}")


def run_bench_flash(options: argparse.Namespace) -> None:
    from llmlab.bench.flash import run

    run(local_path(options.output), quick=options.quick)


def run_bench_serving(options: argparse.Namespace) -> None:
    from llmlab.bench.serving import run

    run(quick=options.quick)


def run_lab(options: argparse.Namespace) -> None:
    """Replace this process by JupyterLab, opened on a chapter."""
    import webbrowser

    book = sorted(Path("notebooks").glob("[0-9]*.ipynb"))
    if not book:
        raise ValueError("there are no notebooks here: run this in the book's own folder")
    chapters = [path for path in book if path.name.startswith(options.chapter)]
    if not chapters:
        names = ", ".join(path.name[:2] for path in book)
        raise ValueError(f"no chapter begins with {options.chapter!r}; there are {names}")
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--port={options.port}",
        f"--ip={options.ip}",
        "--ServerApp.root_dir=.",
        "--LabApp.news_url=None",  # no question about news, and no look for updates: no network
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    command.append(f"--LabApp.default_url=/lab/tree/{chapters[0].as_posix()}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container
        command.append("--allow-root")
    try:
        webbrowser.get()
    except webbrowser.Error:
        command.append("--no-browser")
        print("No browser can be opened from here: copy the address with ?token= below into yours.")
    os.execv(sys.executable, command)


def run_doctor(options: argparse.Namespace) -> int:
    from llmlab.doctor import report

    return report()


if __name__ == "__main__":
    sys.exit(main())
