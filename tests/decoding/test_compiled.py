"""The compiled step: one compilation in the whole test run, and the warning where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from decoding_tools import make_model, model_config

from llmlab.decoding import generate
from llmlab.decoding.compiled import compiled_step, find_cpp_compiler

PROMPT = [3, 14, 15, 9, 26]

PROGRAM = f"""
from decoding_tools import make_model, model_config
from llmlab.decoding import generate

model = make_model(model_config("llama", layers=1))
compiled = generate(model, {PROMPT}, 12, compile=True)
assert compiled.ids == generate(model, {PROMPT}, 12).ids, compiled.ids
assert [step.cache_length for step in compiled.steps] == list(range(5, 17))

import torch
frames = torch._dynamo.utils.counters["frames"]["ok"]
print("frames compiled:", frames)
"""


def test_the_compiled_step_gives_the_same_tokens():
    """In a process of its own: the checking of shapes at run time cannot be compiled.

    Without a C++ compiler the same program must run, say so, and compile nothing.
    """
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(Path(__file__).parent)])
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    frames = int(run.stdout.split()[-1])
    if find_cpp_compiler() is None:
        assert "needs a C++ compiler and found none" in run.stderr
        assert frames == 0
    else:
        assert frames > 0


def test_without_a_compiler_the_plain_model_runs(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert find_cpp_compiler() is None
    model = make_model(model_config("llama"))
    with pytest.warns(RuntimeWarning, match=r"found none \(install g\+\+, or set CXX\)"):
        assert compiled_step(model) is model
    with pytest.warns(RuntimeWarning, match="running without compiling"):
        generation = generate(model, PROMPT, 6, compile=True)
    assert generation.ids == generate(model, PROMPT, 6).ids
