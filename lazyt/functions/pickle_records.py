"""An interpreter of the pickle opcodes that PyTorch writes: containers of numbers, texts and frozen records.

    value   := None | bool | int | float | complex | str | bytes | bytearray | tuple | list | dict | OrderedDict | set
             | frozenset | record
    record  := Global                         a function or class that the file names
             | what `Interpreter.call` or `Interpreter.refer` returns

A pickle is a program: Python's own unpickler sets attributes of what it makes, and calls what the file names. Here no
opcode sets an attribute (BUILD on an OrderedDict is dropped, on anything else refused), a name is looked up in one
table, and its functions return plain values and frozen records. The memo is a dict, so its numbers allocate nothing.
Each opcode adds a few bytes; containers, the memo, and copies that a file may ask for again and again (of a list in a
set) are taken from an `Allowance`.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any

from lazyt.functions.archives import Allowance, FileError, parsing
from lazyt.ir.records import dataclass

# Estimated bytes of a container, of an element of a set or a dict, of an entry of the memo.
_CONTAINER, _ELEMENT, _MEMO = 160, 100, 96
_NUMBERS = (bool, int, float, complex)
_KEYS = frozenset((type(None), *_NUMBERS, str, bytes, frozenset))
_KEY_PARTS, _KEY_BITS = 1000, 1 << 14


@dataclass(frozen=True, slots=True)
class Global:
    """A function or class that a pickle names."""

    module: str
    name: str


def shown(x: Any) -> str:
    """A short text for a value of a file. NOTE: a `repr` of nested tuples may be exponentially long."""
    if (type(x) is int and x.bit_length() < 64) or type(x) in (bool, float, complex, type(None)):
        return repr(x)
    if type(x) in (str, bytes):
        return repr(x[:80])
    if type(x) is Global:
        return _shown_name(x.module, x.name)
    if type(x) in (tuple, list) and all(type(v) in (int, str, type(None)) for v in x[:8]):
        more = ", ..." if len(x) > 8 else ""
        begin, end = "()" if type(x) is tuple else "[]"
        return f"{begin}{', '.join(map(shown, x[:8]))}{more}{end}"
    return f"a {type(x).__name__.lower().removeprefix('file')}"


def _shown_name(module: str, name: str) -> str:
    text = f"{module[:100]}.{name[:100]}"
    return text if text.isprintable() else ascii(text)


def key(x: Any) -> Any:
    """x, if it may be a key of a dict or an element of a set: a number, a text, or a small tuple of them."""
    todo, seen = [x], 0
    while todo:
        part = todo.pop()
        seen += 1
        # NOTE: CPython hashes a nested tuple by recursion in C without a limit, and a shared one again and again.
        if type(part) is tuple and seen + len(part) <= _KEY_PARTS:
            todo += part
        elif type(part) not in _KEYS or (type(part) is int and part.bit_length() > _KEY_BITS):
            raise FileError(f"it has a dict or a set with a key that is no number and no text: {shown(x)}")
    return x


class Interpreter:
    """The state of one pickle while it is read: a stack of values, the stacks below its marks, and the memo.

    `names`: all that a file may name; a function is called with the arguments that the file gives it, and returns an
    immutable value. `refer`: the record for a persistent id.
    """

    def __init__(
        self,
        names: Mapping[tuple[str, str], Callable[..., Any] | None],
        refer: Callable[[Any], Any],
        allowance: Allowance,
    ) -> None:
        self.names, self.refer, self.allowance = names, refer, allowance
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    @parsing()
    def read(self, f: IO[bytes]) -> Any:
        """The value of the pickle that begins here."""
        for opcode, argument, _ in pickletools.genops(f):
            act = _ACTIONS.get(opcode.name)
            if act is None:
                raise FileError(f"it is damaged: the opcode {opcode.name} stands in it, which PyTorch does not write")
            act(self, argument)
        return self.stack.pop()

    def push(self, x: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(x)

    def name(self, module: str, name: str) -> None:
        """Push the record of a function or class; FileError for one that is not in the table."""
        if (module, name) not in self.names:
            raise FileError(
                f"it asks for {_shown_name(module, name)}, which is neither a tensor nor a container of tensors, and "
                "nothing that a file names is run here; save the model's state_dict() with PyTorch, and load that"
            )
        self.push(Global(module, name))

    def marked(self) -> list[Any]:
        """Remove the last mark and return the items above it."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def mark(self) -> None:
        """Put the stack aside."""
        self.allowance.take(_CONTAINER)
        self.below.append(self.stack)
        self.stack = []

    def container(self, x: Any, size: int = 0) -> None:
        """Push a new container."""
        self.allowance.take(_CONTAINER + size * _ELEMENT)
        self.push(x)

    def put(self, number: int) -> None:
        """Write the top of the stack into the memo."""
        self.allowance.take(_MEMO)
        self.memo[number] = self.stack[-1]

    def top(self, *kinds: type) -> Any:
        """The top of the stack, which must be a container of one of these kinds."""
        x = self.stack[-1]
        if type(x) not in kinds:
            raise FileError(f"it is damaged: elements are added to {shown(x)}")
        return x

    def append(self, items: list[Any]) -> None:
        """Append to the list at the top."""
        self.top(list).extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Add keys and values, in turns, to the dict at the top."""
        self.top(dict, OrderedDict).update(zip(map(key, items[::2]), items[1::2], strict=True))

    def call(self) -> None:
        """Replace a function and a tuple of arguments by the result."""
        arguments, function = self.stack.pop(), self.stack.pop()
        known = self.names.get((function.module, function.name)) if type(function) is Global else None
        if known is None or type(arguments) is not tuple:
            raise FileError(f"it is damaged: it calls {shown(function)} with {shown(arguments)}")
        self.push(known(self.allowance, *arguments))

    def build(self) -> None:
        """Drop the state of an OrderedDict (a state dict's `_metadata`)."""
        self.stack.pop()
        x = self.stack[-1]
        if type(x) is not OrderedDict:
            what = (
                shown(x)
                if type(x) is not Global
                else "a dtype"
                if self.names[x.module, x.name] is None
                else "a function"
            )
            raise FileError(f"it gives {what} a state, which it has not")


# --- functions that a file may call; each takes the allowance and the file's arguments -------------------------------


def of_sequence(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    """A call of `set` or `frozenset`."""

    def call(allowance: Allowance, items: Any = ()) -> Any:
        if type(items) not in (list, tuple):
            raise FileError(f"it is damaged: a set is made of {shown(items)}")
        allowance.take(4 * _CONTAINER + len(items) * _ELEMENT)
        return kind(map(key, items))

    return call


def ordered_dict(allowance: Allowance, pairs: Any = ()) -> OrderedDict[Any, Any]:
    """A call of `OrderedDict`; Python 2 gave it pairs."""
    if type(pairs) not in (list, tuple) or not all(type(p) in (list, tuple) and len(p) == 2 for p in pairs):
        raise FileError(f"it is damaged: an OrderedDict is made of {shown(pairs)}")
    allowance.take(4 * _CONTAINER + 2 * len(pairs) * _ELEMENT)
    return OrderedDict((key(k), v) for k, v in pairs)


def encoded(allowance: Allowance, text: Any, encoding: Any) -> bytes:
    """A call of `_codecs.encode`: bytes, as protocol 2 writes them."""
    if type(text) is not str or encoding != "latin1":
        raise FileError(f"it is damaged: bytes are written in latin1, not in {shown(encoding)}")
    allowance.take(len(text))
    return text.encode("latin1")


def of_bytes(kind: type[bytes | bytearray]) -> Callable[..., Any]:
    """A call of `bytes` or `bytearray`."""

    def call(allowance: Allowance, content: Any = b"") -> Any:
        if type(content) is not bytes:
            raise FileError(f"it is damaged: bytes are made of {shown(content)}")
        allowance.take(_CONTAINER + len(content))
        return kind(content)

    return call


def complex_number(allowance: Allowance, *parts: Any) -> complex:
    """A call of `complex`."""
    if any(type(p) not in (int, float) for p in parts):
        raise FileError("it is damaged: a complex number is made of two numbers")
    return complex(*parts)


CONTAINERS: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("collections", "OrderedDict"): ordered_dict,
    ("_codecs", "encode"): encoded,
    **{
        (module, name): call
        for module in ("builtins", "__builtin__")
        for name, call in {
            "set": of_sequence(set), "frozenset": of_sequence(frozenset), "complex": complex_number,
            "bytes": of_bytes(bytes), "bytearray": of_bytes(bytearray),
        }.items()
    },
}  # fmt: skip

# --- opcodes ------------------------------------------------------------------------------------------------------


def _tuple(n: int) -> Callable[[Interpreter, Any], None]:
    def act(r: Interpreter, _: Any) -> None:
        if len(r.stack) < n:
            raise FileError("it is damaged: a tuple is made of more than there is")
        items = tuple(r.stack[len(r.stack) - n :])
        del r.stack[len(r.stack) - n :]
        r.container(items)

    return act


def _set_one(r: Interpreter, _: Any) -> None:
    value, k = r.stack.pop(), r.stack.pop()
    r.set_items([k, value])


def _append_one(r: Interpreter, _: Any) -> None:
    r.append([r.stack.pop()])


def _add_items(r: Interpreter, _: Any) -> None:
    items = r.marked()
    r.allowance.take(len(items) * _ELEMENT)
    r.top(set).update(map(key, items))


def _frozen_set(r: Interpreter, _: Any) -> None:
    r.push(of_sequence(frozenset)(r.allowance, r.marked()))


def _dict(r: Interpreter, _: Any) -> None:
    items = r.marked()
    r.container({}, len(items))
    r.set_items(items)


def _stack_name(r: Interpreter, _: Any) -> None:
    name, module = r.stack.pop(), r.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise FileError(f"it is damaged: it asks for {shown(module)}.{shown(name)}")
    r.name(module, name)


def _line_name(r: Interpreter, argument: str) -> None:
    module, _, name = argument.partition(" ")
    r.name(module, name)


def _instance(r: Interpreter, argument: str) -> None:
    arguments = tuple(r.marked())
    _line_name(r, argument)
    r.push(arguments)
    r.call()


def _object(r: Interpreter, _: Any) -> None:
    function, *arguments = r.marked()
    r.stack += (function, tuple(arguments))
    r.call()


def _pop(r: Interpreter, _: Any) -> None:
    if r.stack:
        r.stack.pop()
    else:
        r.marked()


def _old_text(r: Interpreter, text: str) -> None:
    """A text of Python 2: bytes, in UTF-8 as all that PyTorch named."""
    r.push(text.encode("latin1").decode())


def _push(r: Interpreter, x: Any) -> None:
    r.push(x)


def _nothing(r: Interpreter, _: Any) -> None:
    pass


_ACTIONS: dict[str, Callable[[Interpreter, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(
        ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "UNICODE",
         "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), _push,
    ),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), _old_text),
    "BYTEARRAY8": lambda r, x: r.container(x),
    "NONE": lambda r, _: r.push(None),
    "NEWTRUE": lambda r, _: r.push(True),
    "NEWFALSE": lambda r, _: r.push(False),
    "EMPTY_TUPLE": lambda r, _: r.push(()),
    "EMPTY_LIST": lambda r, _: r.container([]),
    "EMPTY_DICT": lambda r, _: r.container({}),
    "EMPTY_SET": lambda r, _: r.container(set(), 3),
    "MARK": lambda r, _: r.mark(),
    "TUPLE": lambda r, _: r.container(tuple(r.marked())),
    "TUPLE1": _tuple(1), "TUPLE2": _tuple(2), "TUPLE3": _tuple(3),
    "LIST": lambda r, _: r.container(r.marked()),
    "DICT": _dict,
    "FROZENSET": _frozen_set,
    "APPEND": _append_one,
    "APPENDS": lambda r, _: r.append(r.marked()),
    "SETITEM": _set_one,
    "SETITEMS": lambda r, _: r.set_items(r.marked()),
    "ADDITEMS": _add_items,
    "POP": _pop,
    "POP_MARK": lambda r, _: r.marked().clear(),
    "DUP": lambda r, _: r.push(r.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda r, n: r.put(n)),
    "MEMOIZE": lambda r, _: r.put(len(r.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda r, n: r.push(r.memo[n])),
    "GLOBAL": _line_name, "STACK_GLOBAL": _stack_name, "INST": _instance, "OBJ": _object,
    "REDUCE": lambda r, _: r.call(), "NEWOBJ": lambda r, _: r.call(),
    "BUILD": lambda r, _: r.build(),
    "PERSID": lambda r, x: r.push(r.refer(x)),
    "BINPERSID": lambda r, _: r.push(r.refer(r.stack.pop())),
}  # fmt: skip
