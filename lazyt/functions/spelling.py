"""`spelling("torch")`: calls that PyTorch reads in another way are errors that say both readings.

Names, arguments and defaults of lazyt are NumPy's. Some calls of PyTorch's are legal here too and mean something else;
`RULES` lists them. While the mode is on, the functions and methods that it names are replaced by ones that look at
their arguments first; otherwise nothing is different. docs/from-pytorch.md has the list as a table.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, Self

import numpy as np

from lazyt.errors import LazytError, LazytWarning, NotSupportedError
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.call_site import user_site
from lazyt.tracing.program import Slot
from lazyt.tracing.steps import hooks
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Step
from lazyt.tracing.tracebacks import api_boundary

__all__ = ["SpellingError", "spelling"]


class SpellingError(LazytError, TypeError):
    """Under `spelling("torch")`: a call that means one thing here and another in PyTorch."""


class Rule(NamedTuple):
    """A call that two libraries read differently."""

    places: tuple[str, ...]  # where it is found: `Tensor.split`, `lazyt.split`
    means: str  # whether a call is one of them, by its arguments behind the tensor; a key of `_TESTS`
    call: str  # an example, and what it means here and in PyTorch
    here: str
    there: str
    write: str  # what means PyTorch's, or can mean nothing else


def _ints(args: tuple[Any, ...]) -> bool:
    return bool(args) and all(type(a) is int for a in args)


_TESTS: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], bool]] = {
    "positional": lambda args, more: bool(args),
    "integer": lambda args, more: type(args[0]) is int if args else False,
    "two integers": lambda args, more: len(args) == 2 and _ints(args),
    "no ddof": lambda args, more: not {"ddof", "correction"} & more.keys(),
    "no axis": lambda args, more: "axis" not in more,
    "no axis at all": lambda args, more: not args and not {"axis", "dim"} & more.keys(),
    "no indexing": lambda args, more: "indexing" not in more,
    "no bins": lambda args, more: not args and "bins" not in more,
    "no dtype": lambda args, more: "dtype" not in more,
    "a flag": lambda args, more: bool(args) and type(args[0]) is bool,
    "any": lambda args, more: True,
}

RULES = (
    Rule(("Tensor.split", "lazyt.split"), "positional", "x.split(2)", "two equal parts", "parts of two rows",
         "lt.split(x, indices_or_sections=range(2, len(x), 2)), or indices_or_sections=2 for two parts"),
    Rule(("Tensor.repeat",), "positional", "x.repeat(2, 1)", "each element twice, along axis 1",
         "the whole twice along axis 0", "lt.tile(x, (2, 1)), or lt.repeat(x, 2, axis=1)"),
    Rule(("Tensor.max", "lazyt.max", "Tensor.min", "lazyt.min"), "integer", "v, i = x.max(1)", "the values alone",
         "(values, indices)", "x.max(axis=1) and x.argmax(axis=1)"),
    Rule(("Tensor.std", "lazyt.std", "Tensor.var", "lazyt.var"), "no ddof", "x.std()", "divided by n",
         "divided by n - 1", "x.std(ddof=1), or ddof=0"),
    Rule(("Tensor.transpose",), "two integers", "x.transpose(0, 1)", "the axes in this order: x itself, if it has two",
         "the two axes swapped", "x.swapaxes(0, 1), or x.permute_dims((0, 1))"),
    Rule(("lazyt.equal",), "any", "lt.equal(x, y)", "an array, element by element", "one bool, of the whole",
         "x == y, or lt.array_equal(x, y)"),
    Rule(("Tensor.count_nonzero",), "two integers", "x.count_nonzero(0, 1)", "along axis 0, which stays",
         "along both axes", "x.count_nonzero(axis=(0, 1))"),
    Rule(("lazyt.sort",), "no axis", "lt.sort(x)", "the values alone", "(values, indices)",
         "lt.sort(x, axis=-1) and lt.argsort(x, axis=-1)"),
    Rule(("lazyt.unique",), "a flag", "lt.unique(x, True)", "(values, where each comes first)", "the values, sorted",
         "lt.unique(x), or return_index=True"),
    Rule(("lazyt.median", "lazyt.nanmedian"), "no axis", "lt.median(x)",
         "the mean of the two in the middle", "the lower of the two",
         "lt.quantile(x, 0.5, method='lower'), or lt.median(x, axis=None)"),
    Rule(("lazyt.nonzero",), "any", "lt.nonzero(x)", "a tuple, an array for each axis",
         "one matrix, a row for each element", "lt.argwhere(x), or lt.where(x) for the tuple"),
    Rule(("lazyt.meshgrid",), "no indexing", "lt.meshgrid(x, y)", "indexing='xy'", "indexing='ij'",
         "lt.meshgrid(x, y, indexing='ij')"),
    Rule(("lazyt.tril_indices", "lazyt.triu_indices"), "integer", "lt.tril_indices(3, 4)",
         "those of a square of 3, from diagonal 4, as a tuple", "those of 3 rows of 4, as one array",
         "lt.stack(lt.tril_indices(3, m=4)), or k= for the diagonal"),
    Rule(("lazyt.histogram",), "no bins", "lt.histogram(x)", "10 bins, counted in integers",
         "100 bins, counted in floats", "lt.histogram(x, bins=100)"),
    Rule(("lazyt.nn.functional.one_hot",), "no dtype", "F.one_hot(y, 3)", "float32", "int64",
         "F.one_hot(y, 3, dtype=lt.int64), or lt.float32"),
    Rule(("lazyt.nn.Softmax", "lazyt.nn.LogSoftmax", "lazyt.nn.Softmin"), "no axis at all", "nn.Softmax()",
         "along the last axis", "along axis 0 or 1, by the number of axes", "nn.Softmax(-1)"),
    Rule(("lazyt.softmax", "lazyt.log_softmax", "lazyt.nn.functional.softmax", "lazyt.nn.functional.log_softmax",
          "lazyt.nn.functional.softmin"),
         "no axis at all", "F.softmax(x)", "along the last axis", "along axis 0 or 1, by the number of axes",
         "F.softmax(x, -1)"),
)  # fmt: skip

_plain: dict[str, Any] = {}  # what stood in the places that are replaced now
_reported: set[str] = set()


class _Mode:
    """The mode as it was, for the end of a `with` block."""

    def __init__(self, before: str) -> None:
        self.before = before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        _switch(self.before)


def spelling(library: str) -> _Mode:
    """`spelling("torch")`: calls that PyTorch would read in another way raise SpellingError; "numpy" ends that.

    Such as `x.split(2)`, `x.repeat(2, 1)`, `x.max(1)`, `x.std()`, `x.transpose(0, 1)` (docs/from-pytorch.md has all).
    What becomes float64 here and float32 in PyTorch is a warning, once for each line that records it for the first
    time: a NumPy scalar, as in `x * np.float64(2)`, and integers, as in `lt.arange(3) * 0.5`. So is a product of two
    floating dtypes, such as float64 data and a layer's float32 weights. For the whole process, or for a `with` block.
    NotSupportedError for another name.

    >>> import lazyt as lt
    >>> with lt.spelling("torch"):
    ...     lt.ones((2, 2)).std()
    Traceback (most recent call last):
    ...
    lazyt.functions.spelling.SpellingError: x.std(): divided by n here, and divided by n - 1 in PyTorch; write ...
    """
    if library not in ("torch", "numpy"):
        raise NotSupportedError(f"spelling: not supported: {library!r}, because there are 'torch' and 'numpy'")
    before = "torch" if _plain else "numpy"
    _switch(library)
    return _Mode(before)


def _switch(library: str) -> None:
    if library == "torch" and not _plain:
        for place, rule in [(place, r) for r in RULES for place in r.places]:
            space, name = _space(place)
            _plain[place] = getattr(space, name)
            setattr(space, name, _replaced(_plain[place], rule))
        _plain["as_tensor"], hooks.as_tensor = hooks.as_tensor, _as_operand
        hooks.made_step = _report_widening
    elif library == "numpy" and _plain:
        hooks.as_tensor = _plain.pop("as_tensor")
        hooks.made_step = None
        while _plain:
            place, plain = _plain.popitem()
            space, name = _space(place)
            setattr(space, name, plain)


def _space(place: str) -> tuple[Any, str]:
    module, _, name = place.rpartition(".")
    return (Tensor if module == "Tensor" else sys.modules[module]), name


def _replaced(plain: Any, rule: Rule) -> Any:
    """A function, or a class, that looks at its arguments first; for lazyt's own calls as it was."""
    first = 0 if isinstance(plain, type) else 1
    test = _TESTS[rule.means]

    def check(args: tuple[Any, ...], more: dict[str, Any]) -> None:
        caller = sys._getframe(2)
        ours = str(caller.f_globals.get("__name__")).startswith("lazyt.")
        if not (ours and not caller.f_code.co_filename.startswith("<doctest")) and test(args[first:], more):
            _refuse(rule)

    if isinstance(plain, type):

        class Checked(plain):  # type: ignore[misc]
            def __init__(self, *args: Any, **more: Any) -> None:
                check(args, more)
                super().__init__(*args, **more)

        Checked.__name__, Checked.__qualname__, Checked.__doc__ = plain.__name__, plain.__qualname__, plain.__doc__
        return Checked

    @wraps(plain)
    def call(*args: Any, **more: Any) -> Any:
        check(args, more)
        return plain(*args, **more)

    return call


@api_boundary
def _refuse(rule: Rule) -> None:
    raise SpellingError(f"{rule.call}: {rule.here} here, and {rule.there} in PyTorch; write {rule.write}")


_WIDE = {dtypes.float64: (dtypes.float32, *dtypes.HALVES), dtypes.complex128: (dtypes.complex64,)}


def _as_operand(x: Any, device: Any, beside: Any) -> Any:
    if isinstance(x, np.generic) and x.dtype in _WIDE:
        narrow = [t.dtype for t in beside if isinstance(t, Handle) and t.dtype in _WIDE[x.dtype]]
        if narrow:
            _report(
                f"a NumPy scalar of dtype {x.dtype} makes {narrow[0]} {x.dtype}",
                "write float(...), a number of Python's, which takes the tensor's dtype",
            )
    return _plain["as_tensor"](x, device, beside)


# Those whose operands have one dtype in PyTorch.
_PRODUCTS = frozenset(("conv1d", "conv2d", "conv3d", "linear", "matmul"))


def _report_widening(s: Step) -> None:
    """Warn of an operation on integers, or on them and floats, that is wider here than in PyTorch."""
    made = s.slots[0].dtype
    of = [x.dtype for x in s.operands if isinstance(x, Slot)]
    if s.op.name in _PRODUCTS and len({d for d in of if dtypes.kind(d) in "fc"}) > 1:
        _report(
            f"{s.op.name} of {' and '.join(map(str, of))} is {made}, and an error in PyTorch",
            "convert one, as in x.float()",
        )
        return
    if made not in _WIDE or made in of or made in s.statics or not any(dtypes.kind(d) in "iub" for d in of):
        return
    _report(
        f"{s.op.name} of {' and '.join(dict.fromkeys(map(str, of)))} is {made}, and of PyTorch's default dtype there",
        "convert the integers first, x.float()",
    )


def _report(what: str, write: str) -> None:
    """A warning, once for each line of the user's."""
    line = str(user_site())
    if line not in _reported:
        _reported.add(line)
        warnings.warn(LazytWarning(f"{what} at {line}: {write}"), stacklevel=2)
