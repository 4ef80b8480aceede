"""`dataclass` as in the standard library, with methods that are generated when they are first called.

The standard library generates and compiles up to six functions for a class at its definition. lazyt has about seventy
record classes, of which most programs use a few: this generation took an eighth of the time of an import.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(cls: Any = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True, **more: bool):
        """As `dataclasses.dataclass`, of which it takes `frozen`, `slots`, `eq` and `repr`.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), dataclasses.replace(Point(1), y=2)
        (Point(x=1, y=0), True, Point(x=1, y=2))
        """
        late = {"__init__": True, "__repr__": more.pop("repr", True), "__eq__": eq, "__hash__": eq and frozen}
        assert not more, f"no further arguments: {more}"

        def make(cls: type) -> type:
            names = [name for name in late if late[name] and name not in vars(cls)]
            # NOTE: for a class without a docstring the standard library would read the signature.
            cls.__doc__ = cls.__doc__ or f"{cls.__name__}({', '.join(cls.__annotations__)})"
            if frozen:
                cls.__setattr__, cls.__delattr__, cls.__reduce__ = _refuse_to_set, _refuse_to_delete, _reduce
            elif eq:
                cls.__hash__ = None
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            for name in names:
                setattr(made, name, _late(made, name, frozen))
            return made

        return make if cls is None else make(cls)


def _late(cls: Any, name: str, frozen: bool) -> Callable[..., Any]:
    """A placeholder for a method: generates the method, replaces itself by it, and calls it."""

    def method(*args: Any, **options: Any) -> Any:
        f = _init(cls, frozen) if name == "__init__" else _shown(cls) if name == "__repr__" else _compared(cls, name)
        setattr(cls, name, f)
        return f(*args, **options)

    return method


def _init(cls: Any, frozen: bool) -> Callable[..., Any]:
    space: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    parameters, body = ["self"], []
    for f in dataclasses.fields(cls):
        if not f.init:
            assert f.default is f.default_factory is dataclasses.MISSING, f"{f.name} is for __post_init__"
            continue
        assert not f.kw_only, f"{f.name} by keyword alone"
        name = value = parameter = f.name
        if f.default is not dataclasses.MISSING:
            space[f"_{name}"] = f.default
            parameter = f"{name}=_{name}"
        elif f.default_factory is not dataclasses.MISSING:
            space[f"_{name}"] = f.default_factory
            parameter, value = f"{name}=_missing", f"_{name}() if {name} is _missing else {name}"
        parameters.append(parameter)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + ("\n ".join(body) or "..."), space)
    init: Callable[..., Any] = space["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _compared(cls: Any, name: str) -> Callable[..., Any]:
    """`__eq__` or `__hash__`, as the standard library writes them, for a third of the time."""
    names = [f.name for f in dataclasses.fields(cls) if f.compare]
    mine, theirs = ("(" + "".join(f"{x}.{n}, " for n in names) + ")" for x in ("self", "other"))
    text = f"def __hash__(self):\n return hash({mine})"
    if name == "__eq__":
        same = "other.__class__ is self.__class__"
        text = f"def __eq__(self, other):\n return {mine} == {theirs} if {same} else NotImplemented"
    space: dict[str, Any] = {}
    exec(text, space)
    f: Callable[..., Any] = space[name]
    f.__qualname__ = f"{cls.__qualname__}.{name}"
    return f


def _shown(cls: Any) -> Callable[..., Any]:
    """`__repr__`, which the standard library writes."""
    fields = [(f.name, f.type, f) for f in dataclasses.fields(cls)]
    twin = dataclasses.make_dataclass(cls.__qualname__, fields, namespace={"__doc__": "-"}, init=False, eq=False)
    f: Callable[..., Any] = vars(twin)["__repr__"]
    return f


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))
