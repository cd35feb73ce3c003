"""The last rung of the ladder: every request gets what it would get alone."""

import subprocess
import sys

import pytest
import torch

from llmlab.bench.soak import make_case, make_model, run_case, soak
from llmlab.config import FAMILIES
from llmlab.decoding import Sampler, generate
from llmlab.model import load_model
from llmlab.serving import POLICIES, Engine

every_policy = pytest.mark.parametrize("policy", POLICIES)


def test_hundreds_of_cases_of_random_traffic():
    """As `make soak` does it, without the checks of shapes and types, which would take minutes."""
    command = [sys.executable, "-m", "llmlab.bench.soak", "--cases", "400"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    covered = {}
    for line in result.stdout.splitlines()[:-1]:
        count, what = line.split(maxsplit=1)
        covered[what] = int(count.replace(",", ""))
    assert covered["cases"] == 400
    assert covered.get("ties decided by rounding", 0) <= 2
    for what in ("preemptions", "tokens found in the cache", "blocks evicted", "ended by stop",
                 "ended by cancelled", "forwards of prompts and decodes"):  # fmt: skip
        assert covered[what] > 30, what
    assert min(covered[f"policy {policy}"] for policy in POLICIES) > 80
    assert min(covered[f"family {family}"] for family in FAMILIES) > 40


def test_some_with_every_shape_and_type_checked():
    covered = soak(24, first=400, dtype=torch.float64)
    assert covered["cases"] == 24
    assert covered["ties decided by rounding"] == 0


def test_soak_would_see_a_wrong_answer():
    case = next(make_case(n) for n in range(99) if make_case(n).asked[0].max_new_tokens > 4)
    model = make_model(case.family)
    model.mixed_hidden_states = lambda ids, batch: type(model).mixed_hidden_states(
        model, (ids + 1) % 61, batch
    )
    with pytest.raises(AssertionError, match="instead of"):
        run_case(case, model)


@every_policy
def test_the_embedded_model_in_fp32(policy):
    model = load_model()
    prompts = [list(range(5 + i, 5 + i + length)) for i, length in enumerate((1, 9, 40, 70, 3, 25))]
    engine = Engine(model, policy=policy, token_budget=32, num_blocks=11)
    requests = [engine.add_request(prompt, 24) for prompt in prompts]
    engine.run()
    for prompt, request in zip(prompts, requests, strict=True):
        assert request.ids == generate(model, prompt, 24).ids
    assert engine.storage.pool.in_use == 0


@pytest.mark.parametrize("attention", ["reference", "tiled"])
def test_any_attention_function(attention):
    model = make_model("qwen3", dtype=torch.float64)
    wanted = [generate(model, [i, 2, 3] * (i + 1), 12).ids for i in range(4)]
    model.set_attention(attention)
    engine = Engine(model, token_budget=5, block_size=2)
    requests = [engine.add_request([i, 2, 3] * (i + 1), 12) for i in range(4)]
    engine.run()
    assert [request.ids for request in requests] == wanted


@every_policy
def test_samplers_draw_as_if_alone(policy):
    """Each request has its own stream; even preempted, it draws once for each token."""
    model = make_model("llama", dtype=torch.float64)
    prompts = [[7, i, 9, i] for i in range(5)]
    engine = Engine(model, policy=policy, block_size=2, num_blocks=14, token_budget=6)
    requests = [
        engine.add_request(prompt, 15, sampler=Sampler(temperature=2.0, seed=i))
        for i, prompt in enumerate(prompts)
    ]
    engine.run()
    for i, (prompt, request) in enumerate(zip(prompts, requests, strict=True)):
        alone = generate(model, prompt, 15, sampler=Sampler(temperature=2.0, seed=i))
        assert request.ids == alone.ids
    if policy != "static":
        assert engine.scheduler.preemptions > 0
