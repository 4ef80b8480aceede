"""Methods that lazyt and PyTorch both have and read differently: `x.max(1)`, `x.split(2)`, `x.transpose(0, 1)`.

In files that have `lazyt.torch` among their names they mean PyTorch's; elsewhere they stay NumPy's. Methods take
arguments by PyTorch's names too, `dim=` for `axis=`, in any file.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.runtime.tensor import Tensor
from lazyt.torch import functions as f, shapes
from lazyt.torch.keywords import AT_OF, placed, positions, renamed, takes_axis, with_names
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable


def _repeat(input: Any, *repeats: Any) -> Tensor:
    """The whole, so many times along each axis."""
    return lt.tile(input, repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats)


# What PyTorch means.
READ = {
    **{
        g.__name__: g
        for g in (
            f.max, f.min, f.split, f.std, f.var, f.transpose, f.sum, f.mean, f.prod, f.amax, f.amin, f.argmax, f.argmin,
            f.all, f.any, f.count_nonzero, f.logsumexp, f.argsort, f.flip, f.roll, f.diagonal, f.diff, f.flatten,
            f.conj, f.cumsum, f.cumprod, f.softmax, f.log_softmax, f.trace, f.broadcast_to, f.index_add, f.scatter_add,
            f.squeeze,
        )
    },
    "expand": shapes.expand,
    "repeat": _repeat,
}  # fmt: skip
_PLAIN: dict[str, Any] = {}
# Whether a file is written for PyTorch, by the code that calls.
_files: weakref.WeakKeyDictionary[types.CodeType, bool] = weakref.WeakKeyDictionary()


def is_of_torch(frame: types.FrameType) -> bool:
    """Whether the file of a frame has `lazyt.torch`, or a module within it, among its names."""
    code = frame.f_code
    found = _files.get(code)
    if found is None:
        found = any(
            isinstance(x, types.ModuleType) and x.__name__.partition(".torch")[0] == "lazyt" and ".torch" in x.__name__
            for x in [*frame.f_globals.values()]
        )
        if found or code.co_name != "<module>":  # the import of a module may still come
            _files[code] = found
    return found


def _read(plain: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    at = positions(theirs, plain.__name__)

    @functools.wraps(plain)
    def method(*args: Any, **options: Any) -> Any:
        try:
            if "axis" not in options and is_of_torch(sys._getframe(1)):
                return theirs(*(placed(args, options, at) if options else args), **options)
            return plain(*args, **(renamed(options) if options else options))
        except Exception as error:
            filter_traceback(error, True, plain.__name__)
            raise

    return filters_itself(method)


def attach() -> None:
    """Put the methods in the place of lazyt's."""
    if _PLAIN:
        return
    for name, g in [*vars(Tensor).items()]:
        if name in READ:
            _PLAIN[name] = g
            setattr(Tensor, name, _read(g, READ[name]))
        elif not name.startswith("_") and callable(g) and (name in AT_OF or takes_axis(g)):
            _PLAIN[name] = g
            setattr(Tensor, name, with_names(g, name))


def detach() -> None:
    """Put lazyt's methods back."""
    while _PLAIN:
        name, plain = _PLAIN.popitem()
        setattr(Tensor, name, plain)
