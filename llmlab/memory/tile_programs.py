"""Attention, written for the tile machine: the same answers, with every byte on the record.

Each function takes q [B, H, T, D] and k, v [B, Hkv, S, D] and gives the output and the machine that
made it: its trace, and the SRAM that it took at most.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from llmlab.memory.ledger import AttentionShape, decode_splits
from llmlab.memory.tile_machine import SRAMTile, TileMachine

PLENTY = 1 << 40  # bytes: a budget that nothing in these programs exceeds


def run_on_tiles(
    algorithm: str,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv S D"],
    v: Float[Tensor, "B Hkv S D"],
    *,
    sram_bytes: int = PLENTY,
    block_q: int = 64,
    block_k: int = 64,
    causal: bool = False,
    splits: int = 1,
) -> tuple[Float[Tensor, "B H T D"], TileMachine]:
    """Attention by one of the algorithms of the ledger, on a tile machine with `sram_bytes`.

    Options as in `attention_traffic`; 1 / sqrt(D) scales the scores. S and P have q's dtype.

    Raises:
        ValueError: an algorithm that is not there, or shapes that the ledger refuses.
        SRAMOverflowError: the blocks do not fit into the budget.
    """
    if algorithm not in PROGRAMS:
        raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(PROGRAMS)}")
    shape = AttentionShape(
        n_q=q.shape[2],
        n_k=k.shape[2],
        head_dim=q.shape[3],
        heads=q.shape[1],
        kv_heads=k.shape[1],
        batch=q.shape[0],
        block_q=block_q,
        block_k=block_k,
        causal=causal,
        dtype_bytes=q.element_size(),
        splits=splits,
    )
    machine = TileMachine(sram_bytes)
    machine.place("Q", q)
    machine.place("K", k)
    machine.place("V", v)
    machine.place("O", torch.full_like(q, math.nan))
    PROGRAMS[algorithm](machine, shape)
    return machine.result("O"), machine


def standard(machine: TileMachine, shape: AttentionShape) -> None:
    """Three passes over whole matrices; S and P go out to HBM and come back."""
    _place_scores(machine, shape)
    group = shape.heads // shape.kv_heads
    for b, kv_head in _each(shape.batch, shape.kv_heads):
        with machine.program(b, kv_head):
            key = machine.load("K", b, kv_head)  # [S, D]
            for head in range(kv_head * group, (kv_head + 1) * group):
                query = machine.load("Q", b, head)  # [T, D]
                machine.store("S", b, head, _scores(query, key))
                machine.free(query)
    machine.next_kernel()
    for b, head in _each(shape.batch, shape.heads):
        with machine.program(b, head):
            _softmax_rows(machine, shape, b, head, slice(0, shape.n_q))
    machine.next_kernel()
    for b, kv_head in _each(shape.batch, shape.kv_heads):
        with machine.program(b, kv_head):
            value = machine.load("V", b, kv_head)  # [S, D]
            for head in range(kv_head * group, (kv_head + 1) * group):
                weights = machine.load("P", b, head)  # [T, S]
                machine.store("O", b, head, weights.data.float() @ value.data.float())  # [T, D]
                machine.free(weights)


def standard_tiled(machine: TileMachine, shape: AttentionShape) -> None:
    """The three passes in tiles, as three kernels make them: operands are loaded again."""
    _place_scores(machine, shape)
    group = shape.heads // shape.kv_heads
    for b, head, rows in _each_query_block(shape):
        for keys in _blocks(shape.n_k, shape.block_k):
            with machine.program(b, head, rows.start, keys.start):
                query = machine.load("Q", b, head, rows)  # [block_q, D]
                key = machine.load("K", b, head // group, keys)  # [block_k, D]
                machine.store("S", b, head, rows, keys, _scores(query, key))
    machine.next_kernel()
    for b, head, rows in _each_query_block(shape):
        with machine.program(b, head, rows.start):
            _softmax_rows(machine, shape, b, head, rows)
    machine.next_kernel()
    for b, head, rows in _each_query_block(shape):
        with machine.program(b, head, rows.start):
            output = machine.allocate("O", torch.zeros(rows.stop - rows.start, shape.head_dim))
            for keys in _blocks(shape.n_k, shape.block_k):
                weights = machine.load("P", b, head, rows, keys)  # [block_q, block_k]
                value = machine.load("V", b, head // group, keys)  # [block_k, D]
                output.data += weights.data.float() @ value.data.float()
                machine.free(weights, value)
            machine.store("O", b, head, rows, output)


def flash(machine: TileMachine, shape: AttentionShape) -> None:
    """FlashAttention-2: a block of queries stays while the keys and values pass by, once."""
    group = shape.heads // shape.kv_heads
    for b, head, rows in _each_query_block(shape):
        with machine.program(b, head, rows.start):
            query = machine.load("Q", b, head, rows)  # [block_q, D]
            count = rows.stop - rows.start
            output = machine.allocate("O", torch.zeros(count, shape.head_dim))  # not normalised
            maximum = machine.allocate("m", torch.full((count, 1), -math.inf))
            total = machine.allocate("l", torch.zeros(count, 1))
            for keys in _blocks(shape.n_k, shape.block_k, shape.key_blocks(rows.stop)):
                key = machine.load("K", b, head // group, keys)  # [block_k, D]
                value = machine.load("V", b, head // group, keys)  # [block_k, D]
                scores = machine.allocate("S", _masked_scores(query, key, rows, keys, shape))
                _online_softmax_step(scores.data, value.data, output, maximum, total)
                machine.free(key, value, scores)
            machine.store("O", b, head, rows, output.data / _no_zeros(total.data))


def flash1(machine: TileMachine, shape: AttentionShape) -> None:
    """FlashAttention-1: keys and values stay while the queries pass by, with their unfinished
    outputs, maxima and sums, which live in HBM in between."""
    rows_shape = (shape.batch, shape.heads, shape.n_q, 1)
    machine.place("m", torch.zeros(rows_shape))
    machine.place("l", torch.zeros(rows_shape))
    group = shape.heads // shape.kv_heads
    for b, head in _each(shape.batch, shape.heads):
        with machine.program(b, head):
            for rows in _blocks(shape.n_q, shape.block_q):
                count = rows.stop - rows.start
                machine.store("O", b, head, rows, torch.zeros(count, shape.head_dim))
                machine.store("l", b, head, rows, torch.zeros(count, 1))
                machine.store("m", b, head, rows, torch.full((count, 1), -math.inf))
            for block, keys in enumerate(_blocks(shape.n_k, shape.block_k)):
                key = machine.load("K", b, head // group, keys)  # [block_k, D]
                value = machine.load("V", b, head // group, keys)  # [block_k, D]
                for rows in _blocks(shape.n_q, shape.block_q):
                    if block < shape.key_blocks(rows.stop):
                        _flash1_step(machine, shape, (b, head, rows), (key, value, keys))
                machine.free(key, value)


def decode(machine: TileMachine, shape: AttentionShape) -> None:
    """One query a sequence; the keys in splits, each with its own partial answer, then one pass
    that puts the partial answers together by their log-sum-exps."""
    splits, keys_per_split = decode_splits(shape.n_k, shape.block_k, shape.splits)
    partial = (shape.batch, shape.heads, splits)
    machine.place("O_partial", torch.full((*partial, shape.head_dim), math.nan))
    machine.place("LSE_partial", torch.full(partial, math.nan))
    group = shape.heads // shape.kv_heads
    for b, kv_head, split in _each(shape.batch, shape.kv_heads, splits):
        heads = slice(kv_head * group, (kv_head + 1) * group)
        with machine.program(b, kv_head, split):
            query = machine.load("Q", b, heads, 0)  # [group, D]: heads as rows
            output = machine.allocate("O", torch.zeros(group, shape.head_dim))
            maximum = machine.allocate("m", torch.full((group, 1), -math.inf))
            total = machine.allocate("l", torch.zeros(group, 1))
            first = split * keys_per_split
            for keys in _blocks(min(first + keys_per_split, shape.n_k), shape.block_k, start=first):
                key = machine.load("K", b, kv_head, keys)  # [block_k, D]
                value = machine.load("V", b, kv_head, keys)  # [block_k, D]
                scores = machine.allocate("S", _scaled(_scores(query, key), shape))
                _online_softmax_step(scores.data, value.data, output, maximum, total)
                machine.free(key, value, scores)
            machine.store("O_partial", b, heads, split, output.data / total.data)
            log_sum_exp = maximum.data + total.data.log()  # [group, 1]
            machine.store("LSE_partial", b, heads, split, log_sum_exp[:, 0])
    machine.next_kernel()
    for b, head in _each(shape.batch, shape.heads):
        with machine.program(b, head):
            weights = machine.load("LSE_partial", b, head).data.softmax(0)  # [splits]
            outputs = machine.load("O_partial", b, head)  # [splits, D]
            machine.store("O", b, head, 0, weights @ outputs.data)  # [D]


PROGRAMS: dict[str, Callable[[TileMachine, AttentionShape], None]] = {
    "standard": standard,
    "standard_tiled": standard_tiled,
    "flash": flash,
    "flash1": flash1,
    "decode": decode,
}


def _flash1_step(machine, shape, where, key_value) -> None:
    """One query block meets one key block: everything about the queries comes in and goes out."""
    (b, head, rows), (key, value, keys) = where, key_value
    query = machine.load("Q", b, head, rows)  # [block_q, D]
    stored = machine.load("O", b, head, rows)  # [block_q, D], normalised
    total = machine.load("l", b, head, rows)  # [block_q, 1]
    maximum = machine.load("m", b, head, rows)  # [block_q, 1]
    output = machine.allocate("O", stored.data.float() * total.data)  # not normalised
    scores = machine.allocate("S", _masked_scores(query, key, rows, keys, shape))
    _online_softmax_step(scores.data, value.data, output, maximum, total)
    machine.store("O", b, head, rows, output.data / _no_zeros(total.data))
    machine.store("l", b, head, rows, total)
    machine.store("m", b, head, rows, maximum)
    machine.free(query, stored, total, maximum, output, scores)


def _online_softmax_step(
    scores: Tensor, value: Tensor, output: SRAMTile, maximum: SRAMTile, total: SRAMTile
) -> None:
    """One more block of keys: what was summed under the old maximum is rescaled to the new one.

    scores [block_q, block_k], value [block_k, D]; changes output [block_q, D], maximum and total
    [block_q, 1].
    """
    new_maximum = torch.maximum(maximum.data, scores.amax(1, keepdim=True))
    # A row that has seen nothing yet has the maximum -inf, and -inf - -inf is no number.
    reference = new_maximum.masked_fill(new_maximum == -math.inf, 0.0)
    rescale = (maximum.data - reference).exp()
    weights = (scores - reference).exp()  # [block_q, block_k], not normalised
    total.data = total.data * rescale + weights.sum(1, keepdim=True)
    output.data = output.data * rescale + weights @ value.float()
    maximum.data = new_maximum


def _softmax_rows(machine, shape, b: int, head: int, rows: slice) -> None:
    """Whole rows of S come in and whole rows of P go out."""
    scores = machine.load("S", b, head, rows)  # [rows, S]
    scaled = _scaled(scores.data.float(), shape)
    masked = _mask(scaled, rows, slice(0, shape.n_k), shape)
    weights = masked.softmax(1).nan_to_num(0.0)  # a row that sees nothing: zeros
    machine.store("P", b, head, rows, weights)


def _scores(query: SRAMTile, key: SRAMTile) -> Tensor:
    return query.data.float() @ key.data.float().T  # [rows, keys]


def _scaled(scores: Tensor, shape: AttentionShape) -> Tensor:
    return scores * shape.head_dim**-0.5


def _masked_scores(query, key, rows: slice, keys: slice, shape: AttentionShape) -> Tensor:
    return _mask(_scaled(_scores(query, key), shape), rows, keys, shape)


def _mask(scores: Tensor, rows: slice, keys: slice, shape: AttentionShape) -> Tensor:
    """-inf where a query would see a later key, the last query being aligned with the last key."""
    if not shape.causal:
        return scores
    query_positions = torch.arange(rows.start, rows.stop)[:, None] + shape.n_k - shape.n_q
    key_positions = torch.arange(keys.start, keys.stop)[None, :]
    return scores.masked_fill(key_positions > query_positions, -math.inf)


def _no_zeros(total: Tensor) -> Tensor:
    """Rows that saw nothing have a sum of 0 and an output of 0: divide by 1."""
    return total.masked_fill(total == 0, 1.0)


def _place_scores(machine: TileMachine, shape: AttentionShape) -> None:
    dtype = machine.result("Q").dtype
    size = (shape.batch, shape.heads, shape.n_q, shape.n_k)
    machine.place("S", torch.full(size, math.nan, dtype=dtype))
    machine.place("P", torch.full(size, math.nan, dtype=dtype))


def _blocks(stop: int, size: int, count: int | None = None, *, start: int = 0) -> Iterator[slice]:
    """Slices of `size` from start to stop, the last as long as what is left; at most `count`."""
    starts = list(range(start, stop, size))
    for first in starts if count is None else starts[:count]:
        yield slice(first, min(first + size, stop))


def _each(*counts: int) -> Iterator[tuple[int, ...]]:
    """Every index below these counts, the last running fastest."""
    return itertools.product(*map(range, counts))


def _each_query_block(shape: AttentionShape) -> Iterator[tuple[int, int, slice]]:
    for b, head in _each(shape.batch, shape.heads):
        for rows in _blocks(shape.n_q, shape.block_q):
            yield b, head, rows
