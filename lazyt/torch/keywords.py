"""Arguments by PyTorch's names: `torch.matmul(input=x, other=y)`, `F.relu(input=x)`, `x.sum(dim=1)`.

lazyt's own functions have NumPy's names of them, or take arrays by position alone, as the Array API does.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from lazyt.tracing.public_names import KEYWORDS
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# lazyt's names of the array that comes first.
_ARRAYS = frozenset(("A", "a", "m", "v", "x", "x1", "z"))
# PyTorch's names of arguments -> their positions here.
_AT = {
    "input": 0, "A": 0, "tensor": 0, "other": 1, "exponent": 1, "values": 1, "vec2": 1, "weight": 1, "B": 1,
    "a": 0, "x": 0, "x1": 0, "x2": 1,
}  # fmt: skip
# NumPy's names of arguments, which PyTorch's functions take too -> PyTorch's.
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "a": "input", "x": "input", "x1": "input", "x2": "other"}
# Those of one function or method: taken by position where all before it are given.
AT_OF: dict[str, dict[str, int]] = {
    "dot": {"tensor": 1},
    "expand": {"size": 1},
    "eye": {"n": 0, "m": 1},
    "moveaxis": {"source": 1, "destination": 2},
    "permute": {"dims": 1},
    "repeat": {"repeats": 1},
    "requires_grad_": {"requires_grad": 1},
    "reshape": {"shape": 1},
    "split": {"split_size": 1},
    "swapaxes": {"axis0": 1, "axis1": 2},
    "tile": {"dims": 1},
    "view": {"size": 1},
    # Methods of two tensors.
    **{name: {} for name in ("isclose", "matmul", "maximum", "minimum", "pow")},
    **{name: {"size": 1} for name in ("new_empty", "new_ones", "new_zeros")},
}


@functools.cache
def _names_of(g: Callable[..., Any]) -> tuple[str, ...]:
    """What a function takes by name, behind the name of its first argument."""
    try:
        given = [*inspect.signature(g).parameters.values()]
    except (TypeError, ValueError):
        return ("",)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return (given[0].name if given else "", *(p.name for p in given if p.kind in named))


def takes_axis(g: Callable[..., Any]) -> bool:
    """Whether a function has an argument that PyTorch names otherwise."""
    return not set(KEYWORDS.values()).isdisjoint(_names_of(g)[1:])


def is_named_otherwise(g: Callable[..., Any], name: str) -> bool:
    """Whether a function of lazyt's takes some argument by another name than PyTorch's function of this name."""
    return name in AT_OF or _names_of(g)[0] in _ARRAYS or takes_axis(g)


def positions(g: Callable[..., Any], name: str) -> dict[str, int]:
    """PyTorch's names of arguments that `g` takes by position."""
    known = _names_of(g)[1:]
    return {k: at for k, at in _AT.items() if k not in known} | AT_OF.get(name, {})


def placed(args: tuple[Any, ...], options: dict[str, Any], at: Mapping[str, int]) -> tuple[Any, ...]:
    """The arguments, behind them those of `options` that are taken by position: they are taken out there."""
    for name in sorted(at.keys() & options.keys(), key=at.__getitem__):
        if at[name] == len(args):
            args = (*args, options.pop(name))
    return args


def renamed(options: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's names of arguments, `dim`, as lazyt's, `axis`."""
    return {KEYWORDS.get(k, k): v for k, v in options.items()}


def with_names(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that takes its arguments by PyTorch's names too."""
    at, renames = positions(plain, name), takes_axis(plain)

    @functools.wraps(plain)
    def call(*args: Any, **options: Any) -> Any:
        try:
            if options:
                args = placed(args, options, at)
                options = renamed(options) if renames else options
            return plain(*args, **options)
        except Exception as error:
            filter_traceback(error, True, plain.__name__)
            raise

    return filters_itself(call)


@functools.cache
def with_numpy_names(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch's arguments that takes them by NumPy's names too: `axis`, `keepdims`."""
    known = frozenset(inspect.signature(f).parameters)
    also = {theirs: ours for theirs, ours in _NUMPY.items() if ours in known and theirs not in known}
    if not also:
        return f

    @functools.wraps(f)
    def call(*args: Any, **options: Any) -> Any:
        if options and not also.keys().isdisjoint(options):
            # NOTE: where both names are given the second stays, and is refused as an unexpected one.
            options = {k if also.get(k, k) in options else also[k]: v for k, v in options.items()}
        return f(*args, **options)

    return call


def of_module(g: Any, name: str, module: str) -> Any:
    """What a module of PyTorch's has, of lazyt's; pickled by its name there where it takes arguments by more names."""
    if not callable(g) or isinstance(g, type) or not is_named_otherwise(g, name):
        return g
    found = with_names(g, name)
    found.__module__, found.__qualname__ = module, name
    # NOTE: examples are of lazyt's names; in this module `float` is a dtype.
    found.__doc__ = (g.__doc__ or "").partition(">>>")[0].rstrip() or None
    return found
