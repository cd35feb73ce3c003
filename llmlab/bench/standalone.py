"""`python llmlab/bench/standalone.py`: the benchmark on a machine with only torch and triton.

The package names the shapes of its tensors with jaxtyping, which such a machine may lack. Shapes
are checked in the tests and nowhere else, so here the names may stand for nothing.
"""

import argparse
import importlib.util
import sys
import types
from pathlib import Path


def stand_in_for_jaxtyping() -> None:
    """A module in which Float[Tensor, "B T"] is Tensor."""

    class Annotation:
        def __class_getitem__(cls, item):
            return item[0]

    module = types.ModuleType("jaxtyping")
    for name in ("Bool", "Float", "Int", "Int64", "Shaped", "UInt8"):
        setattr(module, name, Annotation)
    sys.modules["jaxtyping"] = module


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    if importlib.util.find_spec("jaxtyping") is None:
        stand_in_for_jaxtyping()
    from llmlab.bench.flash import run

    parser = argparse.ArgumentParser(description="Attention, checked and timed on this machine.")
    parser.add_argument("--quick", action="store_true", help="a few small sizes only")
    parser.add_argument("--output", type=Path, default=Path("bench"), metavar="FOLDER")
    options = parser.parse_args()
    run(options.output.expanduser(), quick=options.quick)
