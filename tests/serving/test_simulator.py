"""The clock by hand, against the roofline of a forward, and beside the papers."""

import subprocess
import sys

import pytest

from llmlab.bench.sarathi import LLAMA_13B
from llmlab.bench.soak import make_model
from llmlab.memory import hardware
from llmlab.memory.hardware import Hardware
from llmlab.memory.roofline import predict_forward
from llmlab.serving import Arrival, Engine, IterationCost, poisson_workload, simulate

A100 = hardware("A100 80GB")
SLOW = Hardware("slow", {"bfloat16": 1e9}, 1e6, "made up", memory_bytes=None)


def run(workload, **options):
    return simulate(workload, model_config=LLAMA_13B, hardware=A100, **options)


@pytest.mark.parametrize(("batch", "new", "past"), [(1, 2048, 0), (16, 1, 700), (4, 300, 100)])
def test_a_uniform_batch_costs_what_the_roofline_says(batch, new, past):
    """Two rooflines one after the other: never less than one of all, and never twice as much."""
    cost = IterationCost(LLAMA_13B, A100, overhead=0.0)
    pairs = batch * (new * past + new * (new + 1) // 2)
    seconds = cost.seconds(
        tokens=batch * new, samples=batch, pairs=pairs, positions=batch * (past + new)
    )
    one = predict_forward(LLAMA_13B, A100, batch=batch, new_tokens=new, past=past).seconds
    assert one * 0.9999 <= seconds < 2 * one


def test_a_decode_by_hand():
    """13 billion weights of 2 bytes, and 819,200 bytes of keys and values a position."""
    timeline = run([Arrival(0.0, 999, 2)], overhead=0.25)
    second = timeline.iterations[-1]
    weights = 2 * (40 * (4 * 5120**2 + 3 * 5120 * 13_824) + 32_000 * 5120)
    moved = weights + 819_200 * 1001
    assert second.seconds == pytest.approx(0.25 + moved / 2.04e12, rel=1e-9)


def test_the_clock_never_wavers():
    workload = poisson_workload(40, rate=3.0, prompt_tokens=[50, 900], new_tokens=[5, 60], seed=1)
    for policy in ("static", "continuous", "chunked"):
        one, two = run(workload, policy=policy), run(reversed(workload), policy=policy)
        assert one.iterations == two.iterations
        assert one.metrics() == two.metrics()


def test_the_same_scheduler_as_the_engine():
    """The same requests at once: the plans of simulator and engine are the same."""
    model = make_model("llama")
    for policy in ("static", "continuous", "chunked"):
        options = {"policy": policy, "token_budget": 7, "block_size": 2, "num_blocks": 17}
        engine = Engine(model, max_running=3, **options)
        lengths = [(5, 4), (11, 9), (2, 12), (20, 3), (8, 8)]
        prompts = [[i] * prompt for i, (prompt, _) in enumerate(lengths)]
        for i, (prompt, (_, new)) in enumerate(zip(prompts, lengths, strict=True)):
            engine.add_request(prompt, new, request_id=i)
        simulated = run(
            [Arrival(0.0, len(p), n, p) for p, (_, n) in zip(prompts, lengths, strict=True)],
            max_running=3,
            **options,
        )
        real = engine.run().iterations
        assert [sorted(i.chunks) for i in simulated.iterations] == [sorted(i.chunks) for i in real]


def test_a_long_prompt_stalls_decodes_and_chunks_do_not():
    workload = [*[Arrival(0.0, 100, 200) for _ in range(8)], Arrival(1.0, 8000, 10)]
    worst = {
        policy: run(workload, policy=policy).metrics().worst_gap
        for policy in ("continuous", "chunked")
    }
    assert worst["continuous"] > 5 * worst["chunked"]


def test_static_leaves_places_idle():
    workload = [Arrival(0.0, 100, 400 if i % 4 == 0 else 20) for i in range(64)]
    metrics = {p: run(workload, policy=p, max_running=8).metrics() for p in ("static", "chunked")}
    assert metrics["chunked"].throughput > 1.5 * metrics["static"].throughput
    assert metrics["chunked"].occupancy > 1.5 * metrics["static"].occupancy


def test_beside_sarathi():
    """Its table 4, and the best P:D, C / (B - 1): as many chunks as new tokens to ride on them.

    Speed-ups of decodes come out alike; whole gains are larger here: the program says why. It is
    run without the checks of shapes and types, which would take a minute.
    """
    command = [sys.executable, "-m", "llmlab.bench.sarathi"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    rows = [[float(number) for number in line.split()] for line in lines[2:5]]
    assert [row[0] for row in rows] == [1024, 2048, 3072]
    assert [row[2] for row in rows] == [5.45, 3.26, 2.51]
    assert [row[4] for row in rows] == [1.33, 1.26, 1.22]
    for column in (1, 3):
        ours = [row[column] for row in rows]
        assert ours == sorted(ours, reverse=True)
    for _, decode, paper_decode, whole, paper_whole in rows:
        assert decode == pytest.approx(paper_decode, rel=0.05)
        assert 1 < whole / paper_whole < 1.2
    for line in lines[5:8]:
        _, chunk, _, _, best = line.split(";")[0].replace(":", " ", 1).split()
        assert float(best) == pytest.approx(float(chunk) / 5, rel=0.15)


def test_poisson():
    workload = poisson_workload(4000, rate=2.0, prompt_tokens=[3, 5], new_tokens=[7], seed=0)
    assert workload[-1].seconds == pytest.approx(2000, rel=0.05)
    assert {a.prompt_tokens for a in workload} == {3, 5}
    assert workload == poisson_workload(
        4000, rate=2.0, prompt_tokens=[3, 5], new_tokens=[7], seed=0
    )


def test_prefixes_are_found_where_ids_are_given():
    ids = tuple(range(160))
    workload = [Arrival(float(i), 160, 5, ids) for i in range(4)]
    assert run(workload).metrics().cache_hit_rate == 3 * 144 / (4 * 160)
    assert run(workload, prefix_reuse=False).metrics().cache_hit_rate == 0


def test_refuses():
    with pytest.raises(ValueError, match="give num_blocks"):
        simulate([], model_config=LLAMA_13B, hardware=SLOW)
    with pytest.raises(ValueError, match="no room for a cache"):
        simulate([], model_config=LLAMA_13B, hardware="RTX 4090")
    with pytest.raises(ValueError, match="no hardware"):
        simulate([], model_config=LLAMA_13B, hardware="abacus")
    with pytest.raises(ValueError, match="prompt and at least 1"):
        run([Arrival(0.0, 0, 5)])
    with pytest.raises(ValueError, match="2 prompt ids"):
        run([Arrival(0.0, 3, 5, (1, 2))])
    with pytest.raises(ValueError, match="num_blocks="):
        run([Arrival(0.0, 300, 5)], num_blocks=4)
    with pytest.raises(ValueError, match="rate"):
        poisson_workload(3, rate=0.0, prompt_tokens=[1], new_tokens=[1], seed=0)
