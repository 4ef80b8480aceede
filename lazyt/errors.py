"""The few error classes of lazyt; each is also the matching builtin, so old `except` clauses work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.exceptions import AxisError as AxisErrorOfNumPy


class LazytError(Exception):
    """Base of everything that lazyt raises on purpose."""


class ShapeError(LazytError, ValueError):
    """Shapes, axes or extents that an operation cannot take."""


class NotOneElement(ShapeError, TypeError):
    """A tensor of none or several elements where a Python number is wanted: a TypeError, as NumPy's is."""


class NoView(ShapeError, RuntimeError):
    """A view that there cannot be without a copy: a RuntimeError too, as PyTorch's is."""


class StateError(ShapeError, RuntimeError):
    """A state dict that does not fit, or a file that `load` refuses: a RuntimeError too, as PyTorch's are."""


class ArgumentError(LazytError, ValueError):
    """A value that an option cannot have, of an optimizer or a scheduler say."""


class UninitializedModule(LazytError, AttributeError):
    """A module that is used before its `super().__init__()`."""


class DistributionError(LazytError, ValueError):
    """What a distribution cannot be made of, or asked for: a parameter or a value outside its constraint."""


class AxisError(ShapeError, AxisErrorOfNumPy):
    """An axis that an array does not have; also `numpy.exceptions.AxisError`, with its `axis` and `ndim` if known."""

    __str__ = Exception.__str__


class DTypeError(LazytError, TypeError):
    """A dtype, or a kind of object, that an operation cannot take."""


class InvalidKey(LazytError, KeyError):
    """A key or a name that is not there, is taken, or is not allowed: a KeyError, as PyTorch's is."""

    __str__ = Exception.__str__  # a KeyError's is the repr of its message


class ScalarRangeError(LazytError, OverflowError):
    """A Python number that the dtype it meets cannot hold."""


class IndexOutOfRange(LazytError, IndexError):
    """An index outside the axis it indexes: when recorded if static, else at the sync."""


class NoResult(LazytError, ValueError):
    """Values that a function has no result for, found at the sync: an index of the largest among NaN alone."""


class InvalidWeights(LazytError, RuntimeError):
    """Weights that nothing can be drawn by, found at the sync: a RuntimeError, as PyTorch's is."""


class ZeroWeights(LazytError, ZeroDivisionError):
    """Weights that add up to 0, found at the sync."""


# What a function raises at the sync for its values, and why.
REFUSALS: dict[str, tuple[type[LazytError], str]] = {
    "nanargmax": (NoResult, "all-NaN slice: there is no largest element"),
    "nanargmin": (NoResult, "all-NaN slice: there is no smallest element"),
    "multinomial": (InvalidWeights, "weights are finite, none is below 0, and some of each row are above"),
    "normal": (ArgumentError, "a standard deviation is at least 0"),
    "average": (ZeroWeights, "weights sum to zero, and cannot be normalized"),
}


# Functions that look a value up that is no index: a negative one does not count from the end.
LOOKED_UP = {"cross_entropy": "target", "nll_loss": "target"}


class DeviceError(LazytError, RuntimeError):
    """A device that is missing, unknown, or mixed with another one."""


class SettingError(LazytError, ValueError):
    """A setting of the environment that says what nobody knows."""


class AutocastError(LazytError, RuntimeError):
    """What an autocast region or a gradient scaler cannot do: a function that is banned, a step out of turn."""


class AutogradError(LazytError, RuntimeError):
    """What derivatives and vmap cannot do: no graph, a freed graph, a value overwritten in place, or kept by a lane."""


class ThreadError(LazytError, RuntimeError):
    """What cannot be done with a value of another thread's: differentiating through a graph that it has recorded."""


class SyncError(LazytError, RuntimeError):
    """A sync where none is allowed (`no_sync`, `expect`)."""


class WorkerError(LazytError, RuntimeError):
    """A worker process of a DataLoader that has ended, or does not answer in time; or its error, which is only text."""


class NotSupportedError(LazytError, NotImplementedError):
    """`not supported: X, because Y`: an honest refusal at the user's line."""


class KernelError(LazytError, RuntimeError):
    """Compiled code of a user's that cannot be loaded, or that reports a failure at the sync."""


class OutOfMemory(LazytError, MemoryError):
    """No memory for a sync; everything that was pending still is."""


class Recorded(NamedTuple):
    """The recorded operation that an error comes from.

    site: its line; step: its position in the program, -1 where only the line is known; backward: whether the error is
    of its derivative.
    """

    site: Any = None
    step: int = -1
    backward: bool = False


def recorded_at(error: BaseException, site: Any, step: int = -1, backward: bool = False) -> None:
    """Say which recorded operation an error comes from: what does not depend on it can still be computed.

    `step`: the operation's position in the program that was planned, if its plan may run for other lines too.
    """
    error._lazyt_site = Recorded(site, step, backward)  # type: ignore[attr-defined]


def recorded_of(error: BaseException) -> Recorded:
    """The recorded operation that an error comes from."""
    found: Recorded = getattr(error, "_lazyt_site", Recorded())
    return found


def site_of(error: BaseException) -> Any:
    """The recorded line whose data an error comes from, or None."""
    return recorded_of(error).site


def found_at(error: BaseException, name: str, site: Any, step: int = -1, backward: bool = False) -> None:
    """Have an error say which recorded operation it is of; one that says so stays as it is."""
    if site_of(error) is not None:
        return
    recorded_at(error, site, step, backward)
    text = f"{name}, recorded at {site}; found at the sync"
    if isinstance(error, LazytError) and error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({text})", *error.args[1:])
    else:
        error.add_note(text)


def relocate(error: BaseException, sites: Callable[[], Sequence[Any]], whole: bool = False) -> None:
    """Name the line that recorded the operation in the program that ran, not in the one that was planned.

    whole: positions in that program are those in the trace, and stay known.
    """
    site, step, backward = recorded_of(error)
    if step < 0:
        return
    here = sites()[step]
    recorded_at(error, here, step if whole else -1, backward)
    if here == site:
        return
    name, called = (getattr(s, "name", "") for s in (site, here))
    if name and called and error.args and str(error.args[0]).startswith(f"{name}: "):
        error.args = (called + error.args[0][len(name) :], *error.args[1:])
    error.args = tuple(a.replace(str(site), str(here)) if isinstance(a, str) else a for a in error.args)
    if hasattr(error, "__notes__"):
        error.__notes__ = [n.replace(str(site), str(here)) for n in error.__notes__]


def relocated(error: Exception, sites: Sequence[Any] | None) -> Exception:
    """The error of work that was enqueued, for its program's lines where they are known."""
    if sites is not None:
        relocate(error, lambda: sites)
    return error


# Kinds of errors that no user causes where they come from lazyt's own lines.
_OURS = (AttributeError, NameError, KeyError, TypeError, AssertionError, RecursionError)


def is_ours(error: BaseException) -> bool:
    """Whether an error is a mistake of lazyt's own: of such a kind, and raised in one of its modules."""
    if isinstance(error, LazytError):
        return isinstance(error, LazytInternalError)
    t = error.__traceback__
    while t is not None and t.tb_next is not None:
        t = t.tb_next
    if t is None or not isinstance(error, _OURS):
        return False
    f = t.tb_frame
    return str(f.f_globals.get("__name__")).startswith("lazyt.") or f.f_code.co_filename.startswith("<lazyt ")


# What a plan may fail by that is nobody's fault, and may be gone the next time.
_PASSING = (MemoryError, OSError, ImportError, Warning)


# Packages that planning calls.
_OWN = {"lazyt", "llvmlite", "numpy", "cupy", "cudnn", "ml_dtypes"}


def failed_to_plan(error: Exception) -> None:
    """Say that an error came out of planning: it is a fault of lazyt's own, unless the code of a user raised it.

    That is a signal handler (a timeout), or a function that planning asks.
    """
    if isinstance(error, _PASSING) or (isinstance(error, LazytError) and not isinstance(error, LazytInternalError)):
        return
    if not is_from_outside(error) and not is_out_of_frames(error):
        error._lazyt_fault = True  # type: ignore[attr-defined]


def is_from_outside(error: BaseException) -> bool:
    """Whether code that is neither lazyt's nor of a package that planning calls raised an error, or was under way."""
    t, name = error.__traceback__, ""
    while t is not None:
        f, t = t.tb_frame, t.tb_next
        name = str(f.f_globals.get("__name__"))
        package = name.partition(".")[0]
        own = package in _OWN or package in sys.stdlib_module_names or f.f_code.co_filename.startswith("<lazyt ")
        if not own or package == "__main__":
            return True
    return not name or name == "threading"  # no thread can be started


def is_lasting(error: Exception, act: Callable[[], object]) -> bool:
    """Whether `act`, which raised an error, raises such a one again: if not, a handler of signals raised it."""
    try:
        act()
    except Exception as again:  # noqa: BLE001 - only whether it is raised is asked
        return type(again) is type(error)
    return False


# A sync with fewer frames left than this may run out of them because of where it was called.
FRAMES = 400


def is_out_of_frames(error: BaseException) -> bool:
    """Whether a RecursionError comes of the depth at which lazyt was called, rather than of lazyt's own frames."""
    if not isinstance(error, RecursionError):
        return False
    frame, depth = sys._getframe(1), 0
    while (back := frame.f_back) is not None:
        frame, depth = back, depth + 1
    return sys.getrecursionlimit() - depth < FRAMES


def is_fault(error: BaseException) -> bool:
    """Whether a sync failed by a fault of lazyt's own: neither by its data nor for want of memory."""
    if is_out_of_frames(error):
        return False
    return getattr(error, "_lazyt_fault", False) or (is_ours(error) and site_of(error) is None)


REPORT = (
    "this is a fault of lazyt's own. Each value that was pending is computed by itself when it is read, and everything "
    "else goes on. LAZYT_DEBUG=no-fuse may help, and says where it is from (docs/architecture.md, Switches). Please "
    "report it, with this traceback and what lazyt.explain() says of the program"
)


def described(error: Exception) -> LazytInternalError:
    """The error of a sync that failed by a fault of lazyt's own."""
    what = str(error) if isinstance(error, LazytInternalError) else f"{type(error).__name__}: {error}"
    return LazytInternalError(what if REPORT in what else f"{what}; {REPORT}")


class LazytInternalError(LazytError, AssertionError):
    """An invariant of lazyt's own broke: a bug to report."""


class LazytWarning(UserWarning):
    """Base of the warnings."""
