"""The mode of a thread: what operations are recorded under, beside their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakValueDictionary

from lazyt.config import HOST
from lazyt.forking import process_lock

if TYPE_CHECKING:
    from lazyt.ir.compression import Compression


class Mode:
    """Immutable, and one object for equal fields, so modes are compared by `is`.

    A trace has a mode, and so has each step. The trie begins at one root for each mode, and a change of mode is a step,
    so programs recorded in different modes share no step, hence no prediction, no cached call, no replay and no plan.
    A new mode is a new field here, with its default, and the code that reads it.

    >>> Mode(grad=False) is Mode().near["grad", False]
    True
    >>> Mode(grad=False)
    Mode(grad=False, device='cpu', ...)
    """

    grad: bool = True  # operations record gradients
    device: str = HOST  # where the values of operations without operands are
    autocast: Any = None  # what operands are cast to before they are recorded (see `tracing.autocast`)
    compress: Compression | None = None  # whether a backward may read values in few bits
    inference: bool = False  # values are inference tensors (see inference.py), unless gradients are recorded
    # The device that the name of a kind alone means, for those kinds where one was chosen: (kind, device) in order.
    chosen: tuple[tuple[str, str], ...] = ()
    memory: Any = None  # the budget that plans stay within: a `Budget` of lazyt/runtime/memory_budget.py
    library: Any = None  # kernels that take the place of others (`lazyt.library.scoped`): an `Overrides`
    # Of what the float32 operands may be rounded to bfloat16, where that is faster: 'convolutions', 'products', both.
    rounded: tuple[str, ...] = ()

    # The fields that change what is recorded, and not what a recorded step computes.
    ONLY_RECORDING: ClassVar[frozenset[str]] = frozenset(("autocast", "chosen", "grad", "inference", "library"))
    FIELDS: ClassVar[tuple[str, ...]] = (
        "grad", "device", "autocast", "inference", "chosen", "memory", "compress", "library", "rounded",
    )  # fmt: skip

    # By (name of a field, value), the modes that differ from this one in that field.
    near: Near
    values: dict[str, Any]
    # Whether something may take the place of what is recorded: autocast or `library`.
    intercepted: bool
    # This mode with the fields of `ONLY_RECORDING` at their defaults: part of the keys of what programs share.
    computing: Mode

    def __new__(cls, **fields: Any) -> Self:
        """The mode with these fields, the others at their defaults; TypeError for a name that is no field."""
        unknown = fields.keys() - {*cls.FIELDS}
        if unknown:
            raise TypeError(f"{cls.__name__}: no such field: {', '.join(sorted(unknown))}")
        values = {name: fields.get(name, getattr(cls, name)) for name in cls.FIELDS}
        key = (cls, *values.values())
        found = _modes.get(key)
        if found is None:
            mode = object.__new__(cls)
            common = {k: getattr(cls, k) if k in cls.ONLY_RECORDING else v for k, v in values.items()}
            own = {**values, "values": values, "near": Near(mode)}
            own["intercepted"] = values["autocast"] is not None or values["library"] is not None
            own["computing"] = mode if common == values else cls(**common)
            for name, value in own.items():
                object.__setattr__(mode, name, value)
            with _lock:
                found = _modes.setdefault(key, mode)
        assert type(found) is cls, "the class is part of the key"
        return found

    def difference(self, other: Mode) -> str | None:
        """The name of the field in which two modes differ; None where it is not one alone."""
        names = [name for name, v in self.values.items() if v != other.values.get(name)]
        return names[0] if len(names) == 1 and type(self) is type(other) else None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}: {name} cannot be set: a mode is immutable")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.values.items())})"


MOST_NEAR = 256


class Near(dict[tuple[str, Any], Mode]):
    """`Mode.near`: each mode is made when it is first asked for, and forgotten when there are too many."""

    __slots__ = ("mode",)

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode = mode

    def __missing__(self, key: tuple[str, Any]) -> Mode:
        mode, (name, value) = self.mode, key
        found = type(mode)(**{**mode.values, name: value})
        for near in (self, found.near):
            if len(near) >= MOST_NEAR:
                near.clear()
        # NOTE: so that who returns finds the mode without a call (see `current.restore_mode`).
        found.near[name, mode.values[name]] = mode
        self[key] = found
        return found


# NOTE: a budget or a scope of each iteration's own is a mode that nobody asks for again.
_modes: WeakValueDictionary[tuple[Any, ...], Mode] = WeakValueDictionary()
_lock = process_lock()
DEFAULT = Mode()
# That in which a thread begins.
FIRST = [DEFAULT]
