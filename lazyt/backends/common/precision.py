"""The precision of float32 matrix products and convolutions, where faster and less exact ones may be used."""

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


# Whether kernels of the host take subnormal numbers as zeros: then NumPy has other bits.
_flushes = [False]


def set_flushes(mode: bool) -> None:
    """Say whether they do from now on."""
    _flushes[0] = mode


def flushes() -> bool:
    """Whether they do."""
    return _flushes[0]


# Of convolutions: what is not 'highest' may be Winograd's (see ir/winograd.py); 'medium' may be of bfloat16.
CONVOLUTIONS = ("highest", "high", "medium")
_convolutions = ["highest"]


def set_convolutions(precision: str) -> None:
    """Record convolutions of another precision from now on; one of `CONVOLUTIONS`."""
    assert precision in CONVOLUTIONS, "checked by who calls"
    _convolutions[0] = precision


def convolutions() -> str:
    """The precision of convolutions that are recorded now."""
    return _convolutions[0]
