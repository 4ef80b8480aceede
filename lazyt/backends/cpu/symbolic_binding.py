"""Binds a plan to extents that are new each time: the arithmetic of one binding, generated as a function.

To bind a plan (binding.py) is some thousand operations on small integers, of which nearly all come out as they did for
the last extents. So a plan with ever new extents is bound once over numbers that record the operations on them: the
result is the entries of its tables as expressions, and every comparison that a decision depended on. The function
checks that the comparisons give the same results, copies the tables, and writes the entries that differ.

    grain = max(GRAIN // work, 1)    -->    t7 = 16384 // t5
                                            if t7 < 1: return None

It gives the result of binding, or None where a decision would differ: then the plan is bound in full, and another
function is generated if that happens often.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.backends.cpu.binding import Binding
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.kept_panels import Kept
from lazyt.backends.cpu.thread_pool import Program, get_num_threads
from lazyt.backends.cpu.thread_pool_ir import ROW_FIELDS

if TYPE_CHECKING:
    from lazyt.backends.cpu.executable import NativeExecutable

Extents = tuple[int, ...]

# The binding of a plan is written out when so many extents were bound the long way, then two more each time: it costs
# as much as four to nine bindings, and should pay.
OTHERS = 6
LONG = 200  # characters of an expression
MOST = 12  # functions of a plan, each for extents with the same decisions
ATTEMPTS = 2
UNITS, GRAIN = 2, 3  # what may differ in a row of a program

# What of a binding decisions alone determine.
COMMON = (
    "_numbers", "arena_base", "checks", "codes", "donations", "exe", "kept_at", "kept_base", "left_out",
    "measure", "n_fixed", "n_inputs", "output_base", "overwrites_from", "scalar_base", "status_base", "uses_blas",
)  # fmt: skip

_TEMPORARY = re.compile(r"\bt\d+\b")


_MOVES = "moves"  # the name of what is another number in every run: nothing of a binding may come from it


class Untold(Exception):
    """Raised when an operation on a number cannot be expressed in the function."""


def _noted(text: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        return self.notes.computed(text, compute, self, other)

    return method


def _reflected(text: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        return self.notes.computed(text, compute, other, self)

    return method


def _compared(text: str, no: str, compute: Callable[..., bool]) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if not isinstance(other, Number | int | float):
            return NotImplemented
        yes = compute(self.value, other.value if isinstance(other, Number) else other)
        self.notes.lines[f"if {self.name} {no if yes else text} {_name(other)}: return None"] = None
        return yes

    return method


def _alone(function: str, compute: Callable[[Any], Any]) -> Callable[[Number], Any]:
    def method(self: Number) -> Any:
        return self.notes.computed(f"{function}({{}})", compute, self)

    return method


def _untold(self: Number, *_: Any, **__: Any) -> Any:
    raise Untold


class Number:
    """A number of one binding, and its name in the generated function."""

    __slots__ = ("name", "notes", "value")

    def __init__(self, notes: Notes, name: str, value: Any) -> None:
        self.notes, self.name, self.value = notes, name, value

    __add__, __radd__ = _noted("{}+{}", operator.add), _reflected("{}+{}", operator.add)
    __sub__, __rsub__ = _noted("{}-{}", operator.sub), _reflected("{}-{}", operator.sub)
    __mul__, __rmul__ = _noted("{}*{}", operator.mul), _reflected("{}*{}", operator.mul)
    __floordiv__, __rfloordiv__ = _noted("{}//{}", operator.floordiv), _reflected("{}//{}", operator.floordiv)
    __truediv__, __rtruediv__ = _noted("{}/{}", operator.truediv), _reflected("{}/{}", operator.truediv)
    __mod__, __rmod__ = _noted("{}%{}", operator.mod), _reflected("{}%{}", operator.mod)
    __neg__ = _alone("-", operator.neg)
    __trunc__, __ceil__ = _alone("trunc", math.trunc), _alone("ceil", math.ceil)
    __lt__, __ge__ = _compared("<", ">=", operator.lt), _compared(">=", "<", operator.ge)
    __gt__, __le__ = _compared(">", "<=", operator.gt), _compared("<=", ">", operator.le)
    __eq__, __ne__ = _compared("==", "!=", operator.eq), _compared("!=", "==", operator.ne)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __bool__(self) -> bool:
        found: bool = self != 0
        return found

    __array_ufunc__ = None  # NumPy's arrays leave it to these methods
    # Everything else would lose what the number comes from.
    __hash__ = __index__ = __int__ = __float__ = __round__ = __floor__ = __array__ = bit_length = _untold
    __lshift__ = __rlshift__ = __rshift__ = __and__ = __rand__ = __or__ = __ror__ = __pow__ = __str__ = _untold


def _unchanged(text: str, a: Any, b: Any = None) -> Any:
    """The operand that equals the result, if the other one is neutral."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Number) and type(y) in (int, bool):
            if (text, y) in (("{}*{}", 1), ("{}+{}", 0)):
                return x
            if x is a and (text, y) == ("{}//{}", 1) and type(x.value) is int:
                return x
    return None


def _name(x: Any) -> str:
    return x.name if isinstance(x, Number) else repr(x)


class Notes:
    """The operations on the numbers of one binding: lines of Python, in order, each once."""

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}
        self._known: dict[str, Any] = {}

    def known(self, name: str, value: int) -> Any:
        return Number(self, name, value)

    def computed(self, text: str, compute: Callable[..., Any], *operands: Any) -> Any:
        if not all(isinstance(x, Number | int | float) for x in operands):
            raise Untold
        if (same := _unchanged(text, *operands)) is not None:
            return same
        source = text.format(*map(_name, operands))
        found = self._known.get(source)
        if found is None:
            value = compute(*(x.value if isinstance(x, Number) else x for x in operands))
            found = self._known[source] = Number(self, f"t{len(self._known)}", value)
            self.lines[f"{found.name} = {source}"] = None
        return found


def _needed(lines: Iterable[str], results: Sequence[str]) -> list[str]:
    """The lines that decisions and results hang on, and the results; what is used once stands where it is used."""
    uses: Counter[str] = Counter(x for line in results for x in _TEMPORARY.findall(line))
    kept = []
    for line in reversed(list(lines)):
        if line.startswith("if ") or uses[line[: line.index(" ")]]:
            uses.update(_TEMPORARY.findall(line.partition(" = ")[2] or line))
            kept.append(line)
    found: dict[str, str] = {}
    out = []
    for line in (*kept[::-1], *results):
        spelled = _TEMPORARY.sub(lambda m: found.get(m[0], m[0]), line)
        name, is_value, value = spelled.partition(" = ")
        if is_value and uses[name] == 1 and len(value) < LONG and _TEMPORARY.fullmatch(name):
            found[name] = f"({value})"
        else:
            out.append(spelled)
    return out


class Found(NamedTuple):
    """A binding of a plan computed by a function; `common` has the parts that are equal for all its extents."""

    common: dict[str, Any]
    shapes: list[Extents]  # of what is wanted
    sizes: list[int]  # of buffers
    arena_size: int
    moving: list[tuple[int, int, int, int]]
    programs: list[Program]
    kept: list[Kept]


class Function:
    """A generated function that binds a plan, for the extents that give the same decisions."""

    def __init__(
        self,
        exe: NativeExecutable,
        extents: Extents,
        values: list[int],
        varying: set[int],
        left_out: frozenset[int] | None,
    ) -> None:
        """From the binding to these extents. varying: those that may differ. Untold if it cannot be written out."""
        notes = Notes()
        numbers: list[Any] = list(values)
        for i, moves in exe.expressions.differing(varying):
            numbers[i] = notes.known(_MOVES if moves else f"v[{i}]", values[i])
        self.threads = get_num_threads()
        binding = Binding(exe, numbers, left_out)
        parts = binding.divide(notes.known("flag", 0))
        binding.donations = binding.possible_donations()
        nbases = binding.n_fixed + len(binding.moving)
        self.programs: list[Program] = []
        self.differing: list[list[int]] = []  # the places of the words that may differ, a program
        space: dict[str, Any] = {"trunc": math.trunc, "ceil": math.ceil}
        copies: list[str] = []
        for n, part in enumerate(parts):
            if not isinstance(part, tuple):
                raise Untold  # a call from Python, which finds places and shapes by a binding of its own
            program, changes = _template(*part, nbases)
            self.programs.append(program)
            self.differing.append(list(changes))
            space[f"words{n}"] = program.words
            copies.append(f"w{n} = words{n}[:]")
            copies += [f"w{n}[{at}] = {name}" for at, name in changes.items()]
        moving = "".join(f"({', '.join(map(_name, m))})," for m in binding.moving)
        words = "".join(f"w{n}," for n in range(len(parts)))
        shapes = "".join(f"({''.join(f'{_name(d)},' for d in shape)})," for shape in binding.shapes)
        sizes = ", ".join(map(_name, binding.sizes))
        kept = []
        for n, k in enumerate(binding.kept):
            space["Kept"], space[f"form{n}"] = Kept, k.form
            kept.append(f"Kept({k.source}, ({', '.join(map(_name, k.sizes))}), form{n}, {_name(k.nbytes)})")
        result = (
            f"return [{shapes}], [{sizes}], {_name(binding.arena_size)}, [{moving}], ({words}), [{', '.join(kept)}]"
        )
        fixed = [k for k in range(len(extents)) if k not in varying]
        same = [f"if ({''.join(f's[{k}],' for k in fixed)}) != {tuple(extents[k] for k in fixed)}: return None"]
        lines = [*(same if fixed else ()), *_needed(notes.lines, (*copies, result))]
        self.text = "def bind(s, v, flag):\n    " + "\n    ".join(lines) + "\n"
        if _MOVES in self.text:
            raise Untold
        self.common = {name: getattr(binding, name) for name in COMMON}
        exec(compile(self.text, "<lazyt binding>", "exec"), space)
        self._bind = space["bind"]

    def find(self, extents: Extents, values: list[int], flag: int) -> Found | None:
        """The binding to these extents; None where it would be decided in another way."""
        found = self._bind(extents, values, flag)
        if found is None:
            return None
        shapes, sizes, arena_size, moving, words, kept = found
        programs = [p.over(w) for p, w in zip(self.programs, words, strict=True)]
        return Found(self.common, shapes, sizes, arena_size, moving, programs, kept)


def _template(
    rows: list[list[Any]], table: list[Any], patches: list[tuple[Any, Any, Any]], nbases: int
) -> tuple[Program, dict[int, str]]:
    """A program that is never run, and what is to be written over it: by the place among its words, the name."""
    changes: dict[int, str] = {}
    plain: list[int] = []
    first, second = ROW_FIELDS * len(rows), ROW_FIELDS * len(rows) + len(table)
    for x in (*(x for row in rows for x in row), *table, *(x for patch in patches for x in patch)):
        at = len(plain)
        if isinstance(x, Number):
            # NOTE: of everything else it is checked once that a program reads and writes nothing but its own.
            free = at % ROW_FIELDS in (UNITS, GRAIN) if at < first else at < second or (at - second) % 3 == 2
            if not free:
                raise Untold
            changes[at] = x.name
        plain.append(x.value if isinstance(x, Number) else x)
    row_values = [plain[i : i + ROW_FIELDS] for i in range(0, first, ROW_FIELDS)]
    patch_values = [plain[i : i + 3] for i in range(second, len(plain), 3)]
    return Program(row_values, plain[first:second], patch_values, nbases), changes


class Rebinder:
    """Binds a plan to new extents; one for each combination of omitted copies."""

    def __init__(self, exe: NativeExecutable, left_out: frozenset[int] | None) -> None:
        self.exe, self.left_out = exe, left_out
        self.functions: list[Function] = []  # the last one used is the first
        self.first: Extents | None = None
        self.varying: set[int] = set()
        self.missed = 0  # full bindings since the last function was generated
        self.attempts = ATTEMPTS  # attempts left at generating a function

    def find(self, extents: Extents, values: list[int], flag: int) -> Found | None:
        """The binding to these extents, if a function has it."""
        if not self.functions or not switches["rebind"]:
            return None
        threads = get_num_threads()
        for i, f in enumerate(self.functions):
            if f.threads == threads and (found := f.find(extents, values, flag)) is not None:
                if i:
                    self.functions.insert(0, self.functions.pop(i))
                return found
        return None

    def learn(self, extents: Extents, values: list[int]) -> None:
        """Record that the plan was bound to these extents in full; a function is generated if that happens often."""
        if self.first is None:
            self.first = extents
            return
        self.varying.update(k for k, (a, b) in enumerate(zip(extents, self.first, strict=True)) if a != b)
        self.missed += 1
        if not switches["rebind"] or switches["autotune"]:
            return
        if not self.attempts or self.missed < OTHERS + 2 * len(self.functions):
            return
        self.missed = 0
        try:
            written = Function(self.exe, extents, values, self.varying, self.left_out)
        except Untold:
            self.attempts -= 1
        else:
            self.functions.insert(0, written)
            del self.functions[MOST:]
