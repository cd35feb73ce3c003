"""`llmlab bench flash`: attention, checked and timed, and how far each is from what is possible.

Every figure is of one forward. FLOPs are those of the visible pairs of query and key: 4 N^2 d a
head, about half of it if causal (the convention of FlashAttention-2). The roofline is the larger of
FLOPs over the peak and bytes over the bandwidth, the bytes being Q, K, V and O once.
"""

import csv
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from llmlab.attention import (
    flash_attention,
    naive_triton_attention,
    reference_attention,
    sdpa_attention,
    tiled_attention,
)
from llmlab.attention.triton_runtime import triton_available
from llmlab.memory.hardware import Hardware, measure_cpu, this_gpu
from llmlab.memory.ledger import attention_traffic
from llmlab.memory.roofline import predict

try:
    from tqdm import tqdm
except ImportError:  # see standalone.py
    tqdm = None

WIDTH = 2048  # heads x head dimension, as in the benchmark of FlashAttention-2
TOKENS = 16_384  # batch x N on a GPU
SQUARES = 5  # N x N matrices that a plain implementation may hold at a time


@dataclass(frozen=True)
class Case:
    n: int
    head_dim: int
    causal: bool
    dtype: str
    batch: int
    heads: int

    def inputs(self, device: str) -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        shape = (3, self.batch, self.heads, self.n, self.head_dim)
        dtype = getattr(torch, self.dtype)
        return list(torch.randn(shape, generator=generator, device=device).to(dtype).unbind(0))

    def traffic(self, algorithm: str):
        return attention_traffic(
            algorithm,
            n_q=self.n,
            n_k=self.n,
            head_dim=self.head_dim,
            heads=self.heads,
            batch=self.batch,
            causal=self.causal,
            dtype_bytes=getattr(torch, self.dtype).itemsize,
            block_q=self.n,  # every operand once
            block_k=self.n,
        )


@dataclass(frozen=True)
class Measurement:
    """One line of the table. Errors are relative to the largest output, against float64."""

    attention: str
    n: int
    head_dim: int
    causal: bool
    dtype: str
    milliseconds: float
    tflops: float
    gigabytes_per_second: float  # bytes that the algorithm must move, over the time
    roofline_share: float
    peak_megabytes: float  # memory beyond the inputs; nan where it cannot be measured
    error: float


def naive_pytorch(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Three operations in the inputs' dtype, S and P in memory, as it is often written."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5  # [B, H, T, S]
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores.masked_fill_(later, -math.inf)
    return scores.softmax(-1) @ v


def _sdpa_backend(backend: str, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


#: name: (function, the algorithm of the ledger whose bytes it must move)
GPU_CONTENDERS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "naive PyTorch": (naive_pytorch, "standard"),
    "naive Triton": (naive_triton_attention, "standard"),
    "flash Triton": (flash_attention, "flash"),
    "SDPA flash": (partial(_sdpa_backend, "FLASH_ATTENTION"), "flash"),
    "SDPA efficient": (partial(_sdpa_backend, "EFFICIENT_ATTENTION"), "flash"),
    "SDPA cuDNN": (partial(_sdpa_backend, "CUDNN_ATTENTION"), "flash"),
    "SDPA math": (partial(_sdpa_backend, "MATH"), "standard"),
}
CPU_CONTENDERS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "reference": (reference_attention, "standard"),
    "tiled": (partial(tiled_attention, block_q=256, block_k=256), "flash"),
    "SDPA": (sdpa_attention, "flash"),
}


def cases(*, gpu: bool, quick: bool) -> list[Case]:
    """What is measured: on a GPU N = 512 to 16,384, on a CPU what takes seconds."""
    if gpu:
        lengths = (512, 2048) if quick else (512, 1024, 2048, 4096, 8192, 16_384)
        choices = itertools.product(("float16", "bfloat16"), (64, 128), (False, True), lengths)
        return [
            Case(n, d, causal, dtype, max(TOKENS // n, 1), WIDTH // d)
            for dtype, d, causal, n in choices
        ]
    lengths = (128, 256) if quick else (512, 1024, 2048, 4096, 8192)
    choices = itertools.product((64, 128), (False, True), lengths)
    return [Case(n, d, causal, "float32", 1, 128 // d) for d, causal, n in choices]


def measure(
    name: str, case: Case, machine: Hardware, *, tries: int, exact: Tensor
) -> Measurement | str:
    """A contender on a case; a line of text that says why there is no measurement."""
    on_gpu = torch.cuda.is_available()
    function, algorithm = (GPU_CONTENDERS if on_gpu else CPU_CONTENDERS)[name]
    traffic = case.traffic(algorithm)
    if algorithm == "standard" and SQUARES * traffic.written["S"] > _free_bytes():
        return "does not fit into memory"
    q, k, v = case.inputs("cuda" if on_gpu else "cpu")
    try:
        with peak_memory() as peak:
            output = function(q, k, v, causal=case.causal)
        error = (output[:1, :1].double() - exact).abs().max() / exact.abs().max()
        del output
        seconds = _median_seconds(lambda: function(q, k, v, causal=case.causal), tries)
    except (RuntimeError, _triton_error()) as error:  # what this GPU or dtype cannot do
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    least = predict(traffic.flops, case.traffic("flash").total, machine, dtype=case.dtype)
    return Measurement(
        name,
        case.n,
        case.head_dim,
        case.causal,
        case.dtype,
        seconds * 1e3,
        traffic.flops / seconds / 1e12,
        traffic.total / seconds / 1e9,
        least.seconds / seconds,
        peak[0] / 1e6,
        error.item(),
    )


def run(output: Path, *, quick: bool = False) -> list[Measurement]:
    """Measure everything, print the table, write flash.csv and flash.svg into `output`."""
    on_gpu = torch.cuda.is_available()
    machine = (this_gpu() if on_gpu else measure_cpu()) or _unknown_gpu()
    print(f"{machine.name}: {_ceilings(machine)} ({machine.source})")
    contenders = GPU_CONTENDERS if on_gpu else CPU_CONTENDERS
    work = [(case, name) for case in cases(gpu=on_gpu, quick=quick) for name in contenders]
    found: list[Measurement] = []
    exact, last = torch.empty(0), None
    print(_HEADER)
    for case, name in _progress(work):
        if case is not last:
            first_head = [x[:1, :1].double() for x in case.inputs("cuda" if on_gpu else "cpu")]
            exact = tiled_attention(*first_head, causal=case.causal, block_q=512, block_k=512)
            last = case
        result = measure(name, case, machine, tries=5 if quick else 15, exact=exact)
        _say(_row(result) if isinstance(result, Measurement) else f"{_label(name, case)} {result}")
        if isinstance(result, Measurement):
            found.append(result)
    _print_ratios(found, *(("flash Triton", "SDPA flash") if on_gpu else ("tiled", "SDPA")))
    _write(found, output, machine)
    return found


_HEADER = (
    f"{'attention':15} {'N':>6} {'d':>4} {'causal':6} {'dtype':9}"
    f"{'ms':>9} {'TFLOP/s':>8} {'GB/s':>8} {'of roof':>8} {'peak MB':>8} {'error':>8}"
)


def _label(name: str, case: Case | Measurement) -> str:
    causal = "yes" if case.causal else "no"
    return f"{name:15} {case.n:6} {case.head_dim:4} {causal:6} {case.dtype:9}"


def _row(found: Measurement) -> str:
    peak = "      --" if math.isnan(found.peak_megabytes) else f"{found.peak_megabytes:8.1f}"
    return (
        f"{_label(found.attention, found)}{found.milliseconds:9.3f} {found.tflops:8.3f} "
        f"{found.gigabytes_per_second:8.1f} {found.roofline_share:8.1%} {peak} {found.error:8.1e}"
    )


def _print_ratios(found: list[Measurement], ours: str, theirs: str) -> None:
    """How our best compares with the others on the same inputs: medians of the ratios of times."""
    times = {(m.attention, m.n, m.head_dim, m.causal, m.dtype): m.milliseconds for m in found}
    for other in sorted({m.attention for m in found} - {ours}):
        ratios = [
            times[(other, *key[1:])] / time
            for key, time in times.items()
            if key[0] == ours and (other, *key[1:]) in times
        ]
        if ratios:
            print(
                f"{ours} against {other}: {statistics.median(ratios):.2f} x as fast in the median "
                f"of {len(ratios)} cases ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    worst = {name: max(m.error for m in found if m.attention == name) for name in (ours, theirs)
             if any(m.attention == name for m in found)}  # fmt: skip
    print("largest error: " + ", ".join(f"{name} {error:.1e}" for name, error in worst.items()))


def _write(found: list[Measurement], output: Path, machine: Hardware) -> None:
    output.mkdir(parents=True, exist_ok=True)
    with (output / "flash.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Measurement)])
        writer.writeheader()
        writer.writerows(asdict(measurement) for measurement in found)
    print(f"written: {output / 'flash.csv'}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("no figure: matplotlib is not installed")
        return
    draw(found, machine).savefig(output / "flash.svg")
    print(f"written: {output / 'flash.svg'}")


def draw(found: list[Measurement], machine: Hardware):
    """TFLOP/s against N, one panel for each head dimension and mask, of the first dtype."""
    from matplotlib.figure import Figure

    dtype = found[0].dtype
    panels = sorted({(m.head_dim, m.causal) for m in found})
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    markers = "osv^Dx*"
    for axes, (head_dim, causal) in zip(
        figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True
    ):
        names = dict.fromkeys(m.attention for m in found)
        for marker, name in zip(markers, names, strict=False):
            points = [
                (m.n, m.tflops)
                for m in found
                if (m.attention, m.head_dim, m.causal, m.dtype) == (name, head_dim, causal, dtype)
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker=marker, label=name)
        axes.axhline(machine.peak(dtype) / 1e12, color="grey", linestyle=":", label="peak")
        axes.set(xscale="log", yscale="log", xlabel="N (tokens)", ylabel="TFLOP/s")
        axes.set_title(f"d = {head_dim}, {'causal' if causal else 'not causal'}")
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.suptitle(f"Attention forward in {dtype} on {machine.name}")
    return figure


def _median_seconds(call: Callable[[], Tensor], tries: int) -> float:
    call()  # warm-up
    if not torch.cuda.is_available():
        seconds = []
        for _ in range(max(tries // 3, 3)):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(tries + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    pairs = itertools.pairwise(marks)
    return statistics.median(a.elapsed_time(b) for a, b in pairs) / 1e3


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Puts the bytes taken at most inside, beyond those held before, into the list."""
    peak = [math.nan]
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peak
        torch.cuda.synchronize()
        peak[0] = torch.cuda.max_memory_allocated() - before
        return
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew (Linux)
        before = _kilobytes(status, "VmRSS")
    except OSError:
        yield peak
        return
    yield peak
    peak[0] = max(_kilobytes(status, "VmHWM") - before, 0) * 1024


def _kilobytes(status: Path, name: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1])


def _triton_error() -> type[Exception]:
    """What a kernel raises that does not compile, or asks for more shared memory than there is."""
    if not triton_available():
        return RuntimeError
    from triton.errors import TritonError

    return TritonError


def _free_bytes() -> int:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # else what PyTorch keeps for later counts as taken
        return torch.cuda.mem_get_info()[0]
    memory = Path("/proc/meminfo")
    return _kilobytes(memory, "MemAvailable") * 1024 if memory.exists() else 4 * 10**9


def _unknown_gpu() -> Hardware:
    """A GPU that is not in the table: its copy bandwidth and matrix products, measured."""
    numbers = torch.ones(2**28, device="cuda")
    seconds = _median_seconds(numbers.clone, 5)
    peak = {}
    for dtype in (torch.float16, torch.bfloat16):
        matrix = torch.ones(8192, 8192, device="cuda", dtype=dtype)
        product = _median_seconds(partial(torch.matmul, matrix, matrix), 5)
        peak[str(dtype).removeprefix("torch.")] = 2 * 8192**3 / product
    return Hardware(
        torch.cuda.get_device_name(), peak, 2 * numbers.nbytes / seconds,
        source="measured: copy of 1 GiB, product of two 8192 x 8192 matrices",
    )  # fmt: skip


def _ceilings(machine: Hardware) -> str:
    dtype, peak = next(iter(machine.peak_flops.items()))
    return f"{peak / 1e12:.3g} TFLOP/s in {dtype}, {machine.bandwidth / 1e9:.4g} GB/s"


def _progress(work: list) -> Iterator:
    return iter(work if tqdm is None else tqdm(work, unit="case", disable=None, leave=False))


def _say(line: str) -> None:
    """A line above the progress bar."""
    if tqdm is None:
        print(line)
    else:
        tqdm.write(line, file=sys.stdout)
