"""`python -m llmlab.bench.serving`: the same requests one at a time, in padded batches, by engines.

Everyone computes the same tokens with the same weights, greedily, and the ids are compared. All who
batch may work on the same number of requests at a time. Times depend on the machine; the ratios are
of one run.
"""

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from llmlab.config import ModelConfig
from llmlab.decoding import generate
from llmlab.model import DecoderModel, load_model, save_model
from llmlab.serving import Engine

#: Twelve layers of width 768 and GPT-2's vocabulary: 124 million random weights.
GPT2_SIZE = ModelConfig(
    family="gpt2",
    vocab_size=50_257,
    hidden_size=768,
    layers=12,
    heads=12,
    kv_heads=12,
    head_dim=64,
    intermediate_size=3072,
    max_positions=1024,
    norm="layer",
    norm_epsilon=1e-5,
    activation="gelu_tanh",
    positions="learned",
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    tied_embeddings=True,
)


@dataclass(frozen=True)
class Workload:
    """Requests that are all there from the start: (prompt, how many new tokens)."""

    name: str
    requests: tuple[tuple[list[int], int], ...]

    @property
    def new_tokens(self) -> int:
        return sum(count for _, count in self.requests)


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    model: str
    workload: str
    contender: str
    seconds: float
    tokens_per_second: float


def make_workload(name: str, *, vocab_size: int, count: int, longest: int) -> Workload:
    """Prompts of 4 tokens to `longest` / 2; answers as the name says.

    "even": of `longest` / 4 to `longest` tokens. "skewed": one in eight has `longest`, the others
    an eighth of it or less.
    """
    draw = random.Random(0)
    requests = []
    for place in range(count):
        prompt = [draw.randrange(vocab_size) for _ in range(draw.randint(4, longest // 2))]
        if name == "even":
            new = draw.randint(longest // 4, longest)
        else:
            new = longest if place % 8 == 3 else draw.randint(max(longest // 32, 1), longest // 8)
        requests.append((prompt, new))
    return Workload(name, tuple(requests))


def one_at_a_time(model: DecoderModel, workload: Workload, slots: int) -> list[list[int]]:
    return [generate(model, prompt, new).ids for prompt, new in workload.requests]


def engine_with(policy: str) -> Callable[..., list[list[int]]]:
    def serve(model: DecoderModel, workload: Workload, slots: int) -> list[list[int]]:
        engine = Engine(model, policy=policy, max_running=slots)
        requests = [engine.add_request(prompt, new) for prompt, new in workload.requests]
        engine.run()
        return [request.ids for request in requests]

    return serve


def padded_batches(reference, workload: Workload, slots: int) -> list[list[int]]:
    """transformers' `generate`: as many rows as slots, padded; each batch waits for its longest."""
    answers = []
    for start in range(0, len(workload.requests), slots):
        batch = workload.requests[start : start + slots]
        width = max(len(prompt) for prompt, _ in batch)
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt, _ in batch])
        pads = torch.tensor([width - len(prompt) for prompt, _ in batch])
        mask = (torch.arange(width) >= pads[:, None]).long()  # [B, T]
        longest = max(new for _, new in batch)
        with torch.inference_mode():
            output = reference.generate(
                ids, attention_mask=mask, max_new_tokens=longest, do_sample=False,
                eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        rows = zip(output[:, width:].tolist(), batch, strict=True)
        answers += [row[:new] for row, (_, new) in rows]
    return answers


CONTENDERS = {
    "one at a time": one_at_a_time,
    "transformers, padded": padded_batches,
    "static": engine_with("static"),
    "continuous": engine_with("continuous"),
    "chunked": engine_with("chunked"),
}


def run(
    *, quick: bool = False, slots: int = 16, models: tuple[str, ...] = ("embedded", "GPT-2 size")
) -> list[Result]:
    """Measures, prints the table, and gives its lines.

    Raises AssertionError where two contenders differ in an answer.
    """
    results = []
    for name in models:
        model = load_model() if name == "embedded" else _random_model()
        count, longest = (8, 16) if quick else (32, 256 if name == "embedded" else 64)
        print(
            f"{name}: {model.num_parameters():,} weights, fp32, {torch.get_num_threads()} threads, "
            f"{count} requests, {slots} at a time"
        )
        reference = _in_transformers(model)
        for shape in ("even", "skewed"):
            workload = make_workload(
                shape, vocab_size=model.config.vocab_size, count=count, longest=longest
            )
            results += _compare(name, model, reference, workload, slots)
    return results


def _compare(name, model, reference, workload, slots) -> list[Result]:
    results, answers = [], {}
    for contender, serve in CONTENDERS.items():
        who = reference if contender == "transformers, padded" else model
        serve(who, Workload("warm-up", ((workload.requests[0][0], 2),)), slots)
        start = time.perf_counter()
        answers[contender] = serve(who, workload, slots)
        seconds = time.perf_counter() - start
        speed = workload.new_tokens / seconds
        results.append(Result(name, workload.name, contender, seconds, speed))
    print(f"  lengths {workload.name}, {workload.new_tokens} new tokens")
    alone, padded = results[0].tokens_per_second, results[1].tokens_per_second
    for result in results:
        same = sum(map(list.__eq__, answers[result.contender], answers["one at a time"]))
        speed = result.tokens_per_second
        print(
            f"    {result.contender:22}{speed:9.1f} tokens/s   {speed / alone:5.2f} x alone   "
            f"{speed / padded:5.2f} x padded   {same} of {len(workload.requests)} answers the same"
        )
        if same != len(workload.requests):
            raise AssertionError(f"{result.contender} gives other answers than one at a time")
    return results


def _random_model() -> DecoderModel:
    torch.manual_seed(0)
    model = DecoderModel(GPT2_SIZE).eval()
    with torch.no_grad():  # wide, so that rounding does not decide between two tokens
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    return model


def _in_transformers(model: DecoderModel):
    import transformers

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        stack.callback(transformers.logging.enable_progress_bar)
        save_model(model, Path(folder))
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few requests, the small model only")
    parser.add_argument("--slots", type=int, default=16, help="requests at a time (default: 16)")
    options = parser.parse_args()
    models = ("embedded",) if options.quick else ("embedded", "GPT-2 size")
    run(quick=options.quick, slots=options.slots, models=models)


if __name__ == "__main__":
    main()
