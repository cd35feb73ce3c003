"""Streaming, cancelling, metrics, and what goes wrong for one request alone."""

import math

import numpy as np
import pytest
import torch

from llmlab.bench.soak import LONGEST, make_model
from llmlab.decoding import generate
from llmlab.serving import Engine

MODEL = make_model("llama", dtype=torch.float64)


def alone(prompt, count, **options):
    return generate(MODEL, prompt, count, **options).ids


def ticking():
    """A clock that moves by one second whenever it is looked at."""
    seconds = -1.0

    def clock():
        nonlocal seconds
        seconds += 1.0
        return seconds

    return clock


def test_a_mixed_batch_is_one_forward():
    engine = Engine(MODEL, token_budget=8)
    calls = []
    MODEL.blocks[0].mlp.register_forward_pre_hook(lambda _, args: calls.append(args[0].shape[1]))
    try:
        engine.add_request([1, 2, 3], 5)
        engine.step()
        engine.add_request(list(range(12)), 2)
        engine.step()
    finally:
        MODEL.blocks[0].mlp._forward_pre_hooks.clear()
    assert calls == [3, 8]  # a decode and 7 tokens of the second prompt, together


def test_streams_every_token_as_it_comes():
    engine = Engine(MODEL)
    streams = {"a": [], "b": []}
    for name, stream in streams.items():
        engine.add_request([len(name), 5], 6, on_token=stream.append, request_id=name)
    engine.step()
    assert [len(stream) for stream in streams.values()] == [1, 1]
    engine.run()
    for name, stream in streams.items():
        assert stream == engine.requests[name].ids == alone([len(name), 5], 6)


def test_step_gives_the_finished_and_stop_ids_end_one_request():
    engine = Engine(MODEL)
    ids = alone([1, 2], 9)
    stop = next(token for token in ids if token != ids[0])
    stopped = engine.add_request([1, 2], 9, stop_ids=(stop,))
    short = engine.add_request([1, 2], 1)
    assert engine.step() == [short]
    engine.run()
    assert stopped.ids == alone([1, 2], 9, stop_ids=(stop,))
    assert (stopped.finish_reason, short.finish_reason) == ("stop", "length")
    assert engine.add_request([1], 0).finish_reason == "length"
    assert engine.idle
    assert engine.step() == []


def test_cancel_in_every_state():
    engine = Engine(MODEL, max_running=1)
    running, waiting, coming = (
        engine.add_request([1, 2], 9, arrival=arrival) for arrival in (None, None, 1e9)
    )
    engine.step()
    for request in (running, waiting, coming):
        engine.cancel(request.id)
        engine.cancel(request.id)  # a second time changes nothing
    assert engine.idle
    assert [r.finish_reason for r in (running, waiting, coming)] == ["cancelled"] * 3
    assert running.ids == alone([1, 2], 1)
    assert engine.storage.pool.in_use == 0
    with pytest.raises(ValueError, match="no request 'nobody'"):
        engine.cancel("nobody")


def test_callbacks_may_cancel_and_add():
    engine = Engine(MODEL)
    heard = []

    def on_token(token):
        if not heard:
            engine.cancel("other")
            engine.cancel("self")
            engine.add_request([3], 4, request_id="new")
        heard.append(token)

    engine.add_request([1], 9, on_token=on_token, request_id="self")
    engine.add_request([2], 9, on_token=heard.append, request_id="other")
    engine.run()
    assert heard == alone([1], 1)
    assert engine.requests["new"].ids == alone([3], 4)
    assert engine.requests["other"].ids == alone([2], 1)
    assert engine.storage.pool.in_use == 0


@pytest.mark.parametrize("what", ["on_token", "sampler"])
@pytest.mark.parametrize("last", [False, True])
def test_one_that_raises_fails_alone(what, last):
    def fail(_):
        raise RuntimeError("no more paper")

    engine = Engine(MODEL)
    bad = engine.add_request([1], 1 if last else 9, **{what: fail})
    good = engine.add_request([2], 9)
    assert engine.step() == [bad]
    engine.run()
    assert bad.finish_reason == "error"
    assert str(bad.error) == "no more paper"
    assert bad.ids == (alone([1], 1) if what == "on_token" else [])
    assert good.ids == alone([2], 9)
    assert engine.storage.pool.in_use == 0


@pytest.mark.parametrize("choice", [61, -1, 1.5, "two"])
def test_a_sampler_that_chooses_nonsense_fails_alone(choice):
    def sampler(logits):
        return torch.tensor([1, 1]) if choice == "two" else torch.tensor([choice])

    engine = Engine(MODEL)
    bad, good = engine.add_request([1], 3, sampler=sampler), engine.add_request([2], 3)
    engine.run()
    assert isinstance(bad.error, TypeError if choice == 1.5 else ValueError)
    assert good.ids == alone([2], 3)


def test_after_a_failed_forward_the_engine_goes_on(monkeypatch):
    for policy in ("static", "continuous", "chunked"):
        engine = Engine(MODEL, policy=policy, token_budget=6)
        requests = [engine.add_request([i] * 9, 6) for i in (1, 2)]
        for failing in (True, False, True, False, False):
            with monkeypatch.context() as patch:
                if failing:
                    patch.setattr(MODEL.blocks[1], "forward", lambda *_: 1 / 0)
                    with pytest.raises(ZeroDivisionError):
                        engine.step()
                else:
                    engine.step()
        engine.run()
        assert [r.ids for r in requests] == [alone([i] * 9, 6) for i in (1, 2)]


def test_logits_that_are_no_numbers_end_the_request(monkeypatch):
    engine = Engine(MODEL)
    request = engine.add_request([1], 3)
    monkeypatch.setattr(
        MODEL, "logits", lambda hidden: torch.full((1, hidden.shape[1], 61), math.nan)
    )
    engine.run()
    assert request.finish_reason == "error"
    assert "NaN" in str(request.error)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([], 3), {}, ValueError, "empty"),
        (("text", 3), {}, TypeError, "not text"),
        (([61], 3), {}, ValueError, "outside the vocabulary"),
        (([[1], [2]], 3), {}, ValueError, "one prompt"),
        (([1], -1), {}, ValueError, "max_new_tokens must be"),
        (([1], 2.5), {}, TypeError, "max_new_tokens"),
        (([1] * 90, 7), {}, ValueError, f"context of {LONGEST}"),
        (([1] * 30, 20), {}, ValueError, "num_blocks=13"),
        (([1], 3), {"stop_ids": (99,)}, ValueError, "stop_ids"),
        (([1], 3), {"request_id": "taken"}, ValueError, "another name"),
        (([1], 3), {"sampler": 3}, TypeError, "sampler"),
        (([1], 3), {"on_token": "print"}, TypeError, "on_token"),
    ],
)
def test_a_bad_request_is_refused_and_changes_nothing(arguments, options, error, message):
    engine = Engine(MODEL, block_size=4, num_blocks=10)
    engine.add_request([1], 2, request_id="taken")
    with pytest.raises(error, match=message):
        engine.add_request(*arguments, **options)
    assert list(engine.requests) == ["taken"]
    engine.run()
    assert engine.requests["taken"].ids == alone([1], 2)


@pytest.mark.parametrize("name", ["token_budget", "block_size", "num_blocks", "max_running"])
def test_sizes_below_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Engine(MODEL, **{name: 0})


def test_numbers_do_not_collide_with_names_of_ones_own():
    engine = Engine(MODEL)
    assert engine.add_request([1], 1, request_id=1).id == 1
    assert engine.add_request([1], 1).id == 2


def test_waits_for_arrivals():
    engine = Engine(MODEL)
    late = engine.add_request([1], 2, arrival=0.05)
    assert engine.step() == []
    engine.run()
    assert late.token_times[0] >= 0.05
    assert late.ids == alone([1], 2)


def test_metrics_are_those_of_the_clock():
    engine = Engine(MODEL, clock=ticking(), max_running=4)
    one, two = engine.add_request([1], 3), engine.add_request([2] * 20, 3)
    metrics = engine.run().metrics()
    gaps = np.concatenate([np.diff(one.token_times), np.diff(two.token_times)])
    firsts = [one.time_to_first_token, two.time_to_first_token]
    assert (metrics.requests, metrics.new_tokens) == (2, 6)
    assert metrics.time_to_first_token == np.median(firsts)
    assert metrics.time_between_tokens == np.median(gaps)
    assert metrics.worst_gap == gaps.max()
    assert metrics.throughput == pytest.approx(6 / metrics.seconds)
    assert metrics.occupancy == 2 / 4
    assert metrics.cache_hit_rate == 0
    assert [i.tokens for i in engine.timeline.iterations] == [21, 2, 2]
    assert "throughput" in str(metrics)
    assert math.isnan(Engine(MODEL).timeline.metrics().throughput)


def test_a_conversation_finds_its_beginning_in_the_cache():
    engine = Engine(MODEL, block_size=4)
    first = engine.add_request(list(range(10)), 6)
    engine.run()
    ids = [*first.token_ids, 7, 8]
    second = engine.add_request(ids, 6)
    engine.run()
    assert second.cached_tokens == 12  # 15 positions were computed: three full blocks
    assert second.ids == alone(ids, 6)
    assert engine.timeline.metrics().cache_hit_rate == 12 / (10 + 18)
