"""`python -m llmlab.bench.soak`: random traffic, and every request answered as if it were alone.

A case is an engine of random sizes and a handful of requests that come, end and are cancelled at
random. Each request's greedy ids must equal those of `generate` for that prompt alone, and in the
end every block must be back. Case n is the same on every machine.
"""

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass

import torch

from llmlab.config import FAMILIES, ModelConfig
from llmlab.decoding import generate
from llmlab.model import DecoderModel
from llmlab.serving import POLICIES, Engine, Request

VOCAB_SIZE = 61
LONGEST = 96  # positions of the models


@dataclass(frozen=True)
class Asked:
    """One request: what, before which step it comes, and before which it is cancelled (or not)."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_ids: tuple[int, ...]
    step: int
    cancelled_at: int | None


@dataclass(frozen=True)
class Case:
    """An engine's options and its traffic."""

    family: str
    options: dict
    asked: tuple[Asked, ...]


def make_case(number: int) -> Case:
    """The case of that number."""
    draw = random.Random(number)
    block_size = draw.choice([1, 2, 3, 4, 8, 16])
    common = [draw.randrange(VOCAB_SIZE) for _ in range(40)]  # what prompts may begin with
    asked = []
    for _ in range(draw.randint(1, 6)):
        whole_blocks = block_size * draw.randint(0, 40 // block_size)
        shared = common[: draw.choice([0, 0, whole_blocks, draw.randint(0, 40)])]
        most = draw.choice([0, 16]) if shared else 16
        own = [draw.randrange(VOCAB_SIZE) for _ in range(draw.randint(min(1, most), most))]
        asked.append(
            Asked(
                prompt=(*shared, *own),
                max_new_tokens=draw.choice([0, 1, *[draw.randint(2, 24)] * 5]),
                stop_ids=tuple(draw.sample(range(VOCAB_SIZE), draw.choice([0, 0, 3]))),
                step=draw.choice([0, draw.randint(0, 12)]),
                cancelled_at=draw.choice([None] * 6 + [draw.randint(1, 14)]),
            )
        )
    needed = max(-(-(len(a.prompt) + a.max_new_tokens) // block_size) for a in asked)
    options = {
        "policy": draw.choice(list(POLICIES)),
        "token_budget": draw.choice([1, 2, 3, 5, 8, 16, 64]),
        "block_size": block_size,
        # From just enough for the longest request to enough for all.
        "num_blocks": needed + draw.choice([0, 0, 1, 2, needed // 2, 8 * needed]),
        "max_running": draw.choice([1, 2, 4, 8, 8]),
        "prefix_reuse": draw.choice([True, True, False]),
    }
    return Case(draw.choice(FAMILIES), options, tuple(asked))


def make_model(family: str, *, dtype: torch.dtype = torch.float32) -> DecoderModel:
    """A small model with wide random weights: one wrong key or position changes its answers."""
    gpt2 = family == "gpt2"
    config = ModelConfig(
        family=family,
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        layers=2,
        heads=4,
        kv_heads=4 if gpt2 else 2,
        head_dim=4,
        intermediate_size=24,
        max_positions=LONGEST,
        norm="layer" if gpt2 else "rms",
        norm_epsilon=1e-5,
        activation="gelu_tanh" if gpt2 else "silu",
        positions="learned" if gpt2 else "rotary",
        sliding_window=7 if family in ("mistral", "qwen3") else None,
        full_attention_layers=(0,) if family == "qwen3" else (),
        query_key_norm=family == "qwen3",
        tied_embeddings=gpt2,
    )
    model = DecoderModel(config).to(dtype).eval()
    stream = torch.Generator().manual_seed(FAMILIES.index(family))
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=stream).to(dtype)
            if parameter.dim() == 2:
                parameter.copy_(noise * 0.6)
            else:
                parameter.add_(noise * 0.1)
    return model


def run_case(case: Case, model: DecoderModel) -> Counter:
    """Serves the case and compares; counts what it covered. Raises AssertionError, saying where."""
    engine = Engine(model, **case.options)
    requests = _serve(engine, case)
    covered = Counter(cases=1, requests=len(requests))
    for asked, request in zip(case.asked, requests, strict=True):
        alone = generate(model, asked.prompt, asked.max_new_tokens, stop_ids=asked.stop_ids)
        wanted = alone.ids
        if request.finish_reason == "cancelled":
            wanted = wanted[: len(request.ids)]
        if request.ids != wanted:
            if not _is_tie(model, asked.prompt, request.ids, wanted):
                raise AssertionError(f"{request.ids} instead of {wanted} for {asked} in {case}")
            covered["ties decided by rounding"] += 1
        elif request.finish_reason not in ("cancelled", alone.finish_reason):
            raise AssertionError(f"{request.finish_reason}, not {alone.finish_reason}, in {case}")
        covered[f"ended by {request.finish_reason}"] += 1
        covered["new tokens"] += len(request.ids)
        covered["prompt tokens"] += len(asked.prompt)
    pool = engine.storage.pool
    if pool.in_use or any(pool.references(block) for block in range(pool.num_blocks)):
        raise AssertionError(f"{pool.in_use} blocks did not come home in {case}")
    for iteration in engine.timeline.iterations:
        covered["forwards"] += 1
        covered["forwards of prompts and decodes"] += bool(
            iteration.prefill_tokens and iteration.decode_tokens
        )
        covered["chunks of prompts"] += sum(count > 1 for _, _, count in iteration.chunks)
    covered["preemptions"] += engine.scheduler.preemptions
    covered["tokens found in the cache"] += engine.scheduler.reused_tokens
    covered["blocks evicted"] += pool.evictions
    covered[f"policy {case.options['policy']}"] += 1
    covered[f"family {case.family}"] += 1
    return covered


def _serve(engine: Engine, case: Case) -> list[Request]:
    requests: list[Request | None] = [None] * len(case.asked)
    step = 0
    while None in requests or not engine.idle:
        for place, asked in enumerate(case.asked):
            if asked.step == step:
                requests[place] = engine.add_request(
                    asked.prompt, asked.max_new_tokens, stop_ids=asked.stop_ids, request_id=place
                )
            if asked.cancelled_at == step and requests[place] is not None:
                engine.cancel(place)
        engine.step()
        step += 1
    return requests


def _is_tie(model: DecoderModel, prompt: tuple, got: list[int], wanted: list[int]) -> bool:
    """Whether the two differ first at a place where two tokens are equally likely, to rounding."""
    pairs = enumerate(zip(got, wanted, strict=False))
    place = next((i for i, (a, b) in pairs if a != b), None)
    if place is None:
        return False
    ids = torch.tensor([[*prompt, *wanted[:place]]])
    with torch.inference_mode():
        logits = model(ids)[0, -1]  # [V]
    gap = (logits[got[place]] - logits[wanted[place]]).abs()
    return bool(gap < 1e-5 * logits.abs().max())


def soak(cases: int, *, first: int = 0, dtype: torch.dtype = torch.float32) -> Counter:
    """Runs that many cases and sums what they covered."""
    models = {family: make_model(family, dtype=dtype) for family in FAMILIES}
    covered = Counter()
    for number in range(first, first + cases):
        case = make_case(number)
        covered += run_case(case, models[case.family])
    return covered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the models are too small to share
    start = time.perf_counter()
    for what, count in soak(options.cases, first=options.first).most_common():
        print(f"{count:10,}  {what}")
    print(f"all answers as if alone, all blocks back; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
