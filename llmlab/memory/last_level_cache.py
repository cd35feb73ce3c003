"""From requested bytes to DRAM bytes: a trace replayed through a cache.

Between a GPU's cores and its HBM lies a cache (50 MB of L2 on an H100). Programs that run at the
same time often ask for the same tiles; only the first of them is answered by HBM. So the bytes that
a kernel requests, which the ledger counts, and those that reach the memory chips are different
numbers. This model knows nothing of sectors, slices or hashing: a cache of whole lines, the least
recently used of which makes room (LRU), and which writes changed lines back when they leave.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from llmlab.memory.events import Event, TensorInfo, Tile, Trace

LINE_BYTES = 128
TILES_KEPT = 2048  # whose lines need not be worked out again: the same keys are asked for often

Line = tuple[str, int]  # a tensor's name, and which of its lines


@dataclass(frozen=True)
class CacheReport:
    """What a cache made of a trace. All in bytes."""

    requested_read: int
    requested_written: int
    dram_read: int
    dram_written: int

    @property
    def dram(self) -> int:
        return self.dram_read + self.dram_written

    @property
    def requested(self) -> int:
        return self.requested_read + self.requested_written

    @property
    def share_from_cache(self) -> float:
        """The part of the requested bytes that never reached DRAM; can be below 0 where lines are
        fetched for the sake of a few bytes."""
        return 1 - self.dram / self.requested if self.requested else 0.0


def replay(
    trace: Trace, *, cache_bytes: int, programs_in_flight: int = 1, line_bytes: int = LINE_BYTES
) -> CacheReport:
    """What reaches DRAM when the events of a trace pass through an LRU cache.

    Args:
        cache_bytes: how much it holds; 0 for none, where every line touched is moved.
        programs_in_flight: how many programs of a kernel run side by side. They take turns, one
            event each; when one ends, the next in the order of the trace begins. A kernel begins
            when the one before it is done.
        line_bytes: the unit of caching. A line that is written as a whole is not fetched first.

    Each tensor begins at a line of its own, contiguous. At the end changed lines are written back.

    Raises ValueError for numbers below 0, and where nothing may be in flight.
    """
    if cache_bytes < 0 or programs_in_flight < 1 or line_bytes < 1:
        raise ValueError(
            "cache_bytes must not be below 0, programs_in_flight and line_bytes must be above 0; "
            f"got {cache_bytes}, {programs_in_flight} and {line_bytes}"
        )

    @lru_cache(maxsize=TILES_KEPT)
    def lines_of(tensor: str, tile: Tile) -> list[tuple[Line, bool]]:
        return list(_lines(tile, trace.tensors[tensor], line_bytes))

    cache = _LRU(cache_bytes // line_bytes)
    requested = {"load": 0, "store": 0}
    for event in _in_flight(trace, programs_in_flight):
        requested[event.kind] += event.bytes
        changed = event.kind == "store"
        for line, whole in lines_of(event.tensor, event.tile):
            cache.touch(line, changed, whole)
    cache.write_back_all()
    return CacheReport(
        requested["load"],
        requested["store"],
        cache.lines_fetched * line_bytes,
        cache.lines_written * line_bytes,
    )


class _LRU:
    """Lines in the order of their last use, each with whether it was changed."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.lines_fetched = self.lines_written = 0
        self._lines: OrderedDict[Line, bool] = OrderedDict()

    def touch(self, line: Line, changed: bool, whole: bool) -> None:
        if line in self._lines:
            self._lines.move_to_end(line)
            if changed:
                self._lines[line] = True
            return
        if not (changed and whole):
            self.lines_fetched += 1
        self._lines[line] = changed
        if len(self._lines) > self.capacity:
            _, was_changed = self._lines.popitem(last=False)
            self.lines_written += was_changed

    def write_back_all(self) -> None:
        self.lines_written += sum(self._lines.values())
        self._lines.clear()


def _in_flight(trace: Trace, count: int) -> Iterator[Event]:
    """The events as `count` programs at a time would bring them."""
    for _, launch in groupby(trace.events, key=lambda event: event.launch):
        waiting = iter([list(events) for _, events in groupby(launch, lambda e: e.program)])
        running = [iter(events) for _, events in zip(range(count), waiting, strict=False)]
        while running:
            still_running = []
            for program in running:
                event = next(program, None)
                if event is None:
                    successor = next(waiting, None)
                    if successor is None:
                        continue
                    program = iter(successor)
                    event = next(program)
                still_running.append(program)
                yield event
            running = still_running


def _lines(tile: Tile, info: TensorInfo, line_bytes: int) -> Iterator[tuple[Line, bool]]:
    """The lines that a tile touches, and whether it covers the whole of each."""
    end = info.nbytes
    for first, last in _runs(tile, info.shape, info.dtype_bytes):  # bytes, `last` excluded
        for line in range(first // line_bytes, (last - 1) // line_bytes + 1):
            start, stop = line * line_bytes, (line + 1) * line_bytes
            yield (info.name, line), first <= start and min(stop, end) <= last


def _runs(tile, shape: tuple[int, ...], dtype_bytes: int) -> Iterator[tuple[int, int]]:
    """A tile as runs of consecutive bytes: rows, or many rows where it spans whole ones."""
    tile, shape = list(tile), list(shape)
    run = 1  # elements below the axis that is looked at, all of which are in the tile
    while len(tile) > 1 and tile[-1] == (0, shape[-1]):
        run *= shape.pop()
        tile.pop()
    if not tile:
        yield 0, dtype_bytes
        return
    start, stop = tile.pop()
    length = shape.pop()
    offsets = [0]
    for (low, high), size in zip(tile, shape, strict=True):
        offsets = [offset * size + index for offset in offsets for index in range(low, high)]
    for offset in offsets:
        base = offset * length
        yield (base + start) * run * dtype_bytes, (base + stop) * run * dtype_bytes
