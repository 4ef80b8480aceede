"""Kinds of objects that a function under `jit` may use, because guards see their changes or they have none.

Everything that is not listed here is refused: iterators, files, locks, random state, weak references, modules of the
standard library with state (`os`, `time`, `random`, `logging`), objects of other libraries' own types.
"""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import os
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

# Kinds whose equal values mean the same, by exact type: a subclass may have attributes.
PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)))
# Constant objects of the standard library, which their `repr` tells apart, by module and name.
_CONSTANTS = frozenset({
    ("fractions", "Fraction"), ("datetime", "date"), ("datetime", "datetime"),
    ("datetime", "time"), ("datetime", "timedelta"), ("datetime", "timezone"),
})  # fmt: skip


class _Pair(NamedTuple):
    first: Any
    second: Any


# Library types whose objects have nothing that changes.
_FIXED = frozenset((
    range, types.CodeType, types.GenericAlias, types.UnionType, re.Pattern, re.Match, np.ufunc,
    operator.itemgetter, operator.attrgetter, operator.methodcaller, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, type(_Pair.first),
))  # fmt: skip
# The type of most of NumPy's functions.
DISPATCHER: Any = type(np.mean)
# Library types that are watched, and may be bases of a user's class: see `_Watch` in call_guards.py.
_WATCHED = frozenset((
    object, type, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, bytearray, slice, property,
    collections.deque, collections.OrderedDict, collections.defaultdict, functools.partial, types.MappingProxyType,
    types.CellType, np.ndarray,
))  # fmt: skip
_ALSO_WATCHED = frozenset({("_contextvars", "ContextVar"), ("_thread", "_local"), ("typing", "NewType")})
# Modules whose classes are written in Python: their objects are read through their attributes, as a user's are.
_ATTRIBUTES = frozenset((
    "_collections_abc", "abc", "argparse", "collections", "collections.abc", "contextlib", "dataclasses", "enum",
    "inspect", "numbers", "types", "typing",
))  # fmt: skip
# Modules of the standard library without state: their functions give equal results for equal arguments.
_PURE = frozenset((
    "__future__", "_abc", "_bisect", "_collections", "_collections_abc", "_functools", "_heapq", "_operator",
    "_struct", "abc", "bisect", "cmath", "collections", "contextlib", "copy", "copyreg", "dataclasses", "enum",
    "fractions", "functools", "heapq", "itertools", "keyword", "math", "numbers", "operator", "re", "string",
    "struct", "types", "typing",
))  # fmt: skip
# NumPy's modules and functions with state, or that read files.
_STATE_OF_NUMPY = ("numpy.random", "numpy.testing", "numpy.ctypeslib")
_FILES_OF_NUMPY = frozenset((
    "DataSource", "fromfile", "fromregex", "genfromtxt", "geterr", "get_printoptions", "load", "loadtxt", "memmap",
    "save", "savetxt", "savez", "savez_compressed", "seterr", "set_printoptions",
))  # fmt: skip
# Builtins that neither read nor write anything but their arguments.
_BUILTINS = frozenset((
    "abs", "all", "any", "bin", "bool", "bytearray", "bytes", "callable", "chr", "classmethod", "complex", "delattr",
    "dict", "divmod", "enumerate", "filter", "float", "format", "frozenset", "getattr", "hasattr", "hex", "int",
    "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "oct", "object", "ord", "pow",
    "property", "range", "reversed", "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum",
    "super", "tuple", "type", "zip", "__build_class__", "__debug__", "__doc__", "__name__", "Ellipsis",
    "NotImplemented",
))  # fmt: skip
_LIBRARIES = frozenset(("lazyt", "numpy", "torch", "jax", "_thread", "_contextvars"))


def is_library(module: object) -> bool:
    """Whether a module is lazyt's, NumPy's, PyTorch's, JAX's or the standard library's."""
    name = str(module).partition(".")[0]
    own = name in _LIBRARIES or name in sys.stdlib_module_names
    return own and name != "__main__" and not str(module).startswith("lazyt.testing")


def is_pure(module: object) -> bool:
    """Whether a library's module has no state, or none that `jit` does not hear of."""
    name = str(module)
    top = name.partition(".")[0]
    return top in _PURE or top == "lazyt" or (top == "numpy" and not name.startswith(_STATE_OF_NUMPY))


def is_pure_builtin(name: str) -> bool:
    """Whether a builtin of this name may be used."""
    found = getattr(builtins, name, None)
    return name in _BUILTINS or (isinstance(found, type) and issubclass(found, BaseException))


def is_constant(x: Any) -> bool:
    """Whether an object is a number or the like, that its type and `repr` tell from others."""
    kind = type(x)
    return kind in PLAIN or isinstance(x, np.dtype | np.generic) or (kind.__module__, kind.__qualname__) in _CONSTANTS


def is_fixed(x: Any) -> bool:
    """Whether an object has nothing that changes."""
    return type(x) in _FIXED or is_constant(x)


def refusal_of_kind(kind: type) -> str:
    """How to call objects of a class that are not watched; '' where they are."""
    for base in kind.__mro__:
        module, name = base.__module__, base.__qualname__
        if not is_library(module) and _is_of_c(base):
            return f"an object of {module}.{name}"
        known = base in _WATCHED or base in _FIXED or (module, name) in _ALSO_WATCHED or module in _ATTRIBUTES
        if known or not is_library(module) or module.startswith("lazyt") or issubclass(base, BaseException):
            continue
        own = f"an object of {kind.__module__}.{kind.__qualname__}"
        return own if base is kind else f"{own}, which is a {module}.{name}"
    if kind.__module__.startswith("lazyt.") and hasattr(kind, "__next__"):
        return f"an iterator of {kind.__module__}.{kind.__qualname__}"
    return ""


def _is_of_c(kind: type) -> bool:
    """Whether a class is written in C: it has descriptors of its own that no statement of Python makes."""
    made = types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType
    getters = types.GetSetDescriptorType
    return any(
        (isinstance(v, made) or (isinstance(v, getters) and k not in ("__dict__", "__weakref__")))
        and v.__objclass__ is kind
        for k, v in vars(kind).items()
    )


def refusal_of_class(kind: type) -> str:
    """How to call a library's class that may not be used; '' for others."""
    module = kind.__module__
    if module == "builtins":
        return (
            ""
            if is_pure_builtin(kind.__name__) or kind in _WATCHED or kind in PLAIN
            else f"the class {kind.__name__!r}"
        )
    if not is_library(module):
        return f"the class {kind.__qualname__!r} of {module}" if _is_of_c(kind) else ""
    known = is_pure(module) or module in _ATTRIBUTES
    return "" if known or kind in _WATCHED or kind in _FIXED else f"the class {kind.__qualname__!r} of {module}"


def refusal_of_function(f: Any) -> str:
    """How to call a function written in C, or a library's, that may not be used; '' for others."""
    owner, name = getattr(f, "__self__", None), getattr(f, "__qualname__", type(f).__name__)
    if owner is not None and not isinstance(owner, types.ModuleType):
        kind = owner if isinstance(owner, type) else type(owner)
        refused = refusal_of_class(kind) if kind is owner else refusal_of_kind(kind)
        # NOTE: an iterator that is reached from outside is refused itself; others were made by the call.
        inside = kind.__module__ in ("builtins", "itertools", "functools", "re")
        return f"the method {name!r} of {refused}" if refused and not inside else ""
    module = owner.__name__ if owner is not None else getattr(f, "__module__", None)
    if module == "builtins":
        return "" if is_pure_builtin(name) else f"the builtin {name!r}"
    if module is None and isinstance(f, types.BuiltinFunctionType):
        return f"the function {name!r}"
    own = is_pure(module) if is_library(module) or isinstance(f, types.BuiltinFunctionType) else True
    own = own and not (str(module).startswith("numpy") and name in _FILES_OF_NUMPY)
    return "" if own else f"the function {name!r} of {module}"


def parts_of(module: types.ModuleType, names: Iterable[str]) -> dict[str, Any]:
    """The modules and functions that a library's module has under some of these names."""
    kinds = types.ModuleType, types.FunctionType, types.BuiltinFunctionType, DISPATCHER, type
    space = vars(module)
    return {n: v for n in names if isinstance(v := space.get(n), kinds)}


_OURS = str(Path(__file__).parent.parent) + os.sep
_THEIRS = str(Path(np.__file__).parent) + os.sep, str(Path(os.__file__).parent) + os.sep
_users: dict[str, bool] = {}


def is_users_file(name: str) -> bool:
    """Whether code of a file (its `co_filename`) is a user's, not lazyt's, NumPy's or the standard library's."""
    found = _users.get(name)
    if found is None:
        installed = "site-packages" in name or "dist-packages" in name
        library = name.startswith((_OURS, _THEIRS[0])) or (name.startswith(_THEIRS[1]) and not installed)
        library = library or name.startswith(("<lazyt ", "<frozen ", "<__array_function__"))
        found = _users[name] = not library or name.startswith(f"{_OURS}testing")
    return found


def is_ours(name: str) -> bool:
    """Whether code of a file is lazyt's."""
    return name.startswith((_OURS, "<lazyt "))
