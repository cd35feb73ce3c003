"""Bytes by tensor, and the work done on them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """What an algorithm asks of HBM.

    Tensors: "Q", "K", "V" in, "O" out; "S" and "P" are the scores before and after softmax; "l"
    and "m" the running sums and maxima; "LSE" the log-sum-exp of each row; "O_partial" and
    "LSE_partial" what the splits of a decode leave behind.
    """

    algorithm: str
    read: dict[str, int]  # bytes by tensor; a tensor that is not read is not listed
    written: dict[str, int]
    flops: int  # of the matrix products alone: 2 for each multiply and add

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return sum(self.read.values()) + sum(self.written.values())

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.total if self.total else 0.0
