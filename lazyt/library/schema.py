"""Schemas of operations: `ns::name(Tensor x, float alpha=1.0, int[] dims=[0]) -> Tensor`, and what calls bind to them.

schema   ::= ns "::" name "(" [arguments] ")" "->" ("Tensor" | "(" "Tensor" {"," "Tensor"} ")")
argument ::= type name ["=" default]            "*" begins the arguments that are given by name alone
type     ::= ("Tensor" | "int" | "float" | "bool" | "str" | "Scalar" | "dtype") ["[" [length] "]"] ["?"]
"""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lazyt.errors import LazytError, NotSupportedError
from lazyt.ir import dtypes
from lazyt.ir.records import dataclass
from lazyt.runtime.tensor import Tensor
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KINDS = ("Tensor", "int", "float", "bool", "str", "Scalar", "dtype")
_DTYPES = frozenset(d.name for d in dtypes.ALL)
REQUIRED: Any = inspect.Parameter.empty
_TOKEN = re.compile(r"\s*(::|->|[A-Za-z_]\w*|-?\d[\w.+-]*|-?\.\d[\w.+-]*|'[^']*'|\"[^\"]*\"|[()\[\],=*?!.]|\S)")


class SchemaError(LazytError, ValueError):
    """A schema that does not parse; the message shows where."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation."""

    name: str
    kind: str  # one of `KINDS`
    is_list: bool = False
    length: int = 0  # of a list; 0: any
    optional: bool = False  # None may be given
    default: Any = REQUIRED
    keyword: bool = False  # given by name alone

    @property
    def type(self) -> str:
        """As it is written in a schema."""
        many = f"[{self.length or ''}]" if self.is_list else ""
        return f"{self.kind}{many}{'?' if self.optional else ''}"

    def __str__(self) -> str:
        default = "" if self.default is REQUIRED else f"={_literal(self.default)}"
        return f"{self.type} {self.name}{default}"

    def value(self, given: Any, of: str) -> Any:
        """What a call gave, in the form that kernels get; TypeError where it is something else."""
        if given is None and (self.optional or self.default is None):
            return None
        if not self.is_list:
            return self._one(given, of)
        if not isinstance(given, list | tuple):
            if self.kind != "int" or not self.length:
                raise self._refusal(given, of)
            given = (given,) * self.length  # as in PyTorch: one integer for all
        if self.length and len(given) != self.length:
            raise TypeError(f"{of}: argument {self.name!r} is {self.type}, got {len(given)} values")
        made = [self._one(x, of) for x in given]
        return made if self.kind == "Tensor" else tuple(made)

    def _one(self, given: Any, of: str) -> Any:
        kind = self.kind
        if kind == "Tensor":
            if isinstance(given, Handle | np.ndarray | np.generic):
                return given
        elif kind == "bool":
            if isinstance(given, bool | np.bool_):
                return bool(given)
        elif kind == "str":
            if isinstance(given, str):
                return given
        elif kind == "dtype":
            return dtypes.as_dtype(given)
        elif kind == "int":
            if hasattr(given, "__index__") and not isinstance(given, bool | Handle | np.ndarray):
                return index(given)
        elif kind == "float":
            if isinstance(given, int | float | np.floating | np.integer) and not isinstance(given, bool):
                return float(given)
        elif isinstance(given, bool | int | float | complex | np.number | np.bool_):
            return given.item() if isinstance(given, np.generic) else given
        raise self._refusal(given, of)

    def _refusal(self, given: Any, of: str) -> TypeError:
        return TypeError(f"{of}: argument {self.name!r} is {self.type}, got {given!r} of type {type(given).__name__}")


def _literal(x: Any) -> str:
    if isinstance(x, tuple):
        return f"[{', '.join(map(_literal, x))}]"
    return str(x) if isinstance(x, np.dtype) else repr(x)


@dataclass(frozen=True, slots=True)
class Schema:
    """The name of an operation, its arguments, and how many tensors it gives."""

    namespace: str
    name: str
    arguments: tuple[Argument, ...]
    results: int = 1
    is_tuple: bool = False  # whether the results are a tuple, be it of one

    @property
    def qualified(self) -> str:
        """`ns::name`."""
        return f"{self.namespace}::{self.name}"

    def __str__(self) -> str:
        parts: list[str] = []
        for a in self.arguments:
            if a.keyword and "*" not in parts:
                parts.append("*")
            parts.append(str(a))
        results = ", ".join(["Tensor"] * self.results)
        return f"{self.qualified}({', '.join(parts)}) -> {f'({results})' if self.is_tuple else results}"

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The values of all arguments, in order; TypeError for a call that does not fit."""
        values: list[Any] = []
        positional = [a for a in self.arguments if not a.keyword]
        if len(args) > len(positional):
            raise TypeError(
                f"{self.qualified}: {len(args)} positional arguments, at most {len(positional)} fit its schema: {self}"
            )
        unknown = kwargs.keys() - {a.name for a in self.arguments}
        if unknown:
            raise TypeError(f"{self.qualified}: no argument {min(unknown)!r} in its schema: {self}")
        for i, a in enumerate(self.arguments):
            if i < len(args) and not a.keyword:
                if a.name in kwargs:
                    raise TypeError(f"{self.qualified}: argument {a.name!r} is given twice")
                given = args[i]
            elif a.name in kwargs:
                given = kwargs[a.name]
            elif a.default is not REQUIRED:
                values.append(a.default)
                continue
            else:
                raise TypeError(f"{self.qualified}: argument {a.name!r} is missing; its schema: {self}")
            values.append(a.value(given, self.qualified))
        return values


class _Parser:
    """One pass over the tokens of a schema."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(1), m.start(1)) for m in _TOKEN.finditer(text)]
        self.at = 0

    def fail(self, why: str, place: int | None = None) -> NoReturn:
        if place is None:
            place = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        raise SchemaError(f"schema: {why}\n  {self.text}\n  {' ' * place}^")

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    @property
    def place(self) -> int:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)

    def take(self, *wanted: str) -> bool:
        """Whether the next token is one of these; it is taken then."""
        if self.next not in wanted or not self.next:
            return False
        self.at += 1
        return True

    def require(self, wanted: str) -> None:
        if not self.take(wanted):
            self.fail(f"{wanted!r} is required here, {self._found()}")

    def _found(self) -> str:
        return f"not {self.next!r}" if self.next else "where the schema ends"

    def word(self, what: str) -> str:
        found = self.next
        if not found.isidentifier():
            self.fail(f"{what} is required here, {self._found()}")
        self.at += 1
        return found

    def schema(self) -> Schema:
        namespace, name = self.names()
        arguments = self.arguments()
        self.require("->")
        results, is_tuple = self.returned()
        if self.next:
            self.fail(f"{self.next!r} stands behind the end of the schema")
        return Schema(namespace, name, arguments, results, is_tuple)

    def names(self) -> tuple[str, str]:
        namespace = self.word("a namespace")
        self.require("::")
        name = self.word("a name")
        if self.next == ".":
            self.fail("not supported: overloads, because an operation has one schema; give it a name of its own")
        return namespace, name

    def arguments(self) -> tuple[Argument, ...]:
        self.require("(")
        found: list[Argument] = []
        keyword = False
        while not self.take(")"):
            if found or keyword:
                self.require(",")
            if self.next == "*":
                if keyword:
                    self.fail("a second '*'")
                self.at += 1
                keyword = True
                continue
            place = self.place
            a = self.argument(keyword)
            if a.name in {x.name for x in found}:
                self.fail(f"a second argument {a.name!r}", place)
            if a.default is REQUIRED and not keyword and found and found[-1].default is not REQUIRED:
                self.fail(f"argument {a.name!r} has no default, and stands behind one that has", place)
            found.append(a)
        return tuple(found)

    def kind(self) -> str:
        place = self.place
        found = self.word("the type of an argument")
        if found not in KINDS:
            self.fail(f"no type {found!r}; there are {', '.join(KINDS)}", place)
        if self.next == "(":
            self.fail(
                "not supported: operations that write their arguments, because values are never overwritten; give the "
                "new value as a result"
            )
        return found

    def argument(self, keyword: bool) -> Argument:
        kind, is_list, length = self.kind(), False, 0
        if self.take("["):
            is_list = True
            if self.next.isdigit():
                length = int(self.next)
                self.at += 1
            self.require("]")
        optional = self.take("?")
        name = self.word("the name of an argument")
        made = Argument(name, kind, is_list, length, optional, keyword=keyword)
        if not self.take("="):
            return made
        place = self.place
        default = self.default()
        if default is None and not optional:
            self.fail(f"None is no {made.type}; {made.type}? is", place)
        if default is not None and kind == "Tensor":
            self.fail("the default of a tensor is None", place)
        try:
            default = made.value(default, "schema")
        except (TypeError, ValueError):
            self.fail(f"{default!r} is no {made.type}", place)
        return Argument(name, kind, is_list, length, optional, default, keyword)

    def default(self) -> Any:
        place = self.place
        if self.take("["):
            values: list[Any] = []
            while not self.take("]"):
                if values:
                    self.require(",")
                values.append(self.default())
            return tuple(values)
        text = self.next
        if text in _DTYPES:
            self.at += 1
            return text
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            self.fail(f"a default is required here, {self._found()}", place)
        self.at += 1
        return found

    def returned(self) -> tuple[int, bool]:
        if not self.take("("):
            self.result()
            return 1, False
        count = 0
        while not self.take(")"):
            if count:
                self.require(",")
            self.result()
            count += 1
        if not count:
            self.fail("an operation gives one tensor at least", self.tokens[self.at - 1][1])
        return count, True

    def result(self) -> None:
        if self.next != "Tensor":
            self.fail(f"'Tensor' is required here, {self._found()}")
        self.at += 1
        if self.next in ("[", "?", "("):
            self.fail("not supported: results that are lists, optional or views, because their number is fixed")


def parse(text: str) -> Schema:
    """The schema that a text says; SchemaError, with the place, if it says none."""
    if not isinstance(text, str):
        raise TypeError(f"schema: a text is required, such as 'ns::name(Tensor x) -> Tensor', got {text!r}")
    return _Parser(text).schema()


def parse_name(text: str) -> tuple[str, str]:
    """Namespace and name of `ns::name`."""
    parser = _Parser(text)
    found = parser.names()
    if parser.next:
        parser.fail(f"{parser.next!r} stands behind the end of the name")
    return found


_ANNOTATED = {
    Tensor: "Tensor", int: "int", float: "float", bool: "bool", str: "str", np.dtype: "dtype", complex: "Scalar",
}  # fmt: skip


def from_function(name: str, f: Callable[..., Any]) -> Schema:
    """The schema that the annotations of a function say. NotSupportedError for one that a schema cannot say."""
    namespace, short = parse_name(name)
    hints = typing.get_type_hints(f)
    arguments = []
    for p in inspect.signature(f).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise NotSupportedError(
                f"custom_op {name}: not supported: argument *{p.name}, because a schema has a fixed number of arguments"
            )
        if p.name not in hints:
            raise TypeError(f"custom_op {name}: argument {p.name!r} has no annotation")
        kind, is_list, optional = _annotated(hints[p.name], f"custom_op {name}: argument {p.name!r}")
        a = Argument(p.name, kind, is_list, 0, optional, REQUIRED, p.kind == p.KEYWORD_ONLY)
        default = p.default if p.default is REQUIRED else a.value(p.default, f"custom_op {name}: the default of")
        arguments.append(Argument(a.name, kind, is_list, 0, optional, default, a.keyword))
    if "return" not in hints:
        raise TypeError(f"custom_op {name}: its result has no annotation; it is Tensor, or tuple[Tensor, Tensor]")
    made = hints["return"]
    if made is Tensor:
        return Schema(namespace, short, tuple(arguments))
    parts = typing.get_args(made)
    if typing.get_origin(made) is not tuple or not parts or any(x is not Tensor for x in parts):
        raise NotSupportedError(
            f"custom_op {name}: not supported: a result of type {made}, because results are Tensor or a fixed tuple "
            "of them"
        )
    return Schema(namespace, short, tuple(arguments), len(parts), True)


def _annotated(hint: Any, of: str) -> tuple[str, bool, bool]:
    """The kind that an annotation says, whether it is a list, and whether None may be given."""
    parts = typing.get_args(hint)
    if type(None) in parts:
        rest = [x for x in parts if x is not type(None)]
        if len(rest) == 1:
            kind, is_list, _ = _annotated(rest[0], of)
            return kind, is_list, True
    origin = typing.get_origin(hint)
    if origin in (list, tuple) or getattr(origin, "__name__", "") == "Sequence":
        if origin is not tuple or parts[1:] == (Ellipsis,):
            kind, is_list, optional = _annotated(parts[0], of)
            if not is_list and not optional:
                return kind, True, False
    elif origin is np.dtype:
        return "dtype", False, False
    elif origin in (typing.Union, types.UnionType) and {*parts} <= {bool, int, float, complex}:
        return "Scalar", False, False
    elif hint in _ANNOTATED:
        return _ANNOTATED[hint], False, False
    raise NotSupportedError(
        f"{of}: not supported: type {hint}, because schemas have {', '.join(KINDS)} and lists of them"
    )
