"""How exactly float32 matrices are multiplied, for the backends whose libraries have faster, less exact products."""

from __future__ import annotations

# As in PyTorch: what is not 'highest' may be tf32, of 10 bits of mantissa.
PRECISIONS = ("highest", "high", "medium")
_precision = ["highest"]


def set_precision(precision: str) -> None:
    """Take another precision from now on; one of `PRECISIONS`."""
    assert precision in PRECISIONS, "checked by who calls"
    _precision[0] = precision


def precision() -> str:
    """The precision that is asked for."""
    return _precision[0]
