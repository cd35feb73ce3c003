"""Samplers against transformers' logits warpers, and the frequencies of what they draw."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.decoding import Sampler, greedy, keep_top_k, keep_top_p

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


def random_logits(seed: int, rows: int = 3, vocabulary: int = 40, scale: float = 3.0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocabulary, generator=stream) * scale


def warped(logits, temperature, top_k, top_p):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers = [TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None:
        warpers.append(TopPLogitsWarper(top_p))
    for warper in warpers:
        logits = warper(None, logits)
    return logits.softmax(dim=-1)


@PROPERTY
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 1.5, 10.0]),
    top_k=st.sampled_from([None, 1, 5, 40, 100]),
    top_p=st.sampled_from([None, 1e-6, 0.3, 0.9, 0.999, 1.0]),
)
def test_probabilities_are_those_of_transformers(seed, scale, temperature, top_k, top_p):
    logits = random_logits(seed, scale=scale)
    ours = Sampler(temperature=temperature, top_k=top_k, top_p=top_p).probabilities(logits)
    theirs = warped(logits, temperature, top_k, top_p)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert torch.equal(ours > 0, theirs > 0)


def test_hand_worked_filters():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    assert keep_top_k(logits, 2).isfinite().tolist() == [[True, True, False, False]]
    # 0.5 reaches 0.4; 0.75 is the first sum to reach 0.6; 0.9 is needed for 0.8.
    for p, kept in ((0.4, 1), (0.6, 2), (0.8, 3), (0.95, 4)):
        assert int(keep_top_p(logits, p).isfinite().sum()) == kept
    torch.testing.assert_close(
        Sampler(top_k=2).probabilities(logits), torch.tensor([[2 / 3, 1 / 3, 0.0, 0.0]])
    )
    ties = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert keep_top_k(ties, 2).isfinite().tolist() == [[True, True, True, False]]


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.8, "temperature": 2.0}]
)
def test_draws_with_these_probabilities(options):
    """Pearson's chi-square over 4,000 draws; chance passes the bound once in 100,000 times."""
    logits = random_logits(seed=1, rows=1, vocabulary=6, scale=1.0)
    sampler = Sampler(seed=7, **options)
    expected = sampler.probabilities(logits)[0]
    draws = torch.cat([sampler(logits) for _ in range(4000)])
    counts = torch.bincount(draws, minlength=6)
    assert not counts[expected == 0].any()
    possible = expected > 0
    chi_square = ((counts - 4000 * expected) ** 2 / (4000 * expected))[possible].sum()
    bound = {2: 23.03, 5: 30.86}.get(int(possible.sum()) - 1, 30.86)
    assert chi_square < bound


def test_seeds():
    logits = random_logits(seed=2, rows=2)

    def run(sampler, count=20):
        return [sampler(logits).tolist() for _ in range(count)]

    assert run(Sampler(seed=5)) == run(Sampler(seed=5))
    assert run(Sampler(seed=5)) != run(Sampler(seed=6))
    fresh = Sampler()
    assert run(fresh) == run(Sampler(seed=fresh.seed))
    again = Sampler(seed=5)
    assert run(again) != run(again)  # the streams go on
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    run(Sampler())
    assert torch.equal(torch.random.get_rng_state(), before)  # PyTorch's own stream is left alone


def test_a_row_does_not_depend_on_the_other_rows():
    logits = random_logits(seed=3, rows=4)
    batch, changed = Sampler(seed=1), Sampler(seed=1)
    others = logits.flip(-1)
    for _ in range(20):
        drawn = batch(logits)
        mixed = torch.stack([others[0], others[1], logits[2]])
        assert drawn[2] == changed(mixed)[2]


def test_equal_rows_draw_apart():
    logits = random_logits(seed=3, rows=1).expand(3, -1)
    sampler = Sampler(seed=1)
    first, second, third = zip(*(sampler(logits).tolist() for _ in range(20)), strict=True)
    assert len({first, second, third}) == 3


def test_extreme_logits():
    logits = torch.tensor([[1e4, 0.0, -1e4], [-float("inf"), 0.0, -float("inf")]])
    for temperature in (1e-40, 1e-6, 1e6):
        probabilities = Sampler(temperature=temperature).probabilities(logits)
        assert probabilities.isfinite().all()
        assert Sampler(temperature=temperature, seed=0)(logits)[1] == 1
    assert Sampler(temperature=1e-40).probabilities(logits)[0].tolist() == [1.0, 0.0, 0.0]


def test_greedy():
    logits = random_logits(seed=4)
    assert greedy(logits).tolist() == [row.index(max(row)) for row in logits.tolist()]
    assert Sampler(top_k=1)(logits).tolist() == greedy(logits).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "sampler=None"),
        ({"temperature": -1.0}, "above 0"),
        ({"temperature": float("nan")}, "finite"),
        ({"temperature": float("inf")}, "finite"),
        ({"top_k": 0}, "at least 1"),
        ({"top_p": 0.0}, "above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "above 0 and at most 1"),
        ({"top_p": float("nan")}, "above 0 and at most 1"),
        ({"seed": -1}, "seed"),
    ],
)
def test_says_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        Sampler(**options)


@pytest.mark.parametrize("options", [{"top_k": 2.5}, {"top_k": True}, {"seed": "7"}])
def test_wrong_types(options):
    with pytest.raises(TypeError):
        Sampler(**options)
