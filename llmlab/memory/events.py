"""What moved between HBM and the chip, one event for each tile: the record that every account of
bytes in this book is read from, whether a tile machine kept it or a traced Triton kernel."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

Tile = tuple[tuple[int, int], ...]  # (start, stop) for each dimension

KINDS = ("load", "store")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in HBM: what an event's tile is a part of."""

    name: str
    shape: tuple[int, ...]
    dtype_bytes: int

    @property
    def nbytes(self) -> int:
        size = self.dtype_bytes
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True, slots=True)
class Event:
    """One tile on its way from HBM (a load) or to HBM (a store)."""

    step: int  # order of execution, from 0
    launch: int  # which kernel: all of one is done before the next begins
    program: tuple[int, ...]  # which program of the grid asked; () where there is no grid
    kind: str  # "load" or "store"
    tensor: str
    tile: Tile  # the smallest box around what was touched
    bytes: int  # exactly what was moved; masked lanes move nothing


@dataclass
class Trace:
    """The events of one run, in order, and the tensors that they speak of."""

    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    launch: int = 0  # of the events that are recorded now

    def record(
        self, program: tuple[int, ...], kind: str, tensor: str, tile: Tile, size: int
    ) -> None:
        """Add one event of `size` bytes at the end."""
        step = len(self.events)
        self.events.append(Event(step, self.launch, program, kind, tensor, tile, size))

    def bytes(self, tensor: str | None = None, kind: str | None = None) -> int:
        """Bytes moved, of one tensor and one kind of event or of all.

        Raises ValueError for a tensor that the trace does not know or a kind that there is not.
        """
        if kind is not None and kind not in KINDS:
            raise ValueError(f"kind must be 'load' or 'store', not {kind!r}")
        if tensor is not None and tensor not in self.tensors:
            raise ValueError(f"no tensor {tensor!r} in this trace; there are {list(self.tensors)}")
        return sum(
            event.bytes
            for event in self.events
            if tensor in (None, event.tensor) and kind in (None, event.kind)
        )

    @property
    def read(self) -> dict[str, int]:
        """Bytes loaded, by tensor."""
        return self._by_tensor("load")

    @property
    def written(self) -> dict[str, int]:
        """Bytes stored, by tensor."""
        return self._by_tensor("store")

    @property
    def total(self) -> int:
        return self.bytes()

    def _by_tensor(self, kind: str) -> dict[str, int]:
        moved: Counter[str] = Counter()
        for event in self.events:
            if event.kind == kind:
                moved[event.tensor] += event.bytes
        return {name: size for name, size in moved.items() if size}

    def programs(self) -> list[tuple[int, tuple[int, ...]]]:
        """(launch, program) of those that moved something, in the order in which they began."""
        return list(dict.fromkeys((event.launch, event.program) for event in self.events))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)
