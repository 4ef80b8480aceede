"""Methods that lazyt and PyTorch both have and read differently: `x.max(1)`, `x.split(2)`, `x.transpose(0, 1)`.

In files that have `lazyt.torch` among their names they mean PyTorch's; elsewhere they stay NumPy's. Methods take
arguments by PyTorch's names too, `dim=` for `axis=`, in any file.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import lazyt as lt
from lazyt.nn import parameter
from lazyt.runtime.tensor import Tensor
from lazyt.torch import functions as f, indexing, names, promotion, shapes
from lazyt.torch.keywords import AT_OF, placed, positions, renamed, takes_axis, with_names, with_numpy_names
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
    **{name: names.find(name) for name in ("clamp", "clip", "maximum", "minimum", "pow")},
    "expand": shapes.expand,
    "repeat": _repeat,
}  # fmt: skip
_PLAIN: dict[str, Any] = {}


class _File(NamedTuple):
    """What is known of the names that a function sees."""

    code: weakref.ref[types.CodeType]
    names: int  # the identity of its globals
    size: int  # how many they were
    found: str | None  # the name of a module of PyTorch's among them


# By the identity of the code that calls: code of two files may be equal.
_files: dict[int, _File] = {}


def _is_space(x: Any) -> bool:
    """Whether it is `lazyt.torch`, or a module within it."""
    return isinstance(x, types.ModuleType) and f"{x.__name__}.".startswith("lazyt.torch.")


def is_of_torch(frame: types.FrameType) -> bool:
    """Whether the file of a frame has `lazyt.torch`, or a module within it, among its names."""
    code, names = frame.f_code, frame.f_globals
    key = id(code)
    known = _files.get(key)
    if known is not None and known.code() is code and known.names == id(names):
        if known.found is None:
            if known.size == len(names):
                return False
        elif _is_space(names.get(known.found)):
            return True
    found = next((name for name, x in [*names.items()] if _is_space(x)), None)
    if found is not None or code.co_name != "<module>":  # the import of a module may still come
        ended = weakref.ref(code, lambda _: _files.pop(key, None))
        _files[key] = _File(ended, id(names), len(names), found)
    return found is not None


def _read(plain: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    at = positions(theirs, plain.__name__)
    theirs = with_numpy_names(theirs)
    others = _only_numpys(plain, theirs)

    @functools.wraps(plain)
    def method(*args: Any, **options: Any) -> Any:
        try:
            if (not options or others.isdisjoint(options)) and is_of_torch(sys._getframe(1)):
                return theirs(*(placed(args, options, at) if options else args), **options)
            return plain(*args, **(renamed(options) if options else options))
        except Exception as error:
            filter_traceback(error, True, plain.__name__)
            raise

    return filters_itself(method)


@functools.cache
def _only_numpys(plain: Callable[..., Any], theirs: Callable[..., Any]) -> frozenset[str]:
    """Names of arguments that only NumPy's method has, as `ddof`: a call that has one is NumPy's in any file."""
    return frozenset(inspect.signature(plain).parameters).difference(
        inspect.signature(theirs).parameters, ("axis", "keepdims")
    )


def attach() -> None:
    """Put the methods in the place of lazyt's."""
    if _PLAIN:
        return
    indexing.attach(is_of_torch)
    promotion.attach(is_of_torch)
    parameter.strict[:] = [is_of_torch]
    for name, g in [*vars(Tensor).items()]:
        if name in READ:
            _PLAIN[name] = g
            setattr(Tensor, name, _read(g, READ[name]))
        elif not name.startswith("_") and callable(g) and (name in AT_OF or takes_axis(g)):
            _PLAIN[name] = g
            setattr(Tensor, name, with_names(g, name))


def detach() -> None:
    """Put lazyt's methods back."""
    indexing.detach()
    promotion.detach()
    parameter.strict.clear()
    while _PLAIN:
        name, plain = _PLAIN.popitem()
        setattr(Tensor, name, plain)
