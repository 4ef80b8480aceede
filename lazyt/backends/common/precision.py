"""The precision of float32 matrix products, for backends whose libraries have faster, less exact products."""

from __future__ import annotations

# As in PyTorch: what is not 'highest' may be tf32, of 10 bits of mantissa.
PRECISIONS = ("highest", "high", "medium")
_precision = ["highest"]


def set_precision(precision: str) -> None:
    """Use another precision from now on; one of `PRECISIONS`."""
    assert precision in PRECISIONS, "checked by who calls"
    _precision[0] = precision


def precision() -> str:
    """The precision in use."""
    return _precision[0]
