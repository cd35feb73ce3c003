"""What GPUs can do at most, from their makers' papers, and what this machine does, measured.

All figures are dense: makers often print twice as much, for matrices half of which are zeros.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

GB = 10**9
KB = 1024  # shared memory is counted in units of 1,024 bytes


@dataclass(frozen=True)
class Hardware:
    """The ceilings of one machine. FLOP/s by dtype name, bytes and bytes/s."""

    name: str
    peak_flops: dict[str, float]  # FLOP/s: "bfloat16", "float16" on tensor cores, "float32" off
    bandwidth: float  # bytes/s between HBM (or DRAM) and the chip
    source: str
    memory_bytes: int | None = None
    sms: int | None = None  # streaming multiprocessors
    shared_bytes_per_sm: int | None = None
    shared_bytes_per_block: int | None = None
    l2_bytes: int | None = None
    target: str | None = None  # what a compiler calls it, such as "sm_90"
    max_warps_per_sm: int | None = None
    registers_per_sm: int = 65_536
    copy_bandwidth: float | None = None  # bytes/s read and written in a copy, where measured

    def ridge_point(self, dtype: str = "bfloat16") -> float:
        """FLOPs for each byte at which memory and arithmetic take the same time.

        Raises ValueError for a dtype whose peak is not known.
        """
        return self.peak(dtype) / self.bandwidth

    def peak(self, dtype: str = "bfloat16") -> float:
        """FLOP/s at most. Raises ValueError for a dtype whose peak is not known."""
        if dtype not in self.peak_flops:
            raise ValueError(
                f"no peak for {dtype!r} on {self.name}; there are {', '.join(self.peak_flops)}"
            )
        return self.peak_flops[dtype]


def _gpu(
    name: str,
    tflops: float,
    fp32_tflops: float,
    terabytes: float,
    memory: int,
    sms: int,
    shared: int,
    l2: int,
    **more,
) -> Hardware:
    half = tflops * 1e12
    return Hardware(
        name,
        {"bfloat16": half, "float16": half, "float32": fp32_tflops * 1e12},
        terabytes * 1e12,
        memory_bytes=memory * GB,
        sms=sms,
        l2_bytes=l2 * 2**20,
        shared_bytes_per_sm=shared * KB,
        shared_bytes_per_block=(shared - 1) * KB,  # CUDA keeps 1 KB for itself
        **more,
    )


_AMPERE = {"target": "sm_80", "max_warps_per_sm": 64}
_HOPPER = {"target": "sm_90", "max_warps_per_sm": 64}
_LISTED = "listed as such in secondary tables, not checked against the maker's datasheet"

HARDWARE: dict[str, Hardware] = {
    gpu.name: gpu
    for gpu in (
        _gpu("A100 40GB", 312.0, 19.5, 1.555, 40, 108, 164, l2=40, **_AMPERE,
             source="NVIDIA A100 Tensor Core GPU Architecture, 2020"),
        _gpu("A100 80GB", 312.0, 19.5, 2.04, 80, 108, 164, l2=40, **_AMPERE,
             source="NVIDIA A100 80GB datasheet (SXM); architecture paper, 2020"),
        _gpu("H100", 989.0, 66.9, 3.35, 80, 132, 228, l2=50, **_HOPPER,
             source="NVIDIA H100 Tensor Core GPU Architecture, 2022 (SXM5)"),
        _gpu("H200", 989.0, 66.9, 4.8, 141, 132, 228, l2=50, **_HOPPER,
             source="NVIDIA H200 datasheet, 2023 (SXM)"),
        _gpu("RTX A6000", 155.0, 38.7, 0.768, 48, 84, 100, l2=6, target="sm_86",
             max_warps_per_sm=48, source=_LISTED),
        _gpu("RTX 4090", 165.0, 82.6, 1.008, 24, 128, 100, l2=72, target="sm_89",
             max_warps_per_sm=48, source=_LISTED),
    )
}  # fmt: skip


def hardware(name: str) -> Hardware:
    """The GPU of that name: "A100 80GB", "H100", ... Capital letters and spaces do not matter.

    Raises ValueError for one that is not in the table, listing those that are.
    """

    def plain(text: str) -> str:
        return text.replace(" ", "").replace("-", "").replace("_", "").lower()

    for known, gpu in HARDWARE.items():
        if plain(known) == plain(name) or plain(known) == plain(name) + "80gb":
            return gpu
    raise ValueError(f"no hardware {name!r} in the table; there are {', '.join(HARDWARE)}")


# What the driver calls the GPUs of the table. Whole names, since a part of one misleads: the PCIe
# boards, a GH200, an "RTX A1000", a laptop's 4090 and a slice of a GPU (MIG) have other ceilings.
_DRIVER_NAMES = {
    "A100-SXM4-40GB": "A100 40GB",
    "A100-PCIE-40GB": "A100 40GB",
    "A100-SXM4-80GB": "A100 80GB",
    "H100 80GB HBM3": "H100",
    "H200": "H200",
    "RTX A6000": "RTX A6000",
    "GeForce RTX 4090": "RTX 4090",
}


def listed_gpu(driver_name: str) -> Hardware | None:
    """The table's entry for what a driver calls "NVIDIA H200", say; None for one not in it."""
    name = _DRIVER_NAMES.get(driver_name.removeprefix("NVIDIA "))
    return HARDWARE[name] if name else None


def this_gpu() -> Hardware | None:
    """The table's entry for the GPU in this machine; None without one, or for an unknown one."""
    return listed_gpu(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def measure_cpu(*, megabytes: int = 256, size: int = 1536, tries: int = 5) -> Hardware:
    """The ceilings of this machine's CPU, measured in about a second with the threads in use.

    Bandwidth: the numbers of a buffer of `megabytes`, far larger than most caches, are read once,
    by a sum and by a matrix-vector product; the faster one counts, as the best of `tries`. A copy
    of one half onto the other counts what it reads and what it writes. Peak: the product of two
    fp32 matrices of `size` x `size`.
    """
    buffer = torch.ones(megabytes * 2**20 // 4 // 4096, 4096)
    vector = torch.ones(4096)
    seconds = min(_best(buffer.sum, tries), _best(lambda: buffer @ vector, tries))
    half, other_half = buffer.chunk(2)
    copy = _best(lambda: other_half.copy_(half), tries)
    matrix = torch.ones(size, size)
    product = _best(lambda: matrix @ matrix, tries)
    threads = torch.get_num_threads()
    return Hardware(
        f"this CPU, {threads} of {os.cpu_count()} threads",
        {"float32": 2 * size**3 / product},
        buffer.nbytes / seconds,
        source=f"measured: {megabytes} MB read, product of two {size} x {size} fp32 matrices",
        copy_bandwidth=(half.nbytes + other_half.nbytes) / copy,
    )


def _best(run: Callable[[], object], tries: int) -> float:
    run()  # warm-up
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
