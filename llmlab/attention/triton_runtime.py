"""Triton where there is a GPU, and its interpreter where there is none.

Triton's kernels are functions that look like Python. With a GPU they are compiled; its interpreter
runs them on the CPU instead, program by program, on NumPy arrays. Which of the two is decided when
a function is decorated with `@triton.jit`, and Triton decorates many of its own (`tl.max`,
`tl.sum`) as soon as it is imported. So that nobody has to set an environment variable before the
first import, `import_triton` changes those functions when it finds that they are of the wrong kind.
"""

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch

NO_TRITON = (
    "this needs Triton, which is not installed here{why}. The same algorithm in plain PyTorch is "
    "llmlab.attention.tiled_attention."
)


@cache
def triton_available() -> bool:
    """Can Triton be imported? There is none for macOS, nor for Windows outside WSL."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def import_triton() -> tuple[ModuleType, ModuleType]:
    """The modules `triton` and `triton.language`, ready to run kernels on this machine.

    Without a GPU, everything decorated with `@triton.jit` from now on runs in the interpreter; the
    first call says so.

    Raises ImportError, naming what to use instead, where Triton is not installed.
    """
    if not triton_available():
        why = "" if sys.platform == "linux" else f" (there is none for {sys.platform})"
        raise ImportError(NO_TRITON.format(why=why))
    import triton
    import triton.language as tl

    if not torch.cuda.is_available():
        _use_interpreter()
    return triton, tl


def interpreting() -> bool:
    """Do Triton's kernels run in its interpreter, on the CPU?"""
    import triton

    return bool(triton.knobs.runtime.interpret)


@cache
def _use_interpreter() -> None:
    import triton

    _compilers_language()  # kept before the interpreter changes it
    triton.knobs.runtime.interpret = True
    for namespace in _language_namespaces():
        _decorate(namespace, interpreted=True)
    # In a notebook, red text would look like a failure.
    place = sys.stdout if hasattr(builtins, "get_ipython") else sys.stderr
    print("Triton: no GPU here, so kernels run in its interpreter, on the CPU.", file=place)


@contextmanager
def compilable(kernel: Any) -> Iterator[Any]:
    """Inside, the kernel as one that can be compiled for a GPU, which need not be here.

    While interpreting, everything that the kernel calls is turned into what the compiler reads,
    and back at the end.
    """
    import triton

    if not interpreting():
        yield kernel
        return
    namespaces = _language_namespaces() + _called_namespaces(kernel)
    interpreters = [(owner, dict(vars(owner))) for owner, _ in _compilers_language()]
    triton.knobs.runtime.interpret = False
    _restore(_compilers_language())
    for namespace in namespaces:
        _decorate(namespace, interpreted=False)
    try:
        yield triton.JITFunction(kernel.fn)
    finally:
        triton.knobs.runtime.interpret = True
        _restore(interpreters)
        for namespace in namespaces:
            _decorate(namespace, interpreted=True)


@cache
def _compilers_language() -> list[tuple[Any, dict[str, Any]]]:
    """What the compiler needs of `triton.language`, as it was before anything was interpreted.

    A running interpreter puts its own functions there, and leaves some of them behind.
    """
    import triton.language as tl

    owners = (tl, tl.core, tl.math, tl.core.tensor, tl.core.tensor_descriptor_base)
    return [(owner, dict(vars(owner))) for owner in owners]


def _restore(state: list[tuple[Any, dict[str, Any]]]) -> None:
    for owner, attributes in state:
        for name, value in attributes.items():
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)


def _language_namespaces() -> list[dict[str, Any]]:
    return [
        vars(module)
        for name, module in list(sys.modules.items())
        if name.startswith("triton.language")
    ]


def _called_namespaces(kernel: Any) -> list[dict[str, Any]]:
    """The global names of a kernel's file, and those of the functions that they stand for."""
    from triton.runtime.interpreter import InterpretedFunction

    found, waiting = [], [kernel.fn.__globals__]
    while waiting:
        namespace = waiting.pop()
        if not any(namespace is other for other in found):
            found.append(namespace)
            functions = [f for f in namespace.values() if isinstance(f, InterpretedFunction)]
            waiting += [function.fn.__globals__ for function in functions]
    return found


def _decorate(namespace: dict[str, Any], *, interpreted: bool) -> None:
    """Turn the jitted functions among these names into interpreted ones, or back."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    present, wanted = JITFunction, InterpretedFunction
    if not interpreted:
        present, wanted = wanted, present
    for name, function in list(namespace.items()):
        if isinstance(function, present):
            namespace[name] = wanted(function.fn)
