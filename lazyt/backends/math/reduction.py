"""The operand of a reduction and the precision of its accumulator, for all backends."""

from __future__ import annotations

import numpy as np

from lazyt.ir import dtypes
from lazyt.ir.records import dataclass

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def is_float(dtype: np.dtype) -> bool:
    """Whether a dtype is a real float, bfloat16 among them."""
    return dtypes.kind(dtype) == "f"


@dataclass(frozen=True, slots=True)
class Reduction:
    """A Reduce named `name` with results of `dtype`, over the value `operand` of dtype `source`."""

    name: str
    dtype: np.dtype
    source: np.dtype
    operand: int

    @property
    def blocked(self) -> bool:
        """Whether its lanes are flushed into float64 now and then: a float sum or product."""
        return self.name in ("sum", "prod") and is_float(self.source)

    @property
    def is_arg(self) -> bool:
        """Whether its result is a position."""
        return self.name in ("argmax", "argmin")

    @property
    def float_dtype(self) -> np.dtype:
        """Halves fold as float32: exact for an extreme, and what a sum wants."""
        return FLOAT64 if self.source == FLOAT64 else FLOAT32
