"""Plans worked out by hand, and what holds for every plan."""

import random

import pytest

from llmlab.cache import BlockPool
from llmlab.serving import POLICIES, Request, Scheduler


def make(policy: str, *, blocks: int = 100, block_size: int = 4, **options) -> Scheduler:
    return Scheduler(BlockPool(blocks, block_size), policy=policy, **options)


def play(scheduler: Scheduler, requests: list[Request], *, steps: int | None = None) -> list[str]:
    """Runs until all have finished; each plan as text: a12 = 12 tokens of request a."""
    for request in requests:
        scheduler.add(request)
    plans = []
    while not scheduler.idle and (steps is None or len(plans) < steps):
        plan = scheduler.schedule()
        assert plan
        plans.append(" ".join(f"{chunk.request.id}{chunk.count}" for chunk in plan))
        for chunk in plan:
            scheduler.commit(chunk)
            if chunk.request.num_computed_tokens == chunk.request.num_tokens:
                token = None if chunk.request.token_ids is None else 0
                scheduler.append(chunk.request, float(len(plans)), token)
    return plans


def test_static_waits_for_the_longest():
    requests = [Request("a", 5, 1), Request("b", 3, 4), Request("c", 2, 2)]
    plans = play(make("static", max_running=2), requests)
    assert plans == ["a5 b3", "b1", "b1", "b1", "c2", "c1"]


def test_continuous_fills_the_place_at_once_and_prompts_stall_decodes():
    requests = [Request("a", 5, 1), Request("b", 3, 4), Request("c", 20, 2)]
    plans = play(make("continuous", max_running=2, token_budget=10), requests)
    assert plans == ["a5 b3", "c20", "b1 c1", "b1", "b1"]


def test_chunked_keeps_to_the_budget_and_decodes_go_first():
    requests = [Request("a", 2, 5), Request("b", 9, 2)]
    plans = play(make("chunked", token_budget=4), requests)
    assert plans == ["a2 b2", "a1 b3", "a1 b3", "a1 b1", "a1 b1"]


def test_chunked_with_a_budget_of_one():
    assert play(make("chunked", token_budget=1), [Request("a", 2, 2), Request("b", 1, 1)]) == [
        "a1", "a1", "a1", "b1",
    ]  # fmt: skip


def test_the_youngest_is_preempted_and_computed_anew():
    """Two blocks of 4 each: at 5 positions a needs a second block, and b has it."""
    a, b = Request("a", 4, 3), Request("b", 4, 2)
    scheduler = make("continuous", blocks=2)
    assert play(scheduler, [a, b]) == ["a4 b4", "a1", "a1", "b5"]
    assert (a.preemptions, b.preemptions, scheduler.preemptions) == (0, 1, 1)
    assert list(b.token_times) == [1.0, 4.0]


def test_a_prefix_is_found_but_for_the_last_token():
    scheduler = make("chunked", block_size=4)
    ids = list(range(8))
    first, second = (Request(name, 8, 1, token_ids=list(ids)) for name in "ab")
    longer = Request("c", 10, 1, token_ids=[*ids, 8, 9])
    other = Request("d", 9, 1, token_ids=[9, *ids])
    assert play(scheduler, [first]) == ["a8"]
    assert play(scheduler, [second]) == ["b4"]  # its second block holds the last token
    assert play(scheduler, [longer]) == ["c2"]
    assert play(scheduler, [other]) == ["d9"]
    assert [r.cached_tokens for r in (first, second, longer, other)] == [0, 4, 8, 0]
    assert (scheduler.reused_tokens, scheduler.admitted_tokens) == (12, 35)


def test_without_prefix_reuse_nothing_is_found():
    scheduler = make("chunked", prefix_reuse=False)
    for name in "ab":
        assert play(scheduler, [Request(name, 8, 1, token_ids=list(range(8)))]) == [f"{name}8"]


def test_a_plan_that_is_not_committed_is_planned_again():
    for policy in POLICIES:
        scheduler = make(policy)
        scheduler.add(Request("a", 5, 2))
        first, second = scheduler.schedule(), scheduler.schedule()
        assert first == second
        assert len(first) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_what_holds_for_every_plan(policy):
    """On random traffic: budgets, places and order are kept, everyone ends, all blocks return."""
    for seed in range(60):
        draw = random.Random(seed)
        budget, places = draw.choice([1, 3, 8, 40]), draw.choice([1, 2, 5])
        requests = [
            Request(i, draw.randint(1, 20), draw.randint(1, 12)) for i in range(draw.randint(1, 9))
        ]
        size = draw.choice([1, 2, 4])
        blocks = max(-(-r.longest // size) for r in requests) + draw.choice([0, 1, 20])
        scheduler = make(
            policy, blocks=blocks, block_size=size, token_budget=budget, max_running=places
        )
        for request in requests:
            scheduler.add(request)
        for step in range(5000):
            if scheduler.idle:
                break
            plan = scheduler.schedule()
            assert plan
            assert len({chunk.request.id for chunk in plan}) == len(plan) <= places
            if policy == "chunked":
                assert sum(chunk.count for chunk in plan) <= budget
            running = [request.id for request in scheduler.running]
            assert running == sorted(running)
            assert scheduler.pool.in_use == sum(len(r.block_table) for r in scheduler.running)
            for chunk in plan:
                end = chunk.start + chunk.count
                assert chunk.start == chunk.request.num_computed_tokens
                assert chunk.start < end <= chunk.request.num_tokens
                assert end <= len(chunk.request.block_table) * size
                scheduler.commit(chunk)
                if chunk.request.num_computed_tokens == chunk.request.num_tokens:
                    scheduler.append(chunk.request, step)
        assert [r.finish_reason for r in requests] == ["length"] * len(requests)
        assert all(r.new_tokens == r.max_new_tokens == len(r.token_times) for r in requests)
        assert scheduler.pool.in_use == 0
        if policy == "static":
            assert scheduler.preemptions == 0


def test_refuses():
    for options, message in (
        ({"token_budget": 0}, "token_budget must be at least 1, got 0"),
        ({"max_running": 0}, "max_running must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make("chunked", **options)
    with pytest.raises(ValueError, match="static, continuous, chunked"):
        make("greedy")
    scheduler = make("chunked", blocks=3)
    scheduler.add(Request("fits", 10, 3))  # the last token is never fed: 12 positions
    with pytest.raises(ValueError, match="need 4 blocks of 4 positions, and there are 3"):
        scheduler.add(Request("does not", 10, 4))
