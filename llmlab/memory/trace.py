"""What a Triton kernel really asks of memory: every load and store that its interpreter runs.

All of them, masked, unmasked or by descriptor, pass through two functions of the interpreter.
While a trace is recorded these are replaced by ones that also write down what passes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from llmlab.memory.events import TensorInfo, Tile, Trace


def trace_kernel(
    run: Callable[[], Any],
    tensors: Mapping[str, Tensor] | None = None,
    *,
    unknown: str = "error",
    **named: Tensor,
) -> Trace:
    """The trace of the Triton kernels that `run()` launches: `trace_kernel(run, Q=q, O=o)`.

    Tensors are recognised by their addresses. Those that are given go by their names here, any
    other argument of a kernel by the name of its parameter. Bytes are exact: lanes that are masked
    off move nothing. A tile is the smallest box around what was touched.

    Addresses that belong to no tensor stop the kernel: Triton raises an InterpreterError that says
    so. With `unknown="ignore"` they are left out of the trace.

    Raises:
        RuntimeError: kernels here run on a GPU, where nothing can watch them (set
            TRITON_INTERPRET=1 before Python starts); or a trace is being recorded already.
        ValueError: `unknown` is neither "error" nor "ignore".
    """
    with record_trace(unknown=unknown, **(dict(tensors or {}) | named)) as trace:
        run()
    return trace


@contextmanager
def record_trace(*, unknown: str = "error", **tensors: Tensor) -> Iterator[Trace]:
    """As `trace_kernel`, for the kernels launched inside a `with` block."""
    if unknown not in ("error", "ignore"):
        raise ValueError(f'unknown must be "error" or "ignore", not {unknown!r}')
    import triton

    if not triton.knobs.runtime.interpret:
        raise RuntimeError(
            "kernels are compiled here, and nothing can watch a GPU's loads and stores. "
            "Set the environment variable TRITON_INTERPRET=1 before Python starts."
        )
    from triton.runtime.interpreter import GridExecutor, interpreter_builder

    if "create_masked_load" in vars(interpreter_builder):
        raise RuntimeError("a trace is being recorded already: one cannot begin inside another")
    recorder = Recorder(Trace(), ignore_unknown=unknown == "ignore")
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
        given = dict(zip(executor.arg_names, arguments, strict=False)) | options
        seen = dict(zip(executor.arg_names, on_host, strict=False)) | named_on_host
        recorder.begin_kernel(given, seen)
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

    def tile(self, addresses: Any) -> Tile | None:
        """The smallest box around these elements; None if not all are of this tensor.

        What is left of an address is divided by one stride after the other, the largest first.
        """
        if not self.first <= addresses.min() <= addresses.max() <= self.last:
            return None
        size, strides, shape = self.tensor.element_size(), self.tensor.stride(), self.tensor.shape
        rest = addresses.astype("int64") - self.first
        box = [(0, 1)] * len(shape)
        for axis in sorted(range(len(shape)), key=lambda a: -strides[a]):
            if shape[axis] > 1 and strides[axis] > 0:
                index, rest = divmod(rest, strides[axis] * size)
                box[axis] = (int(index.min()), int(index.max()) + 1)
        inside = all(stop <= length for (_, stop), length in zip(box, shape, strict=True))
        return tuple(box) if inside and not rest.any() else None


class Recorder:
    """Turns address arrays into events."""

    def __init__(self, trace: Trace, *, ignore_unknown: bool = False):
        self.trace = trace
        self._ignore_unknown = ignore_unknown
        self._regions: list[Region] = []
        self._copies: list[Region] = []
        self._launches = 0

    def register(self, name: str, tensor: Tensor) -> str:
        """From now on this tensor goes by this name, or by the one returned if it is taken."""
        taken = self.trace.tensors.get(name)
        while taken is not None:  # another kernel's parameter of the same name
            name += "'"
            taken = self.trace.tensors.get(name)
        self._regions.append(Region.of(name, tensor))
        info = TensorInfo(name, tuple(tensor.shape), tensor.element_size())
        self.trace.tensors[name] = info
        return name

    def begin_kernel(self, given: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        """A launch: tensors that nobody has named go by the names of the kernel's parameters.

        Of an argument that lies on a GPU, the interpreter sees a copy, which has the same name.
        """
        self.trace.launch = self._launches
        self._launches += 1
        self._copies = []  # of the launch before
        names = {region.first: region.name for region in self._regions}
        originals, copies = _tensors_in(given), _tensors_in(seen)
        for name, original in originals.items():
            address, copy = original.data_ptr(), copies[name]
            if not original.numel():
                continue
            if address not in names:
                names[address] = self.register(name, original)
            if copy.data_ptr() != address:
                self._copies.append(Region.of(names[address], copy))

    def record(self, kind: str, program: tuple[int, ...], addresses: Any, mask: Any) -> None:
        """One load or store of many lanes: their addresses, and which of them are not masked."""
        lanes = addresses[mask]
        if not lanes.size:
            return
        for region in (*self._copies, *self._regions):
            tile = region.tile(lanes)
            if tile is not None:
                size = lanes.size * region.tensor.element_size()
                self.trace.record(tuple(map(int, program)), kind, region.name, tile, size)
                return
        if self._ignore_unknown:
            return
        raise RuntimeError(
            f"a kernel's {kind} touches addresses {lanes.min():#x} to {lanes.max():#x}, which "
            f"belong to none of the tensors {list(self.trace.tensors)}: name the tensor when the "
            "trace begins, or look for a missing mask"
        )


def _tensors_in(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """A kernel's tensors: its arguments, parts of a tuple (`name[0]`), or behind a descriptor."""
    found: dict[str, Tensor] = {}
    for name, argument in arguments.items():
        if isinstance(argument, tuple):
            found |= _tensors_in({f"{name}[{i}]": part for i, part in enumerate(argument)})
        argument = getattr(argument, "base", argument)  # of a TensorDescriptor
        if isinstance(argument, Tensor):
            found[name] = argument
    return found
