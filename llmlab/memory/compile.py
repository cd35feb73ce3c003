"""What the compiler makes of a Triton kernel, for GPUs that need not be here.

Triton brings NVIDIA's assembler along. So a kernel can be compiled down to machine code on any
Linux machine, and the result can be asked how many registers a thread needs, whether some spilled
to memory, how much shared memory a program takes and which matrix instructions it uses.
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmlab.memory.hardware import Hardware

TARGETS = {"sm_80": "A100", "sm_86": "RTX A6000", "sm_89": "RTX 4090", "sm_90": "H100, H200",
           "sm_100": "B200"}  # fmt: skip
WARP = 32  # threads
#: Of PTX, the assembly that Triton writes. The first three multiply matrices on tensor cores.
INSTRUCTIONS = {
    "mma.sync": "tensor cores since sm_70",
    "wgmma.mma_async": "tensor cores of sm_90, by four warps together",
    "tcgen05.mma": "tensor cores of sm_100",
    "cp.async": "HBM to shared memory, while the program goes on",
    "ld.global": "HBM to registers",
    "st.global": "registers to HBM",
    "fma.rn.f32": "one multiplication and addition, without tensor cores",
}
MATRIX_INSTRUCTIONS = ("mma.sync", "wgmma.mma_async", "tcgen05.mma")


@dataclass(frozen=True)
class KernelReport:
    """One kernel, compiled for one target."""

    target: str
    registers: int  # of each thread
    spill_bytes: int  # of each thread, stored because the registers did not suffice
    shared_bytes: int  # of each program
    num_warps: int
    instructions: dict[str, int]  # how often each of `INSTRUCTIONS` stands in the code
    ptx: str

    @property
    def matrix_instructions(self) -> dict[str, int]:
        """Those that run on tensor cores."""
        return {name: self.instructions[name] for name in MATRIX_INSTRUCTIONS
                if self.instructions[name]}  # fmt: skip

    def programs_per_sm(self, machine: Hardware) -> int:
        """How many programs of the kernel fit on one streaming multiprocessor at a time.

        Registers, shared memory and warps each set a limit; the least counts. Registers are given
        to warps in units of 256. 0 where one program needs more shared memory than it may have.
        """
        if None in (machine.shared_bytes_per_sm, machine.max_warps_per_sm):
            raise ValueError(f"the limits of {machine.name} are not known")
        if self.shared_bytes > machine.shared_bytes_per_block:
            return 0
        per_warp = -(-self.registers * WARP // 256) * 256
        by_registers = machine.registers_per_sm // (per_warp * self.num_warps)
        by_shared = machine.shared_bytes_per_sm // (self.shared_bytes + 1024)  # 1 KB is CUDA's
        return min(by_registers, by_shared, machine.max_warps_per_sm // self.num_warps)

    def occupancy(self, machine: Hardware) -> float:
        """Warps that are resident, as a share of those that an SM could hold."""
        resident = self.programs_per_sm(machine) * self.num_warps
        return resident / machine.max_warps_per_sm


def inspect_kernel(
    kernel: Any,
    *,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    target: str = "sm_90",
    num_warps: int = 4,
    num_stages: int = 2,
) -> KernelReport:
    """Compile a `@triton.jit` function and report what came out. Takes a second or two.

    Args:
        kernel: the function. Where kernels run in the interpreter, pass what `compilable(kernel)`
            of `llmlab.attention.triton_runtime` gives.
        signature: the type of each parameter that is no constexpr: "*fp16" for a pointer, "i32",
            "fp32", ... As in a real launch, ":16" says that the value is divisible by 16 (pointers
            and most strides are), which lets the compiler load 16 bytes at a time.
        constexprs: the value of each constexpr, and of parameters that are fixed, such as a stride
            of 1.
        target: "sm_80", "sm_86", "sm_89", "sm_90" or "sm_100".
        num_warps: warps of 32 threads in a program.
        num_stages: how many rounds of a loop have their loads in flight.

    Raises:
        ValueError: a target that is not there, or a parameter that is in neither mapping.
        ImportError: Triton is not installed.
    """
    if target not in TARGETS:
        raise ValueError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.params]
    missing = [name for name in names if name not in signature and name not in constexprs]
    if missing:
        raise ValueError(f"neither signature nor constexprs names {', '.join(missing)}")
    types, attributes, values = {}, {}, {}
    for position, name in enumerate(names):
        if name in constexprs:
            types[name], values[(position,)] = "constexpr", constexprs[name]
            continue
        types[name], _, divisor = signature[name].partition(":")
        if divisor:
            attributes[(position,)] = [["tt.divisibility", int(divisor)]]
    compiled = triton.compile(
        ASTSource(kernel, types, constexprs=values, attrs=attributes),
        target=GPUTarget("cuda", int(target.removeprefix("sm_")), WARP),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )
    ptx = compiled.asm["ptx"]
    registers, spill_bytes = _resources(compiled.asm["cubin"])
    counts = {  # cp.async.commit_group and cp.async.wait_group move nothing
        name: len(re.findall(rf"\b{re.escape(name)}(?!\.(?:commit|wait))", ptx))
        for name in INSTRUCTIONS
    }
    warps = compiled.metadata.num_warps
    return KernelReport(
        target, registers, spill_bytes, compiled.metadata.shared, warps, counts, ptx
    )


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes of the stack that spills take, of each thread, by NVIDIA's own tool."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [str(tool), "--dump-resource-usage", str(file)]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)", printed.stdout)
    if found is None:
        raise RuntimeError(f"cuobjdump's report has changed its form: {printed.stdout!r}")
    registers, stack, local = map(int, found.groups())
    return registers, stack + local
