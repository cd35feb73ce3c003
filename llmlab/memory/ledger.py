"""The ledger of attention: how many bytes each algorithm asks of HBM, in closed form.

Counted are *requested* bytes: every load and store, at the tile sizes given. A cache between HBM
and the chip may answer some of them (see `last_level_cache`). Ragged edges count what is there:
the last tile of 100 rows in tiles of 64 has 36.

Sources: Dao et al. 2022 (FlashAttention), algorithms 0 and 1, theorem 2; Dao 2023
(FlashAttention-2), algorithm 1; Dao et al. 2023 (Flash-Decoding).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llmlab.memory.traffic import Traffic

STATISTIC_BYTES = 4  # running maxima, sums, log-sum-exps and partial outputs are fp32


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up: how many tiles of b cover a."""
    return -(-a // b)


@dataclass(frozen=True)
class AttentionShape:
    """All that the closed forms need. Lengths in tokens; see `attention_traffic`."""

    n_q: int
    n_k: int
    head_dim: int
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1
    block_q: int = 64
    block_k: int = 64
    causal: bool = False
    dtype_bytes: int = 2
    score_bytes: int = 2
    splits: int = 1
    log_sum_exp: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool) and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} key heads")

    @property
    def rows(self) -> int:
        """Rows of Q, O, S and P in all heads and sequences."""
        return self.batch * self.heads * self.n_q

    def query_blocks(self) -> Iterator[tuple[int, int]]:
        """Start and stop of each block of queries."""
        for start in range(0, self.n_q, self.block_q):
            yield start, min(start + self.block_q, self.n_q)

    def visible_keys(self, query: int) -> int:
        """How many keys a query may attend to; the last query is aligned with the last key."""
        if not self.causal:
            return self.n_k
        return min(max(query + 1 + self.n_k - self.n_q, 0), self.n_k)

    def key_blocks(self, stop: int) -> int:
        """How many key blocks the query block that ends before `stop` visits."""
        return ceil_div(self.visible_keys(stop - 1), self.block_k)

    @property
    def flops(self) -> int:
        """2 products of 2 FLOPs for each visible pair of query and key, and each head dimension.

        The useful work, the same for every algorithm: what a kernel computes and masks away again
        is not in it.
        """
        pairs = self.n_q * self.n_k
        if self.causal:  # the last `seeing` queries see one key more each, up to all of them
            seeing = min(self.n_q, self.n_k)
            pairs = seeing * (self.n_k - seeing) + seeing * (seeing + 1) // 2
        return 4 * self.head_dim * pairs * self.heads * self.batch


Account = tuple[dict[str, int], dict[str, int]]  # bytes read, bytes written


def _standard(shape: AttentionShape) -> Account:
    """Six trips: read Q, K; write S; read S; write P; read P, V; write O. Masks, never skips."""
    rows = shape.rows * shape.head_dim * shape.dtype_bytes
    keys = shape.batch * shape.kv_heads * shape.n_k * shape.head_dim * shape.dtype_bytes
    scores = shape.rows * shape.n_k * shape.score_bytes
    return (
        {"Q": rows, "K": keys, "S": scores, "P": scores, "V": keys},
        {"S": scores, "P": scores, "O": rows},
    )


def _standard_tiled(shape: AttentionShape) -> Account:
    """The same trips as three kernels make them: one tile of S for each pair of blocks, so that
    Q is read again for each key block, and K and V for each query block of each query head."""
    rows = shape.rows * shape.head_dim * shape.dtype_bytes
    scores = shape.rows * shape.n_k * shape.score_bytes
    query_blocks = ceil_div(shape.n_q, shape.block_q)
    key_blocks = ceil_div(shape.n_k, shape.block_k)
    keys = shape.batch * shape.heads * shape.n_k * shape.head_dim * shape.dtype_bytes
    read = {
        "Q": rows * key_blocks,
        "K": keys * query_blocks,
        "S": scores,
        "P": scores,
        "V": keys * query_blocks,
    }
    return read, {"S": scores, "P": scores, "O": rows}


def _flash(shape: AttentionShape) -> Account:
    """Q blocks outside: Q and O once; K and V once for each query block that sees them."""
    rows = shape.rows * shape.head_dim * shape.dtype_bytes
    keys_read = sum(
        min(shape.key_blocks(stop) * shape.block_k, shape.n_k) for _, stop in shape.query_blocks()
    )
    keys = shape.batch * shape.heads * keys_read * shape.head_dim * shape.dtype_bytes
    written = {"O": rows}
    if shape.log_sum_exp:
        written["LSE"] = shape.rows * STATISTIC_BYTES
    return {"Q": rows, "K": keys, "V": keys}, written


def _flash1(shape: AttentionShape) -> Account:
    """K and V blocks outside: they are read once, but Q, O and the running sums and maxima pass
    by again for each of them. O, l and m are first written as 0, 0 and -inf."""
    columns = shape.batch * shape.heads * shape.head_dim * shape.dtype_bytes
    statistics = shape.batch * shape.heads * STATISTIC_BYTES
    visits = sum((stop - start) * shape.key_blocks(stop) for start, stop in shape.query_blocks())
    keys = columns * shape.n_k
    read = {"Q": columns * visits, "K": keys, "V": keys, "O": columns * visits}
    written = {"O": columns * (visits + shape.n_q)}
    for name in ("l", "m"):
        read[name] = statistics * visits
        written[name] = statistics * (visits + shape.n_q)
    return read, written


def _decode(shape: AttentionShape) -> Account:
    """One query against a long cache, its keys cut into splits that run side by side.

    The query heads that share a key head are rows of one program, so K and V are read once for
    each *key* head. Every split leaves a partial output and a log-sum-exp behind, in fp32; a
    second kernel reads them and writes O.
    """
    splits = decode_splits(shape.n_k, shape.block_k, shape.splits)[0]
    query = shape.rows * shape.head_dim * shape.dtype_bytes
    keys = shape.batch * shape.kv_heads * shape.n_k * shape.head_dim * shape.dtype_bytes
    partial = {
        "O_partial": shape.rows * splits * shape.head_dim * STATISTIC_BYTES,
        "LSE_partial": shape.rows * splits * STATISTIC_BYTES,
    }
    return {"Q": query * splits, "K": keys, "V": keys, **partial}, {**partial, "O": query}


def decode_splits(n_k: int, block_k: int, splits: int) -> tuple[int, int]:
    """(splits, keys in each): whole blocks of keys, as evenly as they go; none is empty."""
    keys_per_split = ceil_div(ceil_div(n_k, block_k), splits) * block_k
    return ceil_div(n_k, keys_per_split), keys_per_split


ALGORITHMS: dict[str, Callable[[AttentionShape], Account]] = {
    "standard": _standard,
    "standard_tiled": _standard_tiled,
    "flash": _flash,
    "flash1": _flash1,
    "decode": _decode,
}


def attention_traffic(
    algorithm: str,
    *,
    n_q: int,
    n_k: int,
    head_dim: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    block_q: int = 64,
    block_k: int = 64,
    causal: bool = False,
    dtype_bytes: int = 2,
    score_bytes: int | None = None,
    splits: int = 1,
    log_sum_exp: bool = False,
) -> Traffic:
    """Bytes that one attention, forward, requests of HBM.

    Args:
        algorithm: "standard" (each operand of each of the three passes once, as the paper counts:
            4 N^2 + 4 N d elements where all lengths are N; block sizes play no part),
            "standard_tiled" (the same passes as three tiled kernels request them),
            "flash" (FlashAttention-2 order: query blocks outside),
            "flash1" (FlashAttention-1 order: key blocks outside),
            "decode" (one query against a cache, in splits).
        n_q, n_k: queries and keys of each sequence, in tokens.
        heads, kv_heads: query heads, and the key/value heads they share (None: as many).
            "flash", "flash1" and "standard_tiled" run one program for each query head, which asks
            for its keys and values again even where it shares them.
        causal: no query sees a later key, the last being aligned. The flash algorithms skip the
            key blocks that a query block cannot see; the standard ones mask after the fact.
        dtype_bytes: of Q, K, V and O. S and P have `score_bytes` (None: the same). Running
            statistics and partial outputs are fp32.
        splits: for "decode", into how many the keys are cut.
        log_sum_exp: "flash" also writes the log-sum-exp of each row, fp32.

    Raises:
        ValueError: an algorithm that is not there, a number below 1, heads that cannot be shared,
            or "decode" with more than one query.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if algorithm == "decode" and n_q != 1:
        raise ValueError(f"'decode' is for one query a sequence, not {n_q}: use 'flash'")
    shape = AttentionShape(
        n_q=n_q,
        n_k=n_k,
        head_dim=head_dim,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        batch=batch,
        block_q=block_q,
        block_k=block_k,
        causal=causal,
        dtype_bytes=dtype_bytes,
        score_bytes=dtype_bytes if score_bytes is None else score_bytes,
        splits=splits,
        log_sum_exp=log_sum_exp,
    )
    read, written = ALGORITHMS[algorithm](shape)
    return Traffic(
        algorithm,
        {name: size for name, size in read.items() if size},
        {name: size for name, size in written.items() if size},
        shape.flops,
    )


def decoding_traffic(
    *, prompt: int, new_tokens: int, cache: bool, algorithm: str = "flash", **shape: int
) -> Traffic:
    """Attention's bytes over a whole generation of one layer: `new_tokens` forwards.

    With a cache the prompt is fed once, then one query a step against all keys so far. Without,
    every step feeds everything again. Written "K" and "V" are what the projections leave for
    attention to read: one row a step with a cache, all rows without.

    Args:
        prompt, new_tokens: in tokens.
        shape: head_dim and any other option of `attention_traffic` but n_q, n_k and causal.
    """
    if prompt < 1 or new_tokens < 1:
        raise ValueError(f"prompt and new_tokens must be above 0, not {prompt} and {new_tokens}")
    read, written, flops = Counter(), Counter(), 0
    for step in range(new_tokens):
        keys = prompt + step
        queries = 1 if cache and step else keys
        traffic = attention_traffic(algorithm, n_q=queries, n_k=keys, causal=True, **shape)
        read.update(traffic.read)
        written.update(traffic.written)
        flops += traffic.flops
        projected = _key_bytes(queries, **shape)
        written.update({"K": projected, "V": projected})
    name = f"{algorithm}, {'with' if cache else 'without'} a cache"
    return Traffic(name, dict(read), dict(written), flops)


def _key_bytes(
    length: int,
    *,
    head_dim: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    dtype_bytes: int = 2,
    **_: int,
) -> int:
    return batch * (kv_heads or heads) * length * head_dim * dtype_bytes


def asymptotic_elements(algorithm: str, *, n: int, head_dim: int, sram_elements: int) -> float:
    """What the count tends to as n grows, in elements and without its constant factor.

    "standard": N d + N^2.  "flash", "flash1": N^2 d^2 / M, for d <= M <= N d, M being the SRAM in
    elements. Source: Dao et al. 2022, theorem 2.
    """
    if algorithm == "standard":
        return float(n * head_dim + n**2)
    if algorithm not in ("flash", "flash1"):
        raise ValueError(f"no asymptotic form for {algorithm!r}; there are standard, flash, flash1")
    if not head_dim <= sram_elements <= n * head_dim:
        raise ValueError(
            f"the form holds for d <= M <= N d: {head_dim} <= M <= {n * head_dim}, "
            f"not M = {sram_elements}"
        )
    return n**2 * head_dim**2 / sram_elements
