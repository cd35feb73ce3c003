"""Look-up and positions: hand-worked numbers, transformers' rotary embedding, and properties."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.config import RopeScaling
from llmlab.embedding import (
    apply_rotary,
    rotary_frequencies,
    rotary_tables,
    sinusoidal_positions,
    token_embedding,
)

few = settings(max_examples=50, deadline=None, derandomize=True)
LLAMA3 = RopeScaling(8.0, 1.0, 4.0, 8192)


def test_token_embedding_is_the_one_hot_product():
    table = torch.randn(7, 3)
    ids = torch.tensor([[6, 0, 2], [2, 2, 5]])
    one_hot = torch.nn.functional.one_hot(ids, 7).float()
    assert torch.equal(token_embedding(ids, table), one_hot @ table)
    assert torch.equal(token_embedding(ids, table), torch.nn.functional.embedding(ids, table))


@pytest.mark.parametrize("bad", [-1, 7])
def test_ids_outside_the_table(bad):
    with pytest.raises(ValueError, match=r"0 \.\. 6"):
        token_embedding(torch.tensor([[0, bad]]), torch.randn(7, 3))


def test_sinusoidal_positions_by_the_formula():
    positions = sinusoidal_positions(50, 6)
    assert positions.shape == (50, 6)
    assert positions[0].tolist() == [0, 1, 0, 1, 0, 1]
    for position in (1, 7, 49):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert positions[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert positions[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize(("length", "width"), [(-1, 4), (3, 5), (3, 0)])
def test_sinusoidal_sizes_that_cannot_be(length, width):
    with pytest.raises(ValueError, match="positive and even"):
        sinusoidal_positions(length, width)


def test_rotation_by_hand():
    # With two numbers a head, position p turns by p radians.
    x = torch.tensor([1.0, 0.0]).expand(1, 1, 4, 2)
    turned = apply_rotary(x, *rotary_tables(torch.arange(4)[None], 2))[0, 0]
    for position in range(4):
        wanted = [math.cos(position), math.sin(position)]
        assert turned[position].tolist() == pytest.approx(wanted, abs=1e-6)


def test_pairs_are_half_a_head_apart():
    x = torch.tensor([0.0, 1.0, 0.0, 0.0]).view(1, 1, 1, 4)  # column 1 is paired with column 3
    turned = apply_rotary(x, *rotary_tables(torch.tensor([[5]]), 4))[0, 0, 0]
    angle = 5 * 10_000 ** (-2 / 4)
    wanted = [0, math.cos(angle), 0, math.sin(angle)]
    assert turned.tolist() == pytest.approx(wanted, abs=1e-6)


def hugging_face_rotary(head_dim, theta, scaling=None):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_type": "default", "rope_theta": theta}
    if scaling is not None:
        parameters = {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_frequency_factor,
            "high_freq_factor": scaling.high_frequency_factor,
            "original_max_position_embeddings": scaling.original_max_positions,
        }
    config = LlamaConfig(head_dim=head_dim, rope_parameters=parameters)
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("scaling", [None, LLAMA3, RopeScaling(32.0, 2.0, 3.0, 16)])
@pytest.mark.parametrize(("head_dim", "theta"), [(8, 10_000.0), (128, 500_000.0), (6, 1e6)])
def test_equal_to_transformers(head_dim, theta, scaling):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    theirs = hugging_face_rotary(head_dim, theta, scaling)
    frequencies = rotary_frequencies(head_dim, theta=theta, scaling=scaling)
    torch.testing.assert_close(frequencies, theirs.inv_freq, rtol=1e-6, atol=0)

    query, key = torch.randn(2, 4, 9, head_dim), torch.randn(2, 2, 9, head_dim)
    position_ids = torch.stack((torch.arange(9), torch.arange(30, 39)))
    cos, sin = rotary_tables(position_ids, head_dim, theta=theta, scaling=scaling)
    wanted = apply_rotary_pos_emb(query, key, *theirs(query, position_ids))
    torch.testing.assert_close(apply_rotary(query, cos, sin), wanted[0])
    torch.testing.assert_close(apply_rotary(key, cos, sin), wanted[1])


def test_llama3_keeps_fast_pairs_and_stretches_slow_ones():
    plain = rotary_frequencies(128, theta=500_000.0)
    scaled = rotary_frequencies(128, theta=500_000.0, scaling=LLAMA3)
    wavelengths = 2 * math.pi / plain
    fast, slow = wavelengths < 8192 / 4, wavelengths > 8192 / 1
    assert fast.any()
    assert slow.any()
    between = ~fast & ~slow
    assert between.any()
    assert torch.equal(scaled[fast], plain[fast])
    torch.testing.assert_close(scaled[slow], plain[slow] / 8)
    assert (scaled[between] < plain[between]).all()
    assert (scaled[between] > plain[between] / 8).all()


@few
@given(
    head_dim=st.sampled_from([2, 4, 10, 16]),
    first=st.integers(0, 500),
    distance=st.integers(-500, 500),
    shift=st.integers(0, 500),
    scaled=st.booleans(),
)
def test_scores_depend_on_distance_only(head_dim, first, distance, shift, scaled):
    generator = torch.Generator().manual_seed(head_dim)
    query, key = torch.randn(2, 1, 1, 1, head_dim, generator=generator, dtype=torch.float64)

    def score(query_position, key_position):
        scaling = RopeScaling(8.0, 1.0, 4.0, 64) if scaled else None
        turned = [
            apply_rotary(x, *rotary_tables(torch.tensor([[at]]), head_dim, scaling=scaling))
            for x, at in ((query, query_position), (key, key_position))
        ]
        return float((turned[0] * turned[1]).sum())

    second = max(first + distance, 0)
    assert score(first, second) == pytest.approx(score(first + shift, second + shift), abs=1e-3)


@few
@given(position=st.integers(0, 10_000), head_dim=st.sampled_from([2, 6, 64]))
def test_a_rotation_keeps_lengths(position, head_dim):
    x = torch.randn(1, 1, 1, head_dim, generator=torch.Generator().manual_seed(position))
    turned = apply_rotary(x, *rotary_tables(torch.tensor([[position]]), head_dim))
    torch.testing.assert_close(turned.norm(), x.norm())


def test_bf16_tables_come_from_fp32_angles():
    position_ids = torch.tensor([[1000, 1001, 4096]])
    exact = rotary_tables(position_ids, 16)
    rounded = rotary_tables(position_ids, 16, dtype=torch.bfloat16)
    for table, wanted in zip(rounded, exact, strict=True):
        assert table.dtype == torch.bfloat16
        assert torch.equal(table, wanted.bfloat16())


@pytest.mark.parametrize("head_dim", [0, 3, -2])
def test_odd_heads_cannot_turn(head_dim):
    with pytest.raises(ValueError, match="positive and even"):
        rotary_frequencies(head_dim)
