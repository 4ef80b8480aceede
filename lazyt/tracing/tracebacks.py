"""Traceback filtering: an error that lazyt raises on purpose ends at the user's line.

A public function (an *API boundary*) catches what leaves it, takes the frames of lazyt off the traceback, and raises it
again by a bare `raise`, which adds no frame. From CPython 3.11 on a `try` costs nothing until something is raised.
Frames of the user's functions that lazyt calls stay. `LAZYT_DEBUG=traceback` keeps all frames, and so does an error
that lazyt does not raise on purpose: LazytInternalError, a failed assertion, or what comes out of an expression.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable
from opcode import opmap
from typing import Any, TypeVar, cast

from lazyt.config import general as settings
from lazyt.errors import LazytError, LazytInternalError, LazytWarning, OutOfMemory, site_of
from lazyt.tracing.public_names import KEYWORDS, keyword_error, say_as_written

F = TypeVar("F", bound=Callable[..., Any])
_RAISE = opmap["RAISE_VARARGS"]
# Modules of lazyt that are as a user's: they are run to test what others wrote.
_USERS = ("lazyt.testing", "lazyt.conftest")
# Parameters that PyTorch has other names for.
_HINTED = frozenset(KEYWORDS.values())
_LIBRARIES = frozenset(("llvmlite", "ml_dtypes", "numpy"))


def _is_lazyts(frame: types.FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return (name == "lazyt" or name.startswith("lazyt.")) and not name.startswith(_USERS)


def _is_library(frame: types.FrameType) -> bool:
    """Whether a frame that lazyt called is of a library of its own, rather than of a function that it was given."""
    name = str(frame.f_globals.get("__name__")).partition(".")[0]
    return name in _LIBRARIES or name in sys.stdlib_module_names


def _is_raised_here(tb: types.TracebackType | None) -> bool:
    """Whether the innermost frame is lazyt's and stands at a `raise` statement."""
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb is not None and _is_lazyts(tb.tb_frame) and tb.tb_frame.f_code.co_code[tb.tb_lasti] == _RAISE


def _is_on_purpose(error: BaseException) -> bool:
    if isinstance(error, LazytError):
        return not isinstance(error, LazytInternalError)
    if isinstance(error, LazytWarning) or hasattr(error, "_lazyt_filtered"):
        return True
    # NOTE: the frames of lazyt tell where an error of planning that it did not expect is from.
    if not isinstance(error, Exception) or isinstance(error, AssertionError) or hasattr(error, "_lazyt_fault"):
        return False
    return site_of(error) is not None or _is_raised_here(error.__traceback__)


def _without_lazyt(tb: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without frames of lazyt, and of the libraries that it called."""
    kept: list[types.TracebackType] = []
    inside = False
    while tb is not None:
        if _is_lazyts(tb.tb_frame):
            inside = True
        elif not inside or not _is_library(tb.tb_frame):
            inside = False
            kept.append(tb)
        tb = tb.tb_next
    below = None
    for entry in reversed(kept):
        entry.tb_next = below
        below = entry
    return below


def filter_traceback(error: BaseException, calling: bool = False, name: str = "") -> None:
    """Take the frames of lazyt off an error that it raised on purpose, and off the errors that this came of.

    The handler that calls this then says `raise`. `calling`: the handler's function passed the user's arguments on and
    does nothing else, so a TypeError of its own frame is about these. `name`: the public name of the boundary.
    """
    if name and _is_of_memory(error) and _asked_by_lazyt(error):
        raise OutOfMemory(f"{name}: {error}".removesuffix(": ")) from None
    say_as_written(error, name)
    if settings["traceback"]:
        return
    tb = error.__traceback__
    if calling and type(error) is TypeError and tb is not None and tb.tb_next is None:
        error._lazyt_filtered = True  # type: ignore[attr-defined]
    seen: set[int] = set()
    chain: BaseException | None = error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if _is_on_purpose(chain):
            if not isinstance(chain, LazytError | LazytWarning):
                # NOTE: the frame that told so is gone at the next boundary.
                chain._lazyt_filtered = True  # type: ignore[attr-defined]
            chain.__traceback__ = _without_lazyt(chain.__traceback__)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


def _is_of_memory(error: BaseException) -> bool:
    """Whether this is how Python or NumPy refuses memory."""
    too_big = type(error) is ValueError and str(error).startswith("array is too big")
    return too_big or (isinstance(error, MemoryError) and not isinstance(error, LazytError))


def _asked_by_lazyt(error: BaseException) -> bool:
    """Whether the memory was asked for by lazyt, for a size that the user gave, not by a function of the user's."""
    tb, package = error.__traceback__, ""
    while tb is not None:
        found = str(tb.tb_frame.f_globals.get("__name__")).partition(".")[0]
        package = found if found != "numpy" else package
        tb = tb.tb_next
    return package == "lazyt"


# The file that frames of boundaries say.
BOUNDARY = "<lazyt boundary>"
# A function and its public name -> the boundary: the same object in every namespace that has it.
_guarded: dict[tuple[Callable[..., Any], str], Any] = {}

_TEXT = """
def make(f, filter_traceback, name):
    def call({parameters}):
        try:
            return f({arguments})
        except Exception as _error:
            filter_traceback(_error, True, name)
            raise
    return call
"""


@functools.cache
def _maker(
    template: str, first: int, more: int, named: tuple[str, ...], rest: bool, options: bool
) -> Callable[..., Any]:
    """What makes functions with so many parameters (positional-only, others), and keyword-only ones, of a template."""
    plain = [f"_{i}" for i in range(first + more)]
    starred, doubled = ["*_rest"] * rest, ["**_options"] * options
    bar = starred or ["*"] * bool(named)
    parameters = [*plain[:first], *["/"] * bool(first), *plain[first:], *bar, *named, *doubled]
    arguments = [*plain, *starred, *(f"{n}={n}" for n in named), *doubled]
    text = template.format(
        parameters=", ".join(parameters), arguments=", ".join(arguments),
        positional="".join(f"{x}, " for x in (*plain, *starred)),
        named="".join(f"{x}, " for x in (*(f"{n!r}: {n}" for n in named), *doubled)),
    )  # fmt: skip
    space: dict[str, Any] = {}
    exec(compile(text, BOUNDARY, "exec"), space)
    make: Callable[..., Any] = space["make"]
    return make


def with_parameters_of(f: types.FunctionType, template: str, *given: Any) -> types.FunctionType:
    """The function `call` of a template's `make(f, *given)`, with f's parameters, globals and name."""
    c = f.__code__
    n, k = c.co_argcount, c.co_kwonlyargcount
    made = _maker(
        template, c.co_posonlyargcount, n - c.co_posonlyargcount, c.co_varnames[n : n + k],
        bool(c.co_flags & inspect.CO_VARARGS), bool(c.co_flags & inspect.CO_VARKEYWORDS),
    )(f, *given)  # fmt: skip
    code = made.__code__
    code = code.replace(
        co_varnames=(*c.co_varnames[:n], *code.co_varnames[n:]), co_name=f.__name__, co_qualname=f.__qualname__
    )
    call = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, made.__closure__)
    call.__kwdefaults__ = f.__kwdefaults__
    functools.update_wrapper(call, f)
    return call


def filters_itself(f: F) -> F:
    """Mark a function whose body has the handler of a boundary, because a frame around it would cost or change it."""
    f._filters = True  # type: ignore[attr-defined]
    return f


def _with_hints(f: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A boundary that says how an argument by PyTorch's name is spelled; it takes any, to hear of those."""

    def call(*args: Any, **options: Any) -> Any:
        try:
            try:
                return f(*args, **options)
            except TypeError as error:
                hint = keyword_error(error, name, options)
                if hint is None:
                    raise
                raise hint from None
        except Exception as error:
            filter_traceback(error, True, name)
            raise

    return call


def api_boundary(f: F, name: str = "") -> F:
    """`f` as a public function whose errors end at the user's line. Its module's globals make the frame lazyt's.

    It has f's own parameters, so that a call costs little more, and a wrong one is an error of the user's line.
    """
    assert isinstance(f, types.FunctionType), "of Python's, so that its parameters are known"
    c = f.__code__
    named = c.co_varnames[: c.co_argcount + c.co_kwonlyargcount]
    if not c.co_flags & inspect.CO_VARKEYWORDS and not _HINTED.isdisjoint(named):
        return cast("F", filters_itself(functools.update_wrapper(_with_hints(f, name or f.__name__), f)))
    return cast("F", filters_itself(with_parameters_of(f, _TEXT, filter_traceback, name or f.__name__)))


def is_boundary(f: object) -> bool:
    """Whether errors that leave this end at the user's line already, or it is no Python function."""
    return not isinstance(f, types.FunctionType) or hasattr(f, "_filters")


def guard_functions(space: dict[str, Any], names: Iterable[str], make: Callable[..., Any] = api_boundary) -> None:
    """Make the functions of a public namespace boundaries, by `make`; each is pickled by its public name."""
    for name in names:
        f = space[name]
        if is_boundary(f):
            continue
        known = _guarded.get((f, name))
        if known is None:
            known = _guarded[f, name] = make(f, name)
            known.__module__, known.__qualname__ = space["__name__"], name
        space[name] = known


def guard_methods(cls: type, unguarded: Collection[str] = (), make: Callable[..., Any] = api_boundary) -> None:
    """Make the public methods of a class boundaries: those that users call, and those that Python calls for them.

    Methods and getters in `unguarded` stay as they are.
    """
    for name, f in list(vars(cls).items()):
        if (name.startswith("_") and not name.endswith("__")) or name == "__dict__":
            continue
        if isinstance(f, property):
            accessors: Any = (f.fget, f.fset, f.fdel)
            get, set_, delete = (p if is_boundary(p) else api_boundary(p) for p in accessors)
            setattr(cls, name, property(f.fget if name in unguarded else get, set_, delete, f.__doc__))
        elif name in unguarded:
            continue
        elif isinstance(f, staticmethod):
            setattr(cls, name, staticmethod(api_boundary(f.__func__)))
        elif not is_boundary(f):
            setattr(cls, name, make(f, name))


def guard_classes(space: dict[str, Any], names: Iterable[str]) -> None:
    """Make the public methods of a namespace's classes boundaries, and those that they inherit within lazyt."""
    classes = dict.fromkeys(c for n in names if isinstance(space[n], type) for c in space[n].__mro__)
    for cls in classes:
        if cls.__module__.startswith("lazyt."):
            guard_methods(cls, ("forward",))
