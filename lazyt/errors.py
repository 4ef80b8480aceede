"""The few error classes of lazyt; each is also the matching builtin, so old `except` clauses work."""

from __future__ import annotations


class LazytError(Exception):
    """Base of everything that lazyt raises on purpose."""


class ShapeError(LazytError, ValueError):
    """Shapes, axes or extents that an operation cannot take."""


class AxisError(ShapeError, IndexError):
    """An axis that an array does not have."""


class DTypeError(LazytError, TypeError):
    """A dtype, or a kind of object, that an operation cannot take."""


class ScalarRangeError(LazytError, OverflowError):
    """A Python number that the dtype it meets cannot hold."""


class IndexOutOfRange(LazytError, IndexError):
    """An index outside the axis it indexes: when recorded if static, else at the sync."""


class DeviceError(LazytError, RuntimeError):
    """A device that is missing, unknown, or mixed with another one."""


class AutogradError(LazytError, RuntimeError):
    """What reverse mode cannot do: no graph, a freed graph, a value overwritten in place."""


class SyncError(LazytError, RuntimeError):
    """A sync where none is allowed (`no_sync`, `expect`)."""


class NotSupportedError(LazytError, NotImplementedError):
    """`not supported: X, because Y`: an honest refusal at the user's line."""


class OutOfMemory(LazytError, MemoryError):
    """No memory for a sync; everything that was pending still is."""


class LazytInternalError(LazytError, AssertionError):
    """An invariant of lazyt's own broke: a bug to report."""


class LazytWarning(UserWarning):
    """Base of the warnings."""
