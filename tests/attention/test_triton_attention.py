"""The kernels against a float64 reference and PyTorch's own attention, on inputs of every kind."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.attention import (
    flash_attention,
    flash_decode,
    naive_triton_attention,
    online_softmax,
    reference_attention,
    sdpa_attention,
    tiled_attention,
)
from llmlab.attention.triton_attention import flash_block_sizes
from llmlab.decoding import generate
from llmlab.model import load_model
from llmlab.tokenization import load_tokenizer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SMALL = {"block_q": 16, "block_k": 16}


def tensors(b, h, hkv, t, s, d, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((b, h, t, d), (b, hkv, s, d), (b, hkv, s, d))
    return [torch.randn(x, generator=generator).to(DEVICE, dtype) for x in shapes]


def relative_error(output, expected):
    return ((output.double() - expected).abs().max() / expected.abs().max()).item()


def exact(q, k, v, **options):
    return reference_attention(q.double(), k.double(), v.double(), **options)


def assert_accurate(output, q, k, v, **options):
    """fp32: 1e-5 of the largest. 16 bit: at most 1.5 x the error of PyTorch's own attention."""
    expected = exact(q, k, v, **options)
    allowed = 1e-5
    if q.dtype != torch.float32:
        allowed = 1.5 * relative_error(sdpa_attention(q, k, v, **options), expected)
    assert relative_error(output, expected) <= allowed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "causal"),
    [
        ((1, 2, 1, 70, 70, 64), True),
        ((2, 4, 2, 5, 33, 40), True),
        ((1, 1, 1, 65, 63, 80), False),
        ((1, 2, 2, 17, 64, 96), True),
        ((1, 1, 1, 1, 100, 128), True),
        ((1, 1, 1, 20, 20, 256), True),
        ((1, 2, 2, 8, 8, 16), False),
    ],
)
def test_accuracy(shape, causal, dtype):
    q, k, v = tensors(*shape, dtype=dtype)
    assert_accurate(flash_attention(q, k, v, causal=causal, **SMALL), q, k, v, causal=causal)
    output = naive_triton_attention(q, k, v, causal=causal, scores_dtype=torch.float32, **SMALL)
    assert_accurate(output, q, k, v, causal=causal)
    if shape[3] == 1:
        assert_accurate(flash_decode(q, k, v, splits=3, block_k=16), q, k, v)


def test_the_table_of_blocks_is_right_too():
    for dtype in DTYPES:
        q, k, v = tensors(1, 1, 1, 130, 150, 24, dtype)
        assert_accurate(flash_attention(q, k, v, causal=True), q, k, v, causal=True)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data())
def test_all_are_one_function(data):
    """The rung of the ladder: reference = tiled = naive Triton = flash Triton, on random shapes."""
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    hkv = draw(1, 2)
    shape = (draw(1, 2), hkv * draw(1, 3), hkv, draw(1, 40), draw(1, 40), draw(1, 33))
    q, k, v = tensors(*shape, seed=draw(0, 999))
    options = {"causal": data.draw(st.booleans()), "scale": data.draw(st.sampled_from([None, 0.3]))}
    blocks = {"block_q": 16, "block_k": data.draw(st.sampled_from([16, 32]))}
    expected = reference_attention(q, k, v, **options)
    tiled = tiled_attention(q, k, v, block_q=draw(1, 20), block_k=draw(1, 20), **options)
    for output in (
        tiled,
        flash_attention(q, k, v, **options, **blocks),
        naive_triton_attention(q, k, v, **options, **blocks),
    ):
        torch.testing.assert_close(output, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("attention", [tiled_attention, flash_attention])
@settings(deadline=None, derandomize=True, max_examples=15)
@given(data=st.data())
def test_masks(attention, data):
    """Random masks of every broadcastable shape, with rows that may attend to nothing."""
    b, h, t, s = 2, 2, data.draw(st.integers(1, 24)), data.draw(st.integers(1, 24))
    q, k, v = tensors(b, h, 1, t, s, 8)
    broadcast = [data.draw(st.sampled_from([1, size])) for size in (b, h, t, s)]
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    mask = (torch.rand(broadcast, generator=generator) < 0.6).to(DEVICE)
    causal = data.draw(st.booleans())
    blocks = SMALL if attention is flash_attention else {"block_q": 5, "block_k": 7}
    output = attention(q, k, v, mask=mask, causal=causal, **blocks)
    expected = reference_attention(q, k, v, mask=mask, causal=causal)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("attention", [tiled_attention, flash_attention])
def test_queries_that_see_nothing_are_zeros(attention):
    q, k, v = tensors(1, 1, 1, 40, 3, 16)
    output, lse = attention(q, k, v, causal=True, return_log_sum_exp=True, **SMALL)
    assert (output[:, :, :37] == 0).all()
    assert torch.isneginf(lse[:, :, :37]).all()
    torch.testing.assert_close(output, reference_attention(q, k, v, causal=True))
    assert not output.isnan().any()


@pytest.mark.parametrize("attention", [tiled_attention, flash_attention])
def test_log_sum_exp(attention):
    q, k, v = tensors(2, 4, 2, 19, 35, 24)
    _, lse = attention(q, k, v, causal=True, return_log_sum_exp=True, **SMALL)
    stages = reference_attention(q, k, v, causal=True, return_intermediates=True)
    torch.testing.assert_close(lse, stages.masked.logsumexp(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strided_inputs(dtype):
    """Views as a fused projection leaves them, and a transposed head dimension."""
    fused = torch.randn(2, 21, 3, 4, 24, device=DEVICE).to(dtype)  # [B, T, 3, H, D]
    q, k, v = fused.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, D] each
    v = v.transpose(2, 3).contiguous().transpose(2, 3)
    for attention in (flash_attention, naive_triton_attention):
        dense = attention(q.contiguous(), k.contiguous(), v.contiguous(), causal=True, **SMALL)
        assert torch.equal(attention(q, k, v, causal=True, **SMALL), dense)


def test_chunks_of_a_prompt_equal_the_whole():
    """7 then 9 queries against the keys so far, as chunked prefill feeds them."""
    q, k, v = tensors(1, 4, 2, 16, 16, 32)
    whole = flash_attention(q, k, v, causal=True, **SMALL)
    first = flash_attention(q[:, :, :7], k[:, :, :7], v[:, :, :7], causal=True, **SMALL)
    second = flash_attention(q[:, :, 7:], k, v, causal=True, **SMALL)
    torch.testing.assert_close(torch.cat([first, second], dim=2), whole, rtol=1e-5, atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=20)
@given(data=st.data())
def test_decode_in_splits(data):
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    hkv, s = draw(1, 2), draw(1, 70)
    q, k, v = tensors(2, hkv * draw(1, 3), hkv, 1, s, draw(1, 20))
    mask = None
    if data.draw(st.booleans()):
        mask = (torch.rand(2, 1, 1, s) < 0.3).to(DEVICE)
    output = flash_decode(q, k, v, mask=mask, splits=draw(1, 6), block_k=16)
    expected = reference_attention(q, k, v, mask=mask)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("attention", ["tiled", "flash"])
def test_a_model_writes_the_same_with_it(attention):
    model, tokenizer = load_model(device=DEVICE), load_tokenizer()
    ids = [tokenizer.encode(text, add_special_tokens=True) for text in ("遥遥领", "time flies")]
    expected = generate(model, ids, 5).ids  # a batch with padding on the left: masks too
    model.set_attention(attention)
    assert generate(model, ids, 5).ids == expected


def test_online_softmax():
    by_hand = online_softmax(torch.tensor([1.0, 2.0, 3.0]), block_size=1)
    torch.testing.assert_close(by_hand, torch.tensor([1.0, 2.0, 3.0]).softmax(-1))
    scores = torch.randn(3, 5, 41) * 30
    scores[0, 0, :20] = -torch.inf  # a first block of nothing
    for size in (1, 7, 41, 100):
        torch.testing.assert_close(online_softmax(scores, block_size=size), scores.softmax(-1))
    scores[1, 1] = -torch.inf
    assert (online_softmax(scores)[1, 1] == 0).all()
    with pytest.raises(ValueError, match="block_size"):
        online_softmax(scores, block_size=0)


def test_tiled_attention_holds_tiles_only():
    """Counted: the largest tensor that is made has the size of a tile, not of T x S."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.elements = max(self.elements, result.untyped_storage().nbytes() // 4)
            return result

    q, k, v = tensors(1, 1, 1, 1024, 1024, 8)
    with Largest() as tiled:
        tiled_attention(q, k, v, causal=True)
    with Largest() as reference:
        reference_attention(q, k, v, causal=True)
    assert tiled.elements == 1024 * 8  # as large as an input
    assert reference.elements == 1024 * 1024


def test_empty_inputs():
    q, k, v = tensors(1, 2, 1, 0, 5, 16)
    assert flash_attention(q, k, v).shape == tiled_attention(q, k, v).shape == (1, 2, 0, 16)
    q, k, v = tensors(1, 2, 1, 3, 0, 16)
    for attention in (flash_attention, tiled_attention, naive_triton_attention):
        assert (attention(q, k, v) == torch.zeros(1, 2, 3, 16, device=DEVICE)).all()


def test_bad_input_is_told():
    q, k, v = tensors(1, 2, 1, 4, 5, 16)
    with pytest.raises(TypeError, match="use tiled_attention"):
        flash_attention(q.double(), k.double(), v.double())
    with pytest.raises(ValueError, match="1 to 256"):
        flash_block_sizes(300, torch.float16)
    with pytest.raises(ValueError, match="power of two"):
        flash_attention(q, k, v, block_q=48)
    with pytest.raises(ValueError, match="power of two"):
        flash_attention(q, k, v, block_k=8)
    with pytest.raises(ValueError, match="above 0"):
        tiled_attention(q, k, v, block_q=0)
    with pytest.raises(ValueError, match="use flash_attention"):
        flash_decode(q, k, v)
    with pytest.raises(ValueError, match="splits"):
        flash_decode(q[:, :, :1], k, v, splits=0)
    with pytest.raises(ValueError, match="must divide"):
        flash_attention(q[:, :1], k.expand(1, 2, 5, 16), v.expand(1, 2, 5, 16))


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


ATTEND = "import torch; from llmlab.attention import *; q = torch.randn(1, 1, 9, 16)\n"
CHECK = "print((flash_attention(q, q, q) - tiled_attention(q, q, q)).abs().max().item() < 1e-5)\n"


@pytest.mark.parametrize(
    "before", ["", "import triton, triton.language\n", "import torch._inductor\n"]
)
def test_whoever_imports_triton_first(before):
    """No environment variable is needed, and the interpreter is announced once."""
    result = run_python(before + ATTEND + CHECK + CHECK)
    assert result.stdout.split() == ["True", "True"], result.stderr
    if DEVICE == "cpu":
        assert result.stderr.count("interpreter") == 1


def test_without_triton():
    """As on macOS and Windows: a clear error, and the rest works."""
    block = "import sys; sys.modules['triton'] = None\n"
    result = run_python(block + ATTEND + "print(tiled_attention(q, q, q).shape)\n" + CHECK)
    assert "torch.Size([1, 1, 9, 16])" in result.stdout
    assert "ImportError" in result.stderr
    assert "llmlab.attention.tiled_attention" in result.stderr
