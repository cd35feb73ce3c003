"""What a Triton kernel really asks of memory: every load and store that its interpreter runs.

All of them, masked, unmasked or by descriptor, pass through two functions of the interpreter.
While a trace is recorded these are replaced by ones that also write down what passes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from llmlab.memory.events import TensorInfo, Tile, Trace


def trace_kernel(
    run: Callable[[], Any], tensors: Mapping[str, Tensor] | None = None, **named: Tensor
) -> Trace:
    """The trace of the Triton kernels that `run()` launches: `trace_kernel(run, Q=q, O=o)`.

    Tensors are recognised by their addresses. Those that are given go by their names here, any
    other argument of a kernel by the name of its parameter. Bytes are exact: lanes that are masked
    off move nothing. A tile is the smallest box around what was touched.

    Raises:
        RuntimeError: kernels here run on a GPU, where nothing can watch them (set
            TRITON_INTERPRET=1 before Python starts); or a trace is being recorded already.
    """
    with record_trace(**(dict(tensors or {}) | named)) as trace:
        run()
    return trace


@contextmanager
def record_trace(**tensors: Tensor) -> Iterator[Trace]:
    """As `trace_kernel`, for the kernels launched inside a `with` block."""
    import triton

    if not triton.knobs.runtime.interpret:
        raise RuntimeError(
            "kernels are compiled here, and nothing can watch a GPU's loads and stores. "
            "Set the environment variable TRITON_INTERPRET=1 before Python starts."
        )
    from triton.runtime.interpreter import GridExecutor, interpreter_builder

    if "create_masked_load" in vars(interpreter_builder):
        raise RuntimeError("a trace is being recorded already: one cannot begin inside another")
    recorder = Recorder(Trace())
    for name, tensor in tensors.items():
        recorder.register(name, tensor)
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store
    prepare = GridExecutor._init_args_hst

    def watched_load(pointers, mask, *rest, **options):
        recorder.record("load", interpreter_builder.grid_idx, pointers.data, mask.data)
        return load(pointers, mask, *rest, **options)

    def watched_store(pointers, value, mask, *rest, **options):
        recorder.record("store", interpreter_builder.grid_idx, pointers.data, mask.data)
        return store(pointers, value, mask, *rest, **options)

    def watched_prepare(executor, arguments, options):
        on_host, named_on_host = prepare(executor, arguments, options)
        names = dict(zip(executor.arg_names, on_host, strict=False)) | named_on_host
        recorder.begin_kernel(names)
        return on_host, named_on_host

    interpreter_builder.create_masked_load = watched_load
    interpreter_builder.create_masked_store = watched_store
    GridExecutor._init_args_hst = watched_prepare
    try:
        yield recorder.trace
    finally:
        del interpreter_builder.create_masked_load, interpreter_builder.create_masked_store
        GridExecutor._init_args_hst = prepare


@dataclass(frozen=True)
class Region:
    """Where a tensor lies. Holding the tensor keeps its address from being given to another."""

    name: str
    tensor: Tensor
    first: int  # address of its first byte
    last: int  # address of the first byte of its last element

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "Region":
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        reach = sum((size - 1) * stride for size, stride in steps)
        first = tensor.data_ptr()
        return cls(name, tensor, first, first + reach * tensor.element_size())

    def tile(self, low: int, high: int) -> Tile | None:
        """The box between two addresses; None if they are not elements of this tensor."""
        if not self.first <= low <= high <= self.last:
            return None
        starts, stops = self._index(low), self._index(high)
        if starts is None or stops is None:
            return None
        return tuple((a, b + 1) for a, b in zip(starts, stops, strict=True))

    def _index(self, address: int) -> list[int] | None:
        """Which element lies at an address: the largest stride is taken out first."""
        rest, remainder = divmod(address - self.first, self.tensor.element_size())
        strides, shape = self.tensor.stride(), self.tensor.shape
        index = [0] * len(shape)
        for axis in sorted(range(len(shape)), key=lambda a: -strides[a]):
            if shape[axis] > 1 and strides[axis] > 0:
                index[axis], rest = divmod(rest, strides[axis])
                if index[axis] >= shape[axis]:
                    return None
        return None if rest or remainder else index


class Recorder:
    """Turns address arrays into events."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self._regions: list[Region] = []
        self._launches = 0

    def register(self, name: str, tensor: Tensor) -> None:
        """From now on this tensor goes by this name."""
        taken = self.trace.tensors.get(name)
        while taken is not None:  # another kernel's parameter of the same name
            name += "'"
            taken = self.trace.tensors.get(name)
        self._regions.append(Region.of(name, tensor))
        info = TensorInfo(name, tuple(tensor.shape), tensor.element_size())
        self.trace.tensors[name] = info

    def begin_kernel(self, arguments: Mapping[str, Any]) -> None:
        """A launch: tensors that nobody has named go by the names of the kernel's parameters."""
        self.trace.launch = self._launches
        self._launches += 1
        known = {region.first for region in self._regions}
        for name, argument in arguments.items():
            is_new = isinstance(argument, Tensor) and argument.data_ptr() not in known
            if is_new and argument.numel():
                self.register(name, argument)
                known.add(argument.data_ptr())

    def record(
        self, kind: str, program: tuple[int, ...], addresses: np.ndarray, mask: np.ndarray
    ) -> None:
        """One load or store of many lanes."""
        lanes = addresses[np.broadcast_to(mask, addresses.shape)]
        if not lanes.size:
            return
        low, high = int(lanes.min()), int(lanes.max())
        for region in self._regions:
            tile = region.tile(low, high)
            if tile is not None:
                size = lanes.size * region.tensor.element_size()
                self.trace.record(tuple(map(int, program)), kind, region.name, tile, size)
                return
        raise RuntimeError(
            f"a kernel's {kind} touches addresses {low:#x} to {high:#x}, which belong to none of "
            f"the tensors {list(self.trace.tensors)}: name the tensor when the trace begins, or "
            "look for a missing mask"
        )
