"""What the Triton kernels ask of memory = what the tile machine moved = what the ledger says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llmlab.attention import flash_attention, flash_decode, naive_triton_attention
from llmlab.attention.triton_attention import (
    BlockSizes,
    launch_decode,
    launch_flash,
    launch_naive,
)
from llmlab.attention.triton_runtime import import_triton
from llmlab.memory import attention_traffic
from llmlab.memory.ledger import decode_splits
from llmlab.memory.tile_programs import run_on_tiles
from llmlab.memory.trace import record_trace, trace_kernel

triton, tl = import_triton()
LSE = {"O": "O", "lse": "LSE"}


def random_case(data, *, max_queries=70):
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    batch, kv_heads, group, head_dim = draw(1, 2), draw(1, 2), draw(1, 2), draw(1, 40)
    n_q, n_k = draw(1, max_queries), draw(1, 70)
    q = torch.randn(batch, kv_heads * group, n_q, head_dim).to(dtype)
    k, v = torch.randn(2, batch, kv_heads, n_k, head_dim).to(dtype)
    sizes = {"n_q": n_q, "n_k": n_k, "head_dim": head_dim, "batch": batch}
    sizes |= {"heads": kv_heads * group, "kv_heads": kv_heads, "dtype_bytes": q.element_size()}
    blocks = BlockSizes(data.draw(st.sampled_from([16, 32])), data.draw(st.sampled_from([16, 32])))
    return q, k, v, sizes, blocks


def assert_same(trace, traffic, machine=None):
    assert (trace.read, trace.written) == (traffic.read, traffic.written)
    assert trace.total == traffic.total
    if machine is not None:
        assert (trace.read, trace.written) == (machine.trace.read, machine.trace.written)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data(), causal=st.booleans(), log_sum_exp=st.booleans())
def test_flash(data, causal, log_sum_exp):
    q, k, v, sizes, blocks = random_case(data)
    output, lse = torch.empty_like(q), torch.empty(q.shape[:3]) if log_sum_exp else None
    named = {"Q": q, "K": k, "V": v, "O": output} | ({"LSE": lse} if log_sum_exp else {})
    options = {"causal": causal, "mask": None, "scale": None, "blocks": blocks}
    trace = trace_kernel(lambda: launch_flash(q, k, v, output, lse, **options), named)
    tiling = {"block_q": blocks.block_q, "block_k": blocks.block_k, "causal": causal}
    machine = None if log_sum_exp else run_on_tiles("flash", q, k, v, **tiling)[1]
    traffic = attention_traffic("flash", **sizes, **tiling, log_sum_exp=log_sum_exp)
    assert_same(trace, traffic, machine)


@settings(deadline=None, derandomize=True, max_examples=10)
@given(data=st.data(), causal=st.booleans())
def test_naive(data, causal):
    q, k, v, sizes, blocks = random_case(data, max_queries=40)
    scores = torch.empty(*q.shape[:3], k.shape[2], dtype=q.dtype)
    weights, output = torch.empty_like(scores), torch.empty_like(q)
    named = {"Q": q, "K": k, "V": v, "S": scores, "P": weights, "O": output}
    options = {"causal": causal, "scale": None, "blocks": blocks}
    trace = trace_kernel(lambda: launch_naive(q, k, v, scores, weights, output, **options), named)
    tiling = {"block_q": blocks.block_q, "block_k": blocks.block_k, "causal": causal}
    _, machine = run_on_tiles("standard_tiled", q, k, v, **tiling)
    assert_same(trace, attention_traffic("standard_tiled", **sizes, **tiling), machine)
    assert {event.launch for event in trace} == {0, 1, 2}


@settings(deadline=None, derandomize=True, max_examples=15)
@given(data=st.data(), wanted=st.integers(1, 5))
def test_decode(data, wanted):
    q, k, v, sizes, blocks = random_case(data, max_queries=1)
    splits, keys_per_split = decode_splits(sizes["n_k"], blocks.block_k, wanted)
    partial = torch.empty(*q.shape[:2], splits, q.shape[3])
    partial_lse, output = torch.empty(partial.shape[:3]), torch.empty_like(q)
    named = {"Q": q, "K": k, "V": v, "O": output}
    named |= {"O_partial": partial, "LSE_partial": partial_lse}
    settings = (None, 1.0, blocks.block_k, keys_per_split)
    trace = trace_kernel(
        lambda: launch_decode(q, k, v, partial, partial_lse, output, *settings), named
    )
    tiling = {"block_k": blocks.block_k, "splits": wanted}
    _, machine = run_on_tiles("decode", q, k, v, **tiling)
    assert_same(trace, attention_traffic("decode", **sizes, **tiling), machine)


def test_tiles_are_the_boxes_that_were_touched():
    q = torch.randn(1, 2, 40, 16)
    trace = trace_kernel(lambda: flash_attention(q, q, q, block_q=32, block_k=32), Q=q)
    loads = [event for event in trace if event.program == (1, 1, 0) and event.kind == "load"]
    assert [event.tile[2] for event in loads] == [(32, 40), (0, 32), (0, 32), (32, 40), (32, 40)]
    assert {event.tile[1] for event in loads} == {(1, 2)}
    assert loads[0].bytes == 8 * 16 * 4


def test_strided_views_of_one_tensor_are_told_apart():
    """q, k and v cut out of one tensor, as a fused projection leaves them."""
    fused = torch.randn(1, 20, 3, 2, 16)  # [B, T, 3, H, D]
    q, k, v = fused.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, D] each
    trace = trace_kernel(lambda: flash_attention(q, k, v, block_q=16, block_k=16), Q=q, K=k, V=v)
    traffic = attention_traffic(
        "flash", n_q=20, n_k=20, head_dim=16, heads=2, block_q=16, block_k=16, dtype_bytes=4
    )
    assert trace.read == traffic.read


def test_arguments_without_a_name_go_by_their_parameters():
    q, k, v = torch.randn(3, 1, 1, 16, 16).unbind(0)
    with record_trace() as trace:
        naive_triton_attention(q, k, v, block_q=16, block_k=16)
    assert trace.read == dict.fromkeys("qkspv", 16 * 16 * 4)
    assert trace.written == dict.fromkeys("spo", 16 * 16 * 4)
    with record_trace() as trace:
        flash_decode(q[:, :, :1], k, v, splits=1, block_k=16)
    assert {"q", "k", "v", "partial", "partial_lse", "o"} == set(trace.tensors)


@triton.jit
def copy_kernel(x, y, n, step, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(y + lanes, tl.load(x + lanes * step, mask=lanes < n), mask=lanes < n)


def test_a_touch_outside_of_all_tensors_is_told():
    x, y = torch.zeros(64), torch.zeros(64)
    trace = trace_kernel(lambda: copy_kernel[(1,)](x, y, 5, 2, BLOCK=16))
    assert (trace.bytes("x"), trace.bytes("y")) == (20, 20)
    assert trace.events[0].tile == ((0, 9),)  # the box around every second number
    inner = x[:4]
    with pytest.raises(Exception, match="look for a missing mask"):
        trace_kernel(lambda: copy_kernel[(1,)](inner, y, 16, 2, BLOCK=16))
    again = trace_kernel(lambda: copy_kernel[(1,)](x, y, 5, 1, BLOCK=16))
    assert again.total == 40  # the failure left nothing behind
    some = trace_kernel(lambda: copy_kernel[(1,)](inner, y, 16, 2, BLOCK=16), unknown="ignore")
    assert (some.read, some.written) == ({}, {"y": 64})
    with pytest.raises(ValueError, match="not 'skip'"):
        trace_kernel(lambda: None, unknown="skip")


def test_the_box_holds_rows_that_are_touched_in_part():
    """Numbers 8 to 20 of a matrix with rows of 16: the second half of one row, some of the next."""
    x, y = torch.arange(64.0).view(4, 16), torch.zeros(64)
    launch = copy_kernel[(1,)]
    trace = trace_kernel(lambda: launch(x.view(-1)[8:], y, 13, 1, BLOCK=16), X=x)
    assert trace.events[0].tile == ((0, 2), (0, 16))
    assert trace.bytes("X") == 13 * 4


@triton.jit
def copy_rows_kernel(source, target, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]))


def test_descriptors_pass_through_the_same_two_functions():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = torch.randn(20, 16), torch.zeros(20, 16)
    source, target = (TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, y))
    trace = trace_kernel(lambda: copy_rows_kernel[(2,)](source, target, BLOCK=16), Y=y)
    assert torch.equal(x, y)
    assert (trace.read, trace.written) == ({"source": x.nbytes}, {"Y": y.nbytes})  # 4 rows masked
    tiles = [event.tile for event in trace if event.kind == "store"]
    assert tiles == [((0, 16), (0, 16)), ((16, 20), (0, 16))]


@triton.jit
def copy_first_to_second_kernel(pair, n, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(pair[1] + lanes, tl.load(pair[0] + lanes, mask=lanes < n), mask=lanes < n)


def test_tensors_in_a_tuple():
    pair = torch.randn(20), torch.zeros(20)
    trace = trace_kernel(lambda: copy_first_to_second_kernel[(1,)](pair, 5, BLOCK=16))
    assert (trace.read, trace.written) == ({"pair[0]": 20}, {"pair[1]": 20})


def test_copies_that_the_interpreter_makes_keep_the_name(monkeypatch):
    """As it does with tensors on a GPU; here it is made to copy those of the CPU."""
    from triton.runtime.interpreter import GridExecutor

    def copy(executor, arguments, options):
        move = lambda x: x.clone() if isinstance(x, torch.Tensor) else x  # noqa: E731
        return [move(x) for x in arguments], {name: move(x) for name, x in options.items()}

    monkeypatch.setattr(GridExecutor, "_init_args_hst", copy)
    x, y = torch.ones(64), torch.zeros(64)
    with record_trace(X=x) as trace:
        copy_kernel[(1,)](x, y, 5, 1, BLOCK=16)
        copy_kernel[(1,)](y, x, 5, 1, BLOCK=16)
    assert trace.read == trace.written == {"X": 20, "y": 20}
    assert GridExecutor._init_args_hst is copy  # put back
    assert y[:5].tolist() == [1.0] * 5


def test_where_kernels_are_compiled_the_error_says_how(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 before Python starts"):
        trace_kernel(lambda: None)


def test_one_trace_at_a_time():
    with record_trace(), pytest.raises(RuntimeError, match="inside another"), record_trace():
        pass


def test_recording_adds_one_look_at_each_load_and_store():
    """Counted, not timed: what is done for an event does not grow with the events before it."""
    from llmlab.memory.trace import Region

    looks = 0
    original = Region.tile

    def counted(self, addresses):
        nonlocal looks
        looks += 1
        return original(self, addresses)

    q = torch.randn(1, 1, 64, 16)
    k = torch.randn(1, 1, 64, 16)
    Region.tile = counted
    try:
        trace = trace_kernel(lambda: flash_attention(q, k, k, block_q=16, block_k=16))
    finally:
        Region.tile = original
    assert looks <= len(trace) * len(trace.tensors)
