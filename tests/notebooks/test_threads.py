"""Every chapter executed once more: with two threads, without a network, against a clock.

`make test` has nbval run the notebooks with one thread. Here the same comparison is made with two,
in a process of its own, so that no stored output depends on how a sum was split.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from chapter_file import BOOK, ROOT, Chapter
from nbformat.v4 import new_code_cell, new_notebook, new_output

CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
HANGS_AFTER = 300  # seconds; a slow machine does not fail, a hang does
GUARD = Path(__file__).parent / "network_guard"


@dataclass(frozen=True)
class Execution:
    """What came of executing a notebook: nbval makes one test of each code cell."""

    passed: int
    failed: bool
    report: str
    seconds: float
    network_attempts: str


def execute(notebook: Path, scratch: Path, *, threads: int) -> Execution:
    """Runs nbval on one notebook in a fresh process, and a kernel of its own.

    Raises subprocess.TimeoutExpired after HANGS_AFTER seconds; nothing is left running then.
    """
    attempts = scratch / "network-attempts.txt"
    attempts.touch()
    count = str(threads)
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), count),
        "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads leave the processor to others
        "PYTHONPATH": os.pathsep.join([str(GUARD), str(ROOT)]),
        "NETWORK_ATTEMPTS": str(attempts),
        "HF_HUB_OFFLINE": "1",
    }
    nbval = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", str(notebook)]
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(notebook.parent), "-c", os.devnull]
    start = time.monotonic()
    process = subprocess.Popen(
        [*nbval, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # its kernel belongs to it, and ends with it
    )
    try:
        report, _ = process.communicate(timeout=HANGS_AFTER)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    seconds = time.monotonic() - start
    passed = re.search(r"(\d+) passed", report)
    only_passed = re.search(r"^\d+ passed(, \d+ warnings?)? in ", report, re.MULTILINE)
    return Execution(
        passed=int(passed[1]) if passed else 0,
        failed=process.returncode != 0 or not only_passed,
        report=report[-6000:],
        seconds=seconds,
        network_attempts=attempts.read_text(encoding="utf-8"),
    )


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_with_two_threads_and_no_network(path, tmp_path, capsys, record_property):
    execution = execute(path, tmp_path, threads=2)
    record_property("seconds", round(execution.seconds, 1))
    with capsys.disabled():
        print(f"\n{path.stem}: {execution.seconds:.0f} s with two threads", end=" ")
    assert not execution.failed, execution.report
    assert execution.passed == len(Chapter(path).code)
    assert execution.network_attempts == ""


def made_up(folder: Path, *cells: tuple[str, str]) -> Path:
    """A notebook of code cells with what each has printed."""
    path = folder / "made_up.ipynb"
    nodes = [
        new_code_cell(source, execution_count=1, outputs=[new_output("stream", text=printed)])
        for source, printed in cells
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(new_notebook(cells=nodes, metadata={"kernelspec": kernel}), path)
    return path


CONNECT = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError:
    print("caught")
"""


def test_what_the_test_above_would_see(tmp_path):
    """Two threads arrive, another output fails, a connection is seen though it was caught."""
    good = made_up(
        tmp_path,
        ("import os\nprint(os.environ['OMP_NUM_THREADS'])", "2\n"),
        (CONNECT, "caught\n"),
    )
    execution = execute(good, tmp_path, threads=2)
    assert (execution.failed, execution.passed) == (False, 2), execution.report
    assert "192.0.2.1" in execution.network_attempts
    bad = made_up(tmp_path, ("print(1)", "2\n"), ("print(2)", "2\n"))
    execution = execute(bad, tmp_path, threads=2)
    assert (execution.failed, execution.passed) == (True, 1), execution.report
