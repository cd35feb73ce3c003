"""The closed forms against hand counts, the paper, and the tile machine to the byte."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.attention import causal_mask, reference_attention
from llmlab.memory import attention_traffic, decoding_traffic
from llmlab.memory.ledger import asymptotic_elements
from llmlab.memory.tile_programs import PROGRAMS, run_on_tiles

N, D = 1024, 64


def test_standard_by_hand():
    """N = 4, d = 2, fp16: Q, K, V, O of 16 bytes each, S and P of 32."""
    traffic = attention_traffic("standard", n_q=4, n_k=4, head_dim=2)
    assert traffic.read == {"Q": 16, "K": 16, "S": 32, "P": 32, "V": 16}
    assert traffic.written == {"S": 32, "P": 32, "O": 16}
    assert traffic.total == 192
    assert traffic.flops == 4 * 16 * 2
    assert traffic.arithmetic_intensity == 128 / 192


def test_flash_by_hand():
    """N = 4, d = 2, blocks of 2: two query blocks, each reads all of K and V."""
    traffic = attention_traffic("flash", n_q=4, n_k=4, head_dim=2, block_q=2, block_k=2)
    assert traffic.read == {"Q": 16, "K": 32, "V": 32}
    assert traffic.written == {"O": 16}
    causal = attention_traffic("flash", n_q=4, n_k=4, head_dim=2, block_q=2, block_k=2, causal=True)
    assert causal.read == {"Q": 16, "K": 8 + 16, "V": 8 + 16}
    assert causal.flops == 4 * 2 * (1 + 2 + 3 + 4)


@settings(deadline=None, derandomize=True)
@given(n_q=st.integers(1, 30), n_k=st.integers(1, 30), causal=st.booleans())
def test_flops_are_those_of_the_pairs_that_the_mask_allows(n_q, n_k, causal):
    pairs = int(causal_mask(n_q, n_k).sum()) if causal else n_q * n_k
    traffic = attention_traffic("flash", n_q=n_q, n_k=n_k, head_dim=3, heads=2, causal=causal)
    assert traffic.flops == 4 * 3 * pairs * 2


def test_flash1_by_hand():
    """N = 4, d = 2, blocks of 2: two key blocks, Q, O, l and m pass by for each."""
    traffic = attention_traffic("flash1", n_q=4, n_k=4, head_dim=2, block_q=2, block_k=2)
    assert traffic.read == {"Q": 32, "K": 16, "V": 16, "O": 32, "l": 32, "m": 32}
    assert traffic.written == {"O": 48, "l": 48, "m": 48}


def test_the_papers_count():
    """4 N^2 + 4 N d elements (FlashAttention, theorem 2 with its constants); GPT-2's size."""
    traffic = attention_traffic("standard", n_q=N, n_k=N, head_dim=D)
    assert traffic.total == 2 * (4 * N * N + 4 * N * D)
    one_pass = attention_traffic("standard", n_q=N, n_k=N, head_dim=D, heads=16, batch=64)
    assert one_pass.written["S"] == 2_147_483_648  # fp16, N x N, 16 heads, batch 64
    assert one_pass.flops == 4 * N * N * D * 16 * 64  # 275 GFLOP
    assert round(one_pass.flops / 1e9) == 275


def test_tiling_changes_standard_only_by_what_is_read_again():
    whole = attention_traffic("standard_tiled", n_q=N, n_k=N, head_dim=D, block_q=N, block_k=N)
    plain = attention_traffic("standard", n_q=N, n_k=N, head_dim=D)
    assert (whole.read, whole.written) == (plain.read, plain.written)
    tiled = attention_traffic("standard_tiled", n_q=N, n_k=N, head_dim=D)
    assert tiled.read["K"] == 16 * plain.read["K"]
    assert tiled.read["Q"] == 16 * plain.read["Q"]
    assert tiled.written == plain.written


def test_flash2_moves_less_than_flash1_at_equal_blocks():
    sizes = {"n_q": N, "n_k": N, "head_dim": D}
    flash2, flash1 = (attention_traffic(name, **sizes).total for name in ("flash", "flash1"))
    assert flash2 < flash1 < attention_traffic("standard_tiled", **sizes).total


def test_the_asymptotic_forms_are_reached():
    """N^2 d^2 / M: the ratio of the count to the form settles as N grows, M fixed."""
    m = 4 * 64 * D  # the four blocks of 64 rows that flash attention keeps, in elements
    ratios = []
    for n in (1024, 4096, 16384, 65536):
        elements = attention_traffic("flash", n_q=n, n_k=n, head_dim=D, dtype_bytes=1).total
        ratios.append(elements / asymptotic_elements("flash", n=n, head_dim=D, sram_elements=m))
    assert math.isclose(ratios[-1], ratios[-2], rel_tol=0.02)
    assert abs(ratios[-1] - ratios[-2]) < abs(ratios[1] - ratios[0])
    standard = attention_traffic("standard", n_q=N, n_k=N, head_dim=D, dtype_bytes=1).total
    assert standard == 4 * asymptotic_elements("standard", n=N, head_dim=D, sram_elements=m)


def test_a_cache_turns_a_sum_of_squares_into_a_sum():
    sizes = {"prompt": 1, "new_tokens": 50, "head_dim": 8, "block_q": 1, "block_k": 1}
    cached = decoding_traffic(cache=True, **sizes)
    naive = decoding_traffic(cache=False, **sizes)
    row = 8 * 2
    assert cached.read["K"] == row * sum(range(1, 51))
    assert naive.read["K"] == row * sum(n * (n + 1) // 2 for n in range(1, 51))
    assert cached.written["K"] == row * 50
    assert naive.written["K"] == row * sum(range(1, 51))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_q": 0}, "n_q"),
        ({"heads": 3, "kv_heads": 2}, "share"),
        ({"block_k": -1}, "block_k"),
    ],
)
def test_bad_shapes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        attention_traffic("flash", **({"n_q": 4, "n_k": 4, "head_dim": 2} | options))


def test_bad_algorithms_are_refused():
    with pytest.raises(ValueError, match="standard, standard_tiled, flash"):
        attention_traffic("flash3", n_q=4, n_k=4, head_dim=2)
    with pytest.raises(ValueError, match="use 'flash'"):
        attention_traffic("decode", n_q=4, n_k=4, head_dim=2)
    with pytest.raises(ValueError, match="d <= M"):
        asymptotic_elements("flash", n=64, head_dim=64, sram_elements=32)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(data=st.data())
def test_the_tile_machine_moves_what_the_ledger_says(data):
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    algorithm = data.draw(st.sampled_from(sorted(PROGRAMS)))
    n_q, n_k = (1 if algorithm == "decode" else draw(1, 20)), draw(1, 20)
    kv_heads, group, head_dim = draw(1, 2), draw(1, 3), draw(1, 5)
    options = {"block_q": draw(1, 9), "block_k": draw(1, 9), "causal": data.draw(st.booleans())}
    options["splits"] = draw(1, 4)
    batch, heads = draw(1, 2), kv_heads * group
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16]))
    generator = torch.Generator().manual_seed(draw(0, 1000))
    q = torch.randn(batch, heads, n_q, head_dim, generator=generator).to(dtype)
    k = torch.randn(batch, kv_heads, n_k, head_dim, generator=generator).to(dtype)
    v = torch.randn(batch, kv_heads, n_k, head_dim, generator=generator).to(dtype)

    output, machine = run_on_tiles(algorithm, q, k, v, **options)

    expected = reference_attention(q.double(), k.double(), v.double(), causal=options["causal"])
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
    traffic = attention_traffic(
        algorithm,
        n_q=n_q,
        n_k=n_k,
        head_dim=head_dim,
        heads=heads,
        kv_heads=kv_heads,
        batch=batch,
        dtype_bytes=q.element_size(),
        **options,
    )
    assert machine.trace.read == traffic.read
    assert machine.trace.written == traffic.written
    assert machine.trace.total == traffic.total
