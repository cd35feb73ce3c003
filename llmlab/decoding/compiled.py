"""The compiled decode step: optional, and never a surprise."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn


def compiled_step(model: nn.Module) -> Callable[..., Tensor]:
    """The model compiled by `torch.compile`, for the steps that feed one token.

    Compiling takes seconds to a minute at the first such steps (their records show it); PyTorch
    keeps the result for the rest of the process. On a CPU it needs a C++ compiler: where none is
    found a warning says so and the model itself comes back, which gives the same tokens.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    if on_cpu and find_cpp_compiler() is None:
        warnings.warn(
            "compile=True needs a C++ compiler and found none (install g++, or set CXX): running "
            "without compiling",
            RuntimeWarning,
            stacklevel=3,
        )
        return model
    return torch.compile(model, dynamic=True)


def find_cpp_compiler() -> str | None:
    """The path of the C++ compiler that PyTorch would call, or None."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", usual))
