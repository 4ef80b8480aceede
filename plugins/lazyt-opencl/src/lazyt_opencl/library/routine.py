"""A call as launches of one generated program, whose arguments are entries of the plan's table."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from lazyt.backends.common.host_calls import evaluated
from lazyt.ir.graph import Opaque
from lazyt.ir.passes.call_operands import buffer_of
from lazyt.ir.records import dataclass
from lazyt_opencl.codegen.preamble import HEAD
from lazyt_opencl.codegen.text import Module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyt.ir.graph import Node
    from lazyt_opencl.executor import Bound

    Patches = list[tuple[int, int, int]]

PARAMETERS = "__global const long *table, const long first"
# Work-items of a group, where nothing asks for others.
GROUP = 64


@dataclass(frozen=True)
class Step:
    """One launch: the function, where its arguments begin, the bases of its buffers, all work-items and a group's."""

    symbol: str
    at: int
    bases: tuple[int, ...]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]


def flat(count: int, group: int = GROUP) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of a launch over so many work-items in a line, the last group filled up."""
    return (-(-count // group) * group,), (group,)


class Routine:
    """A call of a plan at the sizes of a binding."""

    name = ""  # for people

    def __init__(self, bound: Bound, call: Any) -> None:
        self.bound, self.call = bound, call

    @property
    def statics(self) -> tuple[Any, ...]:
        """The arguments of the call that are no values."""
        attrs = self.call.node.attrs
        return tuple(evaluated(attrs.statics, self.bound)) if isinstance(attrs, Opaque) else ()

    def shape(self, n: Node) -> list[int]:
        """The extents of a value."""
        return [self.bound.value(d) for d in n.shape]

    @property
    @abstractmethod
    def suffix(self) -> str:
        """What the names of its functions end with: all that its text depends on."""

    @abstractmethod
    def text(self, module: Module) -> str:
        """Its functions, whose helpers go to `module`."""

    @abstractmethod
    def steps(self, table: list[int], patches: Patches) -> list[Step]:
        """Append its arguments to the table; its launches."""

    def source(self, notes: Sequence[str] = ()) -> str:
        """Its program."""
        module = Module()
        text = self.text(module)
        return "\n".join([HEAD, module.text(), *(f"// {line}" for line in notes), text])

    def symbol(self, what: str) -> str:
        """The name of one of its functions."""
        return f"lazyt_{what}_{self.suffix}"

    def arguments(
        self, table: list[int], patches: Patches, places: Sequence[Node | int], numbers: Sequence[int]
    ) -> tuple[int, tuple[int, ...]]:
        """Append offsets of values (or of room in the arena, see `room`) and then numbers; the start, and the bases."""
        at, bases = len(table), []
        table.extend([0] * len(places))
        for slot, x in enumerate(places, at):
            if isinstance(x, int):
                patches.append((slot, self.bound.arena_base, x))
                bases.append(self.bound.arena_base)
            else:
                self.bound._address(buffer_of(x), 0, x.dtype.itemsize, slot, patches)
                bases.append(self.bound._base(buffer_of(x))[0])
        table.extend(numbers)
        return at, tuple(bases)

    def room(self, nbytes: int) -> int:
        """Memory of the arena for as long as the run; gives its offset."""
        at = self.bound.arena_size
        self.bound.arena_size += self.bound.aligned(max(nbytes, 1))
        return at


def filled(text: str, words: Mapping[str, object]) -> str:
    """A text with `$name$` in place of names."""
    for name, value in words.items():
        text = text.replace(f"${name}$", str(value))
    return text
