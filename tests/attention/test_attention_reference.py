"""`reference_attention` and `sdpa_attention` against hand-worked numbers and PyTorch's own."""

import math

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.attention import (
    AttentionIntermediates,
    attention_function,
    reference_attention,
    sdpa_attention,
)

BOTH = pytest.mark.parametrize("attend", [reference_attention, sdpa_attention])
few = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture
def plain_errors():
    """Without the test run's shape checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def random_inputs(batch=2, heads=4, kv_heads=2, queries=3, keys=5, head_dim=8, dtype=torch.float64):
    generator = torch.Generator().manual_seed(queries * 1000 + keys)
    return [
        torch.randn(batch, count, length, head_dim, generator=generator, dtype=torch.float64).to(
            dtype
        )
        for count, length in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    ]


def row_by_row(q, k, v, allowed):
    """Attention in plain loops over heads and queries, from the definition alone."""
    output = torch.zeros_like(q)
    batch, heads, queries, head_dim = q.shape
    group = heads // k.shape[1]
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                seen = [s for s in range(k.shape[2]) if allowed(b, h, t, s)]
                if not seen:
                    continue
                scores = [q[b, h, t] @ k[b, h // group, s] / math.sqrt(head_dim) for s in seen]
                weights = torch.tensor([math.exp(score) for score in scores], dtype=q.dtype)
                weights = weights / weights.sum()
                output[b, h, t] = sum(
                    w * v[b, h // group, s] for w, s in zip(weights, seen, strict=True)
                )
    return output


@BOTH
def test_two_keys_by_hand(attend):
    # Scores are 1 and 0; the weights are e / (e + 1) and 1 / (e + 1).
    q = torch.tensor([[[[1.0, 0.0]]]])
    k = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    v = torch.tensor([[[[10.0, 0.0], [0.0, 20.0]]]])
    first = math.e / (math.e + 1)
    wanted = torch.tensor([10 * first, 20 * (1 - first)])
    torch.testing.assert_close(attend(q, k, v, scale=1.0)[0, 0, 0], wanted)


def test_intermediates_by_name():
    q, k, v = random_inputs(queries=3, keys=3)
    stages = reference_attention(q, k, v, causal=True, return_intermediates=True)
    assert isinstance(stages, AttentionIntermediates)
    torch.testing.assert_close(stages.scores[1, 3, 2, 0], q[1, 3, 2] @ k[1, 1, 0])
    torch.testing.assert_close(stages.scaled, stages.scores / math.sqrt(8))
    hidden = torch.ones(3, 3, dtype=torch.bool).triu(1)
    assert torch.equal(stages.masked.isneginf(), hidden.expand(2, 4, 3, 3))
    torch.testing.assert_close(stages.masked[..., ~hidden], stages.scaled[..., ~hidden])
    torch.testing.assert_close(stages.weights.sum(-1), torch.ones(2, 4, 3, dtype=torch.float64))
    assert (stages.weights[..., hidden] == 0).all()
    torch.testing.assert_close(stages.output, reference_attention(q, k, v, causal=True))


@BOTH
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(1, 3), (2, 5), (5, 2), (4, 4), (1, 1), (7, 1), (8, 65), (3, 63), (2, 0), (0, 2)],
)
def test_the_last_query_is_aligned_with_the_last_key(attend, queries, keys):
    q, k, v = random_inputs(queries=queries, keys=keys)
    wanted = row_by_row(q, k, v, lambda b, h, t, s: s <= t + keys - queries)
    torch.testing.assert_close(attend(q, k, v, causal=True), wanted)


@BOTH
def test_one_causal_query_sees_all_keys(attend):
    q, k, v = random_inputs(queries=1, keys=3)
    torch.testing.assert_close(attend(q, k, v, causal=True), attend(q, k, v))


@BOTH
def test_five_queries_two_keys_start_with_three_rows_of_zeros(attend):
    q, k, v = random_inputs(queries=5, keys=2)
    output = attend(q, k, v, causal=True)
    assert (output[:, :, :3] == 0).all()
    assert (output[:, :, 3:] != 0).all()


@BOTH
def test_a_fully_masked_row_gives_zeros_and_finite_gradients(attend):
    q, k, v = (tensor.requires_grad_() for tensor in random_inputs())
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    output = attend(q, k, v, mask=mask)
    assert (output[:, :, 1] == 0).all()
    output.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (q, k, v))
    assert (q.grad[:, :, 1] == 0).all()


@BOTH
def test_chunks_of_seven_and_nine_equal_sixteen_at_once(attend):
    q, k, v = random_inputs(queries=16, keys=16)
    first = attend(q[:, :, :7], k[:, :, :7], v[:, :, :7], causal=True)
    second = attend(q[:, :, 7:], k, v, causal=True)
    torch.testing.assert_close(torch.cat((first, second), 2), attend(q, k, v, causal=True))


@BOTH
def test_true_means_may_attend(attend):
    q, k, v = random_inputs()
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[:, 4] = True
    wanted = v[:, :, 4:5].repeat_interleave(2, dim=1).expand(2, 4, 3, 8)
    torch.testing.assert_close(attend(q, k, v, mask=mask), wanted)


@BOTH
def test_heads_are_interleaved_not_tiled(attend):
    q, k, v = random_inputs(heads=4, kv_heads=2)
    for head, kv_head in enumerate((0, 0, 1, 1)):
        alone = [q[:, head : head + 1], k[:, kv_head : kv_head + 1], v[:, kv_head : kv_head + 1]]
        torch.testing.assert_close(attend(q, k, v)[:, head : head + 1], attend(*alone))


@BOTH
@pytest.mark.parametrize("head_dim", [1, 40, 80, 96])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (63, 65), (8, 4095)])
def test_awkward_sizes(attend, head_dim, queries, keys):
    q, k, v = random_inputs(1, 2, 1, queries, keys, head_dim)
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    wanted = F.scaled_dot_product_attention(q, k.expand(1, 2, -1, -1), v.expand(1, 2, -1, -1), mask)
    torch.testing.assert_close(attend(q, k, v, causal=True), wanted)


@BOTH
def test_strides_do_not_matter(attend):
    q, k, v = random_inputs(queries=6, keys=6)
    views = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    assert not views[0].is_contiguous()
    torch.testing.assert_close(attend(*views, causal=True), attend(q, k, v, causal=True))


@BOTH
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)]
)
def test_precision(attend, dtype, tolerance):
    q, k, v = random_inputs(queries=9, keys=9, dtype=dtype)
    output = attend(q, k, v, causal=True)
    assert output.dtype == dtype
    wanted = reference_attention(q.double(), k.double(), v.double(), causal=True)
    torch.testing.assert_close(output.double(), wanted, atol=tolerance, rtol=tolerance)


def test_half_precision_is_rounded_once_as_in_pytorchs_plain_path():
    q, k, v = random_inputs(heads=2, queries=9, keys=9, dtype=torch.bfloat16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted = F.scaled_dot_product_attention(q, k, v)
    assert (reference_attention(q, k, v) == wanted).float().mean() > 0.99


def test_scores_large_enough_to_overflow_exp():
    q, k, v = random_inputs(dtype=torch.float32)
    output = reference_attention(q * 1e4, k, v)
    assert output.isfinite().all()
    torch.testing.assert_close(output, sdpa_attention(q * 1e4, k, v))


@st.composite
def problems(draw):
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    batch, queries, keys = (draw(st.integers(1, n)) for n in (3, 9, 9))
    head_dim = draw(st.sampled_from([1, 2, 5, 8, 40]))
    inputs = random_inputs(batch, kv_heads * group, kv_heads, queries, keys, head_dim)
    mask = None
    if draw(st.booleans()):
        sizes = (batch, kv_heads * group, queries, keys)
        shape = tuple(1 if draw(st.booleans()) else size for size in sizes)
        shape = shape[draw(st.integers(0, 2)) :]
        generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
        mask = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    scale = draw(st.sampled_from([None, 0.3, 1.0]))
    return inputs, mask, draw(st.booleans()), scale


@BOTH
@few
@given(problem=problems())
def test_equal_to_pytorchs_attention(attend, problem):
    (q, k, v), mask, causal, scale = problem
    queries, keys = q.shape[2], k.shape[2]
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        rows = torch.arange(queries)[:, None] + keys - queries
        allowed = torch.arange(keys)[None] <= rows
    if mask is not None:
        allowed = allowed & mask
    group = q.shape[1] // k.shape[1]
    wanted = F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), allowed, scale=scale
    )
    empty = ~allowed.any(-1, keepdim=True).expand(*q.shape[:3], 1)
    wanted = wanted.masked_fill(empty, 0.0)
    torch.testing.assert_close(attend(q, k, v, causal=causal, mask=mask, scale=scale), wanted)


@BOTH
class TestErrors:
    pytestmark = pytest.mark.usefixtures("plain_errors")

    @pytest.mark.parametrize("dtype", [torch.float32, torch.long])
    def test_mask_that_is_not_boolean(self, attend, dtype):
        with pytest.raises(TypeError, match=r"True where a query may attend.*\.bool\(\)"):
            attend(*random_inputs(), mask=torch.ones(3, 5, dtype=dtype))

    @pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (1, 2, 4, 3, 5)])
    def test_mask_of_another_shape(self, attend, shape):
        with pytest.raises(ValueError, match=r"\[2, 4, 3, 5\]"):
            attend(*random_inputs(), mask=torch.ones(shape, dtype=torch.bool))

    def test_heads_that_do_not_divide(self, attend):
        with pytest.raises(ValueError, match="4 query heads cannot share 3"):
            attend(*random_inputs(kv_heads=3))

    def test_head_dim(self, attend):
        q, k, v = random_inputs()
        with pytest.raises(ValueError, match="agree in batch and head_dim"):
            attend(q[..., :4], k, v)

    def test_batch(self, attend):
        q, k, v = random_inputs()
        with pytest.raises(ValueError, match="agree in batch and head_dim"):
            attend(q[:1], k, v)

    def test_keys_without_values(self, attend):
        q, k, v = random_inputs()
        with pytest.raises(ValueError, match="k and v must have one shape"):
            attend(q, k, v[:, :, :4])

    def test_three_dimensions(self, attend):
        q, k, v = random_inputs()
        with pytest.raises(ValueError, match="q must have 4 dimensions"):
            attend(q[0], k, v)

    def test_dtypes(self, attend):
        q, k, v = random_inputs()
        with pytest.raises(TypeError, match=r"one dtype.*\.to"):
            attend(q, k.float(), v)


def test_attention_by_name():
    assert attention_function("reference") is reference_attention
    assert attention_function("sdpa") is sdpa_attention
    with pytest.raises(ValueError, match=r"'flush'.*reference, sdpa"):
        attention_function("flush")
