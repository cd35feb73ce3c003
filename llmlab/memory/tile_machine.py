"""A machine with two places: HBM, large and far, and SRAM, small and near.

Nothing can be computed on in HBM. A tile must be loaded into SRAM, where it takes up room until it
is freed; results are stored back. Every move is written down in a trace, to the byte.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from llmlab.memory.events import TensorInfo, Trace

TileSlices = Sequence[slice | int]


class SRAMOverflowError(MemoryError):
    """A tile does not fit beside what SRAM already holds."""


@dataclass(eq=False)
class SRAMTile:
    """Numbers in SRAM. Compute on `.data`; what you keep must be allocated too."""

    name: str
    data: Tensor
    nbytes: int


class TileMachine:
    """HBM without bounds and `sram_bytes` of SRAM.

    >>> machine = TileMachine(sram_bytes=1024)
    >>> machine.place("Q", torch.ones(128, 4))          # into HBM: no traffic, it was always there
    >>> tile = machine.load("Q", slice(0, 32))          # 32 rows of 4 fp32: 512 bytes
    >>> machine.store("Q", slice(0, 32), tile.data * 2)
    >>> machine.free(tile)
    >>> machine.trace.total, machine.peak_sram_bytes
    (1024, 512)

    Raises ValueError for a budget that is not positive.
    """

    def __init__(self, sram_bytes: int):
        if sram_bytes <= 0:
            raise ValueError(f"sram_bytes must be above 0, not {sram_bytes}")
        self.sram_bytes = sram_bytes
        self.peak_sram_bytes = 0
        self.trace = Trace()
        self._hbm: dict[str, Tensor] = {}
        self._tiles: list[SRAMTile] = []
        self._program: tuple[int, ...] = ()

    @property
    def used_sram_bytes(self) -> int:
        """Bytes that the live tiles take up."""
        return sum(tile.nbytes for tile in self._tiles)

    @property
    def held(self) -> tuple[SRAMTile, ...]:
        """The tiles that are in SRAM now, the oldest first."""
        return tuple(self._tiles)

    def place(self, name: str, tensor: Tensor) -> None:
        """Put a copy of a tensor into HBM under a name. Moves nothing.

        Raises ValueError where the name is taken.
        """
        if name in self._hbm:
            raise ValueError(f"HBM already holds a tensor named {name!r}")
        self._hbm[name] = tensor.detach().clone()
        self.trace.tensors[name] = TensorInfo(name, tuple(tensor.shape), tensor.element_size())

    def result(self, name: str) -> Tensor:
        """A copy of what HBM holds under a name, to look at when the work is done."""
        return self._tensor(name).clone()

    def load(self, name: str, *where: slice | int) -> SRAMTile:
        """Copy the part `where` of a tensor into SRAM: load("K", slice(0, 64)) is 64 rows of K.

        An index picks one row and drops the dimension, as in PyTorch; slices past the end are cut.

        Raises SRAMOverflowError where it does not fit, ValueError for an empty part.
        """
        data = self._part(name, where)
        tile = self._keep(name, data.clone())
        self.trace.record(self._program, "load", name, self._box(name, where), tile.nbytes)
        return tile

    def allocate(self, name: str, data: Tensor) -> SRAMTile:
        """Take room in SRAM for something computed there, such as running sums.

        Raises SRAMOverflowError where it does not fit.
        """
        return self._keep(name, data)

    def store(self, name: str, *where_and_data: slice | int | Tensor | SRAMTile) -> None:
        """Write numbers to the part of a tensor in HBM: store("O", slice(0, 64), tile).

        They are converted to the tensor's dtype on the way. The tile stays in SRAM.

        Raises ValueError where the shapes differ.
        """
        *where, data = where_and_data
        values = data.data if isinstance(data, SRAMTile) else data
        part = self._part(name, where)
        if part.shape != values.shape:
            raise ValueError(
                f"cannot store {list(values.shape)} into a part of {name} with the shape "
                f"{list(part.shape)}"
            )
        part.copy_(values)
        size = part.numel() * part.element_size()
        self.trace.record(self._program, "store", name, self._box(name, where), size)

    def free(self, *tiles: SRAMTile) -> None:
        """Give room in SRAM back. Raises ValueError for a tile that is not there (any more)."""
        for tile in tiles:
            if tile not in self._tiles:
                raise ValueError(f"the tile of {tile.name} is not in SRAM: freed twice?")
            self._tiles.remove(tile)

    @contextmanager
    def program(self, *index: int) -> Iterator[None]:
        """Events inside belong to the program with this index; its tiles are freed at the end."""
        held, before = list(self._tiles), self._program
        self._program = index
        try:
            yield
        finally:
            self._tiles, self._program = held, before

    def next_kernel(self) -> None:
        """What follows begins when all programs so far are done, as a kernel of its own."""
        self.trace.launch += 1

    def _tensor(self, name: str) -> Tensor:
        if name not in self._hbm:
            raise ValueError(f"HBM holds no tensor {name!r}; there are {list(self._hbm)}")
        return self._hbm[name]

    def _part(self, name: str, where: TileSlices) -> Tensor:
        part = self._tensor(name)[tuple(where)]
        if part.numel() == 0:
            raise ValueError(f"that part of {name} {list(self._tensor(name).shape)} is empty")
        return part

    def _keep(self, name: str, data: Tensor) -> SRAMTile:
        tile = SRAMTile(name, data, data.numel() * data.element_size())
        needed = self.used_sram_bytes + tile.nbytes
        if needed > self.sram_bytes:
            held = ", ".join(f"{other.name} {other.nbytes:,}" for other in self._tiles) or "nothing"
            raise SRAMOverflowError(
                f"a tile of {name} {list(data.shape)} needs {tile.nbytes:,} bytes of SRAM, "
                f"{needed - self.sram_bytes:,} more than are left of {self.sram_bytes:,}. "
                f"SRAM holds: {held}. Free a tile, or use smaller blocks."
            )
        self._tiles.append(tile)
        self.peak_sram_bytes = max(self.peak_sram_bytes, needed)
        return tile

    def _box(self, name: str, where: TileSlices) -> tuple[tuple[int, int], ...]:
        """The part as (start, stop) for every dimension of the tensor."""
        shape = self._tensor(name).shape
        box = []
        for axis, length in enumerate(shape):
            index = where[axis] if axis < len(where) else slice(None)
            if isinstance(index, int):
                index = index % length
                box.append((index, index + 1))
            else:
                start, stop, step = index.indices(length)
                if step != 1:
                    raise ValueError(f"tiles are whole: no step of {step}")
                box.append((start, stop))
        return tuple(box)


__all__ = ["SRAMOverflowError", "SRAMTile", "TileMachine"]
