"""The benchmark runs, and says what it measured."""

import csv
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from llmlab.attention.triton_runtime import import_triton
from llmlab.bench import flash
from llmlab.bench.flash import Case, cases, naive_pytorch, run
from llmlab.cli import main

ROOT = Path(__file__).parents[2]


def test_a_quick_run(tmp_path, capsys):
    assert main(["bench", "flash", "--quick", "--output", str(tmp_path / "new")]) in (0, None)
    printed = capsys.readouterr().out
    assert "x as fast in the median" in printed
    rows = list(csv.DictReader((tmp_path / "new" / "flash.csv").open()))
    assert {row["head_dim"] for row in rows} == {"64", "128"}
    assert all(float(row["error"]) < 1e-5 for row in rows if row["dtype"] == "float32")
    assert all(float(row["milliseconds"]) > 0 for row in rows)
    assert "<svg" in (tmp_path / "new" / "flash.svg").read_text()
    assert f"{rows[0]['attention']:15}" in printed


def test_the_figures_of_a_row(tmp_path):
    """TFLOP/s are FLOPs over time, and the FLOPs are 4 N^2 d a head."""
    found = run(tmp_path, quick=True)[0]
    case = next(c for c in cases(gpu=torch.cuda.is_available(), quick=True) if c.n == found.n)
    flops = 4 * case.n**2 * case.head_dim * case.heads * case.batch
    assert found.tflops * found.milliseconds * 1e9 == pytest.approx(flops)


def test_what_is_called_naive_is_attention():
    q, k, v = Case(33, 8, True, "float32", 2, 3).inputs("cpu")
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(naive_pytorch(q, k, v, causal=True), expected)


def test_the_gpu_sizes_are_those_asked_for():
    sizes = cases(gpu=True, quick=False)
    assert {case.n for case in sizes} == {512, 1024, 2048, 4096, 8192, 16384}
    assert {(c.head_dim, c.causal, c.dtype) for c in sizes} == {
        (d, causal, dtype)
        for d in (64, 128)
        for causal in (False, True)
        for dtype in ("float16", "bfloat16")
    }


class StandInEvent:
    """A mark in the stream of a GPU on which every call takes 2 ms."""

    made = itertools.count()

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.time = 2.0 * next(self.made)

    def record(self):
        pass

    def elapsed_time(self, later):
        return later.time - self.time


@pytest.fixture
def stand_in_gpu(monkeypatch):
    """A GPU with 1 GB free, all of which PyTorch keeps after the first call; each takes 5 MB."""
    import_triton()  # still without a GPU: kernels are interpreted
    inputs, kept = Case.inputs, {"bytes": 0}
    fakes = {
        "is_available": lambda: True,
        "get_device_name": lambda: "NVIDIA H100 80GB HBM3",
        "mem_get_info": lambda: (10**9 - kept["bytes"], 80 * 10**9),
        "empty_cache": lambda: kept.update(bytes=0),
        "memory_allocated": lambda: 10**6,
        "max_memory_allocated": lambda: kept.update(bytes=10**9) or 6 * 10**6,
        "reset_peak_memory_stats": lambda: None,
        "synchronize": lambda: None,
        "Event": StandInEvent,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(Case, "inputs", lambda case, device: inputs(case, "cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU goes this way in the other tests")
def test_the_way_of_a_gpu(stand_in_gpu, tmp_path, monkeypatch, capsys):
    """All that only a GPU reaches, but for the device itself: units, what is skipped, and why."""
    from triton.runtime.errors import OutOfResources

    def too_large(*_, **__):
        raise OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setitem(flash.GPU_CONTENDERS, "too large", (too_large, "flash"))
    small = Case(40, 16, True, "float16", 1, 2)
    monkeypatch.setattr(flash, "cases", lambda *, gpu, quick: [small] * gpu)
    found = {m.attention: m for m in run(tmp_path, quick=True)}
    printed = capsys.readouterr().out
    assert printed.startswith("H100")
    assert {"naive PyTorch", "naive Triton", "flash Triton", "SDPA math"} <= set(found)
    assert {m.milliseconds for m in found.values()} == {2.0}
    assert {m.peak_megabytes for m in found.values()} == {5.0}
    assert all(0 < m.error < 2e-3 for m in found.values())
    assert "out of resource: shared memory" in printed
    assert "SDPA cuDNN" in printed  # no CPU has it: said, not measured
    assert "SDPA cuDNN" not in found
    large = Case(40_000, 16, True, "float16", 1, 2)
    told = flash.measure("naive Triton", large, flash.this_gpu(), tries=1, exact=torch.empty(0))
    assert told == "does not fit into memory"


def test_it_needs_torch_and_triton_only(tmp_path):
    """With everything else that the package uses made unimportable."""
    blocked = ["jaxtyping", "transformers", "tokenizers", "safetensors", "tqdm", "matplotlib",
               "ipywidgets", "regex", "jinja2", "numpy"]  # fmt: skip
    script = str(ROOT / "llmlab" / "bench" / "standalone.py")
    code = (
        "import sys, importlib.util\n"
        f"blocked = {blocked}\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in blocked: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n in blocked else find(n, *a)\n"
        f"sys.argv = ['standalone.py', '--quick', '--output', {str(tmp_path)!r}]\n"
        "import runpy\n"
        f"runpy.run_path({script!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert "no figure: matplotlib is not installed" in result.stdout
    assert (tmp_path / "flash.csv").stat().st_size > 500


def test_every_name_of_torch_cuda_exists():
    """The calls for a GPU cannot run without one; at least they must name what is there."""
    names = set()
    for path in (ROOT / "llmlab").rglob("*.py"):
        names |= set(re.findall(r"torch\.cuda\.(\w+)", path.read_text(encoding="utf-8")))
    assert "reset_peak_memory_stats" in names
    assert [name for name in names if not hasattr(torch.cuda, name)] == []
