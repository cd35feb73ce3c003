"""The type checks of the test run wrap every function of the package, but Triton reads the source
and the globals of a kernel: it must get the function itself."""

import inspect

try:
    import triton
except ImportError:  # no Triton on this platform
    triton = None

if triton is not None:
    _jit = triton.jit

    def jit_the_function_itself(fn=None, **options):
        if fn is None:
            return lambda function: jit_the_function_itself(function, **options)
        return _jit(inspect.unwrap(fn), **options)

    triton.jit = jit_the_function_itself
