"""One forward for many sequences: their new tokens end to end, each attending to its own past."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from llmlab.attention import sliding_window_mask
from llmlab.cache.paged import BlockStorage


@dataclass(frozen=True)
class Span:
    """The part of one sequence that a forward computes: `count` tokens after `past` others."""

    block_table: Sequence[int]
    past: int
    count: int


class MixedBatch:
    """Where the new tokens of a forward stand, and which keys and values each may see.

    A projection, a norm or an MLP treats every token alike, so for these the tokens of all
    sequences are one row [1, N] without padding. Only attention must know where one sequence ends
    and the next begins. Those with one new token (decodes) are attended to together, padded to the
    longest past; those with several (prompts, or chunks of them) one after another.

    Source: Yu et al. 2022 (Orca), section 3.2, "selective batching".

    Args:
        storage: the blocks. Every block table must have blocks for past + count positions.
        spans: those with a single new token first, so that the tokens of a group are neighbours.

    Raises ValueError where a table is too short, a count is below 1, or the order is another.
    """

    def __init__(self, storage: BlockStorage, spans: Sequence[Span]):
        _check_spans(spans, storage.block_size)
        self.storage = storage
        device = storage.device
        decodes = [span for span in spans if span.count == 1]
        self._decodes = len(decodes)
        self._chunks = spans[self._decodes :]
        size = storage.block_size
        positions = [torch.tensor([span.past for span in decodes], device=device)]
        blocks = [torch.tensor([s.block_table[s.past // size] for s in decodes], device=device)]
        for span in self._chunks:
            positions.append(torch.arange(span.past, span.past + span.count, device=device))
            blocks.append(storage.slots(span.block_table, positions[-1])[0])
        self.position_ids = torch.cat(positions).long()  # [N]
        self._slots = torch.cat(blocks).long(), self.position_ids % size  # each [N]
        if decodes:
            self._prepare_decodes(decodes)
        tables = [torch.tensor(span.block_table, device=device) for span in self._chunks]
        self._chunk_tables = [table[None] for table in tables]  # each [1, blocks]

    @property
    def last_tokens(self) -> Int[Tensor, "sequences"]:
        """The place of each sequence's last new token among the N."""
        counts = [1] * self._decodes + [span.count for span in self._chunks]
        return torch.tensor(counts, device=self.storage.device).cumsum(0) - 1

    def _prepare_decodes(self, decodes: Sequence[Span]) -> None:
        self._length = max(span.past for span in decodes) + 1
        blocks = -(-self._length // self.storage.block_size)
        tables = [[*s.block_table[:blocks], *[0] * (blocks - len(s.block_table))] for s in decodes]
        self._tables = torch.tensor(tables, device=self.storage.device)  # [B, blocks]
        last = self.position_ids[: self._decodes, None]  # [B, 1]
        keys = torch.arange(self._length, device=self.storage.device)  # [S]
        seen = keys <= last  # [B, S]
        # One mask for each width of window; None where every key may be seen.
        self._masks: dict[int | None, Bool[Tensor, "B 1 1 S"] | None] = {}
        for window in set(self.storage.windows):
            mask = seen if window is None else seen & (keys > last - window)
            self._masks[window] = None if bool(mask.all()) else mask[:, None, None]

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 H N D"],
        key: Float[Tensor, "1 Hkv N D"],
        value: Float[Tensor, "1 Hkv N D"],
        attention: Callable[..., Tensor],
    ) -> Float[Tensor, "1 H N D"]:
        """Stores the new keys and values, then lets each token attend to its own sequence."""
        self.storage.write(layer, self._slots, key[0], value[0])
        mixed = []
        if self._decodes:
            mixed.append(self._attend_decodes(layer, query[:, :, : self._decodes], attention))
        start = self._decodes
        for span, table in zip(self._chunks, self._chunk_tables, strict=True):
            end = start + span.count
            keys, values = self.storage.read(layer, table, span.past + span.count)
            window, mask = self.storage.windows[layer], None
            if window is not None and window < span.past + span.count:
                mask = sliding_window_mask(
                    span.count, span.past + span.count, window, device=query.device
                )
            part = query[:, :, start:end]  # [1, H, T, D]
            mixed.append(attention(part, keys, values, causal=True, mask=mask))
            start = end
        return torch.cat(mixed, dim=2)  # [1, H, N, D]

    def _attend_decodes(
        self, layer: int, query: Float[Tensor, "1 H B D"], attention: Callable[..., Tensor]
    ) -> Float[Tensor, "1 H B D"]:
        keys, values = self.storage.read(layer, self._tables, self._length)  # [B, Hkv, S, D]
        # Query heads that share a key head are so many queries with the same keys.
        rows = query[0].transpose(0, 1).unflatten(1, (keys.shape[1], -1))  # [B, Hkv, group, D]
        mask = self._masks[self.storage.windows[layer]]
        mixed = attention(rows, keys, values, causal=False, mask=mask)  # [B, Hkv, group, D]
        return mixed.flatten(1, 2).transpose(0, 1)[None]  # [1, H, B, D]


def _check_spans(spans: Sequence[Span], block_size: int) -> None:
    if not spans:
        raise ValueError("a batch needs at least one sequence")
    counts = [span.count for span in spans]
    if min(counts) < 1 or min(span.past for span in spans) < 0:
        raise ValueError("every sequence needs a past of 0 or more and at least 1 new token")
    decodes = counts.count(1)
    if counts[:decodes] != [1] * decodes:
        raise ValueError("sequences with one new token must come first")
    for span in spans:
        if len(span.block_table) * block_size < span.past + span.count:
            raise ValueError(
                f"{len(span.block_table)} blocks of {block_size} cannot hold {span.past} + "
                f"{span.count} positions: allocate blocks first"
            )
