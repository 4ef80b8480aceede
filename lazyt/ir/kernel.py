"""The kernel IR: one loop nest, lowered to LLVM IR on the CPU and to CUDA C on the GPU.

    kernel  := Kernel(outer=R, rows=K, vector='outer'|'row'|'rows', accesses, affines, scalars, values, stages)
    access  := Access(dtype, classes, writes)            one pointer and one stride an axis, all arguments
    affine  := Affine(classes)                           sum(coef[a] * i[a]) + offset, all arguments
    value   := Load(access, where?) | Gather(access, indices, where?) | Index(affine)
             | Scalar(k, dtype) | Const(value, dtype)
             | Op(name, operands, dtype) | Cast(operand, dtype)
             | Reduce(name, operand, dtype) | Check(index, bound, code)
    stage   := Stage(loops, reduces, stores)
    store   := Store(access, value)

Axes. `outer` parallel axes come first, then `rows` serial axes, in row-major order. One of them is
the vector axis: the last row axis (`vector='row'` or `'rows'`) or the last outer axis (`vector='outer'`). A
kernel without row axes is a map: `vector='outer'`, one stage that does not loop.
Extents, strides, coefficients, offsets, pointers and scalars are *arguments*: a new size compiles
nothing. What is static, and so part of the kernel's key, is each access's class an axis:
`'0'` the value does not move along this axis, `'1'` unit stride, `'-'` stride -1 (given as an argument too),
`'2'` stride 2 (along the vector axis of accesses, given as an argument too; a backend's choice), `'n'` any stride.

Meaning. For every outer index, the stages run in order. A stage that loops walks all row axes and
evaluates its reduces and stores at every point; one that does not evaluates its stores once for an
outer index (its values may use earlier reduces and anything that does not move along row axes).
A `Load` with `where` reads only where that boolean value is true and gives zero elsewhere.
A `Check` yields its index clamped into [0, bound). If that was outside, at a point inside the domain (and
`where` true, when given), and the status is still 0, it writes the status: two int64, code and index.
A `Gather` whose checked bound is 0 reads nothing and gives zero.
A value may be computed once for all points that it does not move between, and then even if a row axis has
extent 0: so the element of a class '0' axis must be there to read. A store has class '0' only along axes
of extent 1 and, in a stage that does not loop, along all row axes.

A maximum or minimum is NaN if any element is; -0.0 lies below 0.0. argmax and argmin give the first of the
extreme elements (or the first NaN), -0.0 being equal to 0.0.
Order of a floating sum or product (equal bits whatever it is fused with, however many threads and
whatever the host's registers): LANES partial sums by (position along the vector axis) mod LANES,
each flushed into a float64 partial after FLUSH steps and at the end of each innermost row; after
CHUNK elements along the innermost axis, and at its end, the LANES float64 partials are added in a
fixed tree (halves: lane j with lane j + LANES/2, ...) to the float64 total, which is rounded once.
With `vector='rows'` the last two row axes have the order of one, in row-major order.
With `vector='outer'` each lane is an output of its own: it is flushed into its float64 total after FLUSH
steps along the innermost row axis and at that axis's end. float64 has float64 lanes, the halves float32.

Arguments: int64 entries in this order (see `Kernel.layout`): the extents of all axes; for each access
its address and then one stride (in elements) an axis; for each affine one coefficient an axis and the
offset; the scalars (a float as the bits of a double, anything else as an int64); the address of the status, if some
value is a Check. Units of parallel work: see `Kernel.units`.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from lazyt import on_demand
from lazyt.errors import LazytInternalError
from lazyt.forking import cached_property
from lazyt.ir import dtypes
from lazyt.ir.prims import ELEMENTWISE
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np
else:
    hashlib = on_demand.module("hashlib")

LANES = 16
FLUSH = 128
CHUNK = 65536
# A map kernel's unit of parallel work: one outer index and this many elements of the vector axis.
BLOCK = 8192
# With row axes and vector='outer', a unit is this many elements of the vector axis, each its own reduction.
COLUMNS = 64

REDUCES = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")


# The axis of the lanes; 'rows' is the last row axis too.
Vector = Literal["outer", "row", "rows"]


@dataclass(frozen=True, slots=True)
class Access:
    dtype: np.dtype
    classes: str  # one of '0', '1', '2', '-', '=', 'n' an axis: strides 0, 1, 2, -1, -2, any
    writes: bool = False
    # A store of class '2': the one whose elements lie before its own, and is written with it. A backend's choice.
    beside: int | None = None
    # Of a read of class '1' along the vector axis, and '0' elsewhere: its index there counts modulo this, if not 0. A
    # backend's choice.
    period: int = 0
    # Of a read of class '1' along the vector axis: it has one element for each so many indices there, if not 0. A
    # backend's choice.
    spread: int = 0


@dataclass(frozen=True, slots=True)
class Affine:
    classes: str  # '0', '1', '-' or 'n' an axis


@dataclass(frozen=True, slots=True)
class Load:
    access: int
    dtype: np.dtype
    where: int | None = None


@dataclass(frozen=True, slots=True)
class Gather:
    """Load at the access's affine address plus sum(value[index] * scalar[stride]) elements."""

    access: int
    indices: tuple[tuple[int, int], ...]  # (value of dtype int64, scalar that holds its stride)
    dtype: np.dtype
    where: int | None = None


@dataclass(frozen=True, slots=True)
class Index:
    affine: int
    dtype: np.dtype  # int64


@dataclass(frozen=True, slots=True)
class Scalar:
    position: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Const:
    value: bool | int | float
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    operands: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Cast:
    operand: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reduction of `operand` over all row axes; argmax and argmin (one row axis) give int64, ties and NaN as NumPy."""

    name: str
    operand: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Check:
    index: int  # int64
    bound: int  # int64 scalar value
    code: int  # scalar position that holds the code to record
    dtype: np.dtype
    where: int | None = None


Value = Load | Gather | Index | Scalar | Const | Op | Cast | Reduce | Check


def key_of(value: Value) -> object:
    """The identity of a value; equality does not distinguish 0.0 from -0.0."""
    return (value, repr(value.value)) if type(value) is Const else value


@dataclass(frozen=True, slots=True)
class Store:
    access: int
    value: int


@dataclass(frozen=True, slots=True)
class Stage:
    loops: bool
    reduces: tuple[int, ...]  # values of kind Reduce finished by this stage
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of each argument in the kernel's int64 entries."""

    extents: int
    accesses: tuple[int, ...]
    affines: tuple[int, ...]
    scalars: int
    status: int  # -1 when there is no Check
    size: int


@dataclass(frozen=True)
class Kernel:
    outer: int
    rows: int
    vector: Vector
    accesses: tuple[Access, ...]
    affines: tuple[Affine, ...]
    scalars: int
    values: tuple[Value, ...]
    stages: tuple[Stage, ...]
    # A description for people; not part of the key.
    title: str = field(default="", compare=False)

    @property
    def axes(self) -> int:
        return self.outer + self.rows

    @property
    def vector_axis(self) -> int:
        return self.outer - 1 if self.vector == "outer" else self.axes - 1

    @cached_property
    def has_check(self) -> bool:
        return any(isinstance(v, Check) for v in self.values)

    def asks(self, stage: Stage) -> bool:
        """Whether a stage over rows gives nothing but `any` and `all`, so that one element may decide it.

        Every index is checked, also behind that element.
        """
        names = [v.name for r in stage.reduces if isinstance(v := self.values[r], Reduce)]
        return bool(names) and not {*names} - {"any", "all"} and not stage.stores and not self.has_check

    @cached_property
    def weight(self) -> int:
        """About how often as long as a sum of two arrays a point takes, in caches."""
        costly = sum(isinstance(v, Op) and v.name in ELEMENTWISE and ELEMENTWISE[v.name].costly for v in self.values)
        return max(len(self.accesses) // 3 + 3 * costly, 1)

    @cached_property
    def layout(self) -> Layout:
        at = self.axes
        accesses = []
        for _ in self.accesses:
            accesses.append(at)
            at += 1 + self.axes
        affines = []
        for _ in self.affines:
            affines.append(at)
            at += self.axes + 1
        scalars = at
        at += self.scalars
        status = at if self.has_check else -1
        return Layout(0, tuple(accesses), tuple(affines), scalars, status, at + self.has_check)

    @cached_property
    def text(self) -> str:
        return "\n".join(kernel_lines(self))

    @cached_property
    def key(self) -> str:
        """Content hash: equal keys mean the same machine code."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]

    def units(self, extents: Sequence[int]) -> int:
        """How many independent units of work there are for these extents of all axes.

        vector='row' or 'rows': one for each outer index. vector='outer': one for each index of the outer axes but
        the last, times the blocks (BLOCK elements, or COLUMNS when there are row axes) of the last.
        """
        n = 1
        for e in extents[: self.outer - 1 if self.vector == "outer" else self.outer]:
            n *= e
        if self.vector == "outer":
            block = COLUMNS if self.rows else BLOCK
            n *= -(-extents[self.outer - 1] // block)
        return n


def operands_of(value: Value) -> tuple[int, ...]:
    """The values that `value` reads at the same point (a Reduce's operand is read by its stage instead)."""
    match value:
        case Op():
            return value.operands
        case Cast():
            return (value.operand,)
        case Gather():
            where = () if value.where is None else (value.where,)
            return tuple(i for i, _ in value.indices) + where
        case Load():
            return () if value.where is None else (value.where,)
        case Check():
            where = () if value.where is None else (value.where,)
            return (value.index, value.bound, *where)
        case _:
            return ()


def with_operands(value: Value, new: Mapping[int, int]) -> Value:
    """The same value over other operands: each replaced by its entry in `new` (not a Reduce's)."""

    def maybe(o: int | None) -> int | None:
        return None if o is None else new[o]

    match value:
        case Op():
            return replace(value, operands=tuple(new[o] for o in value.operands))
        case Cast():
            return replace(value, operand=new[value.operand])
        case Load():
            return replace(value, where=maybe(value.where))
        case Gather():
            indices = tuple((new[i], s) for i, s in value.indices)
            return replace(value, indices=indices, where=maybe(value.where))
        case Check():
            return replace(value, index=new[value.index], bound=new[value.bound], where=maybe(value.where))
        case _:
            return value


def moving_axes(kernel: Kernel) -> list[frozenset[int]]:
    """For each value the axes along which it may change; a Reduce changes along the outer axes only."""
    moves: list[frozenset[int]] = []
    for v in kernel.values:
        match v:
            case Reduce():
                moves.append(frozenset(range(kernel.outer)))
                continue
            case Load() | Gather():
                classes = kernel.accesses[v.access].classes
            case Index():
                classes = kernel.affines[v.affine].classes
            case _:
                classes = ""
        own = frozenset(a for a, c in enumerate(classes) if c != "0")
        moves.append(own.union(*(moves[o] for o in operands_of(v))))
    return moves


def _value_text(value: Value) -> str:
    def where(w: int | None) -> str:
        return "" if w is None else f" where %{w}"

    match value:
        case Load():
            return f"load @{value.access}{where(value.where)}"
        case Gather():
            terms = ", ".join(f"%{i} * arg{s}" for i, s in value.indices)
            return f"gather @{value.access} [{terms}]{where(value.where)}"
        case Index():
            return f"index #{value.affine}"
        case Scalar():
            return f"arg{value.position}"
        case Const():
            return f"const {value.value!r}"
        case Op():
            return f"{value.name} " + ", ".join(f"%{o}" for o in value.operands)
        case Cast():
            return f"cast %{value.operand}"
        case Reduce():
            return f"reduce.{value.name} %{value.operand}"
        case Check():
            return f"check %{value.index} < %{value.bound} else arg{value.code}{where(value.where)}"


def kernel_lines(kernel: Kernel) -> Iterator[str]:
    """One line an entity, deterministic: the printed form is also what the key hashes."""
    yield f"kernel outer={kernel.outer} rows={kernel.rows} vector={kernel.vector} scalars={kernel.scalars}"
    for i, a in enumerate(kernel.accesses):
        beside = "" if a.beside is None else f" beside @{a.beside}"
        period = f" modulo {a.period}" * bool(a.period)
        spread = f" for {a.spread} each" * bool(a.spread)
        yield f"  @{i}: {'store' if a.writes else 'read'} {a.dtype} [{a.classes}]{beside}{period}{spread}"
    for i, f in enumerate(kernel.affines):
        yield f"  #{i}: affine [{f.classes}]"
    for i, v in enumerate(kernel.values):
        yield f"  %{i}: {v.dtype} = {_value_text(v)}"
    for s in kernel.stages:
        yield f"  stage {'over rows' if s.loops else 'once'}:"
        for r in s.reduces:
            yield f"    finish %{r}"
        for st in s.stores:
            yield f"    @{st.access} <- %{st.value}"


def verify(kernel: Kernel) -> None:
    """Raise LazytInternalError naming the first rule that `kernel` breaks."""

    def need(cond: bool, why: str) -> None:
        if not cond:
            raise LazytInternalError(f"invalid kernel: {why}\n{kernel.text}")

    need(kernel.outer >= 0 and kernel.rows >= 0 and kernel.axes >= 1, "needs at least one axis")
    need(kernel.vector != "outer" or kernel.outer >= 1, "vector='outer' needs an outer axis")
    need(kernel.vector != "row" or kernel.rows >= 1, "vector='row' needs a row axis")
    need(kernel.vector != "rows" or kernel.rows >= 2, "vector='rows' needs two row axes")
    for classes in (*(a.classes for a in kernel.accesses), *(f.classes for f in kernel.affines)):
        need(len(classes) == kernel.axes, "one class an axis")
        need(set(classes) <= set("012-=n"), "classes are '0', '1', '2', '-', '=' or 'n'")
        own = {c for a, c in enumerate(classes) if a != kernel.vector_axis}
        need(not own & {"2", "="}, "'2' and '=' are of the vector axis")
    need(not any({"2", "="} & {*f.classes} for f in kernel.affines), "an affine has no class '2' or '='")
    for a in kernel.accesses:
        if a.beside is not None:
            first = kernel.accesses[a.beside]
            alike = (first.dtype, first.classes, first.writes) == (a.dtype, a.classes, a.writes)
            need(
                a.writes and alike and a.classes[kernel.vector_axis] == "2",
                "a store is of class '2', as what it is beside",
            )
        if a.period:
            along = {kernel.vector_axis: "1"}
            alone = all(c == along.get(axis, "0") for axis, c in enumerate(a.classes))
            need(alone and not a.writes and not kernel.rows, "what is periodic is read, along the lanes of a map alone")
        if a.spread:
            along_lanes = a.classes[kernel.vector_axis] == "1" and not a.period
            need(along_lanes and not a.writes and not kernel.rows, "what is spread is read, along the lanes of a map")
    need(not any(a.writes and "=" in a.classes for a in kernel.accesses), "what is of class '=' is read")
    for i, v in enumerate(kernel.values):
        for o in operands_of(v):
            need(0 <= o < i, f"%{i} uses %{o}, which is not defined before it")
        _verify_value(kernel, i, v, need)
    _verify_stages(kernel, need)


def _verify_value(kernel: Kernel, i: int, v: Value, need: Callable[[bool, str], None]) -> None:
    values, int64 = kernel.values, "int64"
    match v:
        case Load() | Gather():
            need(0 <= v.access < len(kernel.accesses), f"%{i} reads access {v.access}")
            need(not kernel.accesses[v.access].writes, f"%{i} reads a store access")
            need(v.dtype == kernel.accesses[v.access].dtype, f"%{i} has another dtype than its access")
            if isinstance(v, Gather):
                need(all(values[o].dtype == int64 for o, _ in v.indices), f"%{i} has an index that is not int64")
                need(all(0 <= s < kernel.scalars for _, s in v.indices), f"%{i} reads a scalar that is not there")
        case Reduce():
            need(0 <= v.operand < i, f"%{i} reduces %{v.operand}, which is not defined before it")
            need(v.name in REDUCES, f"unknown reduction {v.name}")
            need(kernel.rows >= 1, "a reduction needs row axes")
            _verify_reduce(kernel, i, v, need)
        case Scalar():
            need(0 <= v.position < kernel.scalars, f"%{i} reads scalar {v.position}")
        case Index():
            need(0 <= v.affine < len(kernel.affines), f"%{i} reads affine {v.affine}")
            need(v.dtype == int64, f"%{i} is an index that is not int64")
        case Check():
            same = values[v.index].dtype == values[v.bound].dtype == v.dtype == int64
            need(same, f"%{i} checks what is not int64")
            need(0 <= v.code < kernel.scalars, f"%{i} reads scalar {v.code}")
        case _:
            pass
    where = getattr(v, "where", None)
    need(where is None or values[where].dtype == "bool", f"%{i} reads where %{where}, which is not bool")


def _verify_reduce(kernel: Kernel, i: int, v: Reduce, need: Callable[[bool, str], None]) -> None:
    source = kernel.values[v.operand].dtype
    match v.name:
        case "argmax" | "argmin":
            need(kernel.rows == 1, f"%{i} is an {v.name} over more than one row axis")
            need(v.dtype == "int64", f"%{i} is an {v.name} that is not int64")
        case "any" | "all":
            need(v.dtype == source == "bool", f"%{i} is an {v.name} of what is not bool")
        case "sum" | "prod":
            # Partial sums are kept in float64, and their total is rounded (see `split_reduction.py`).
            parts = "float64" in (v.dtype, source) and {dtypes.kind(v.dtype), dtypes.kind(source)} == {"f"}
            need(source != "bool" and (v.dtype == source or parts), f"%{i} is a {v.name} of another dtype, or of bools")
        case _:
            need(v.dtype == source, f"%{i} is a {v.name} of another dtype")


def _verify_stages(kernel: Kernel, need: Callable[[bool, str], None]) -> None:
    rows = frozenset(range(kernel.outer, kernel.axes))
    moves = moving_axes(kernel)
    finished: set[int] = set()
    for s in kernel.stages:
        need(s.loops or not s.reduces, "only a stage over rows finishes reductions")
        need(not s.loops or kernel.rows >= 1, "a stage over rows needs row axes")
        for r in s.reduces:
            need(isinstance(kernel.values[r], Reduce) and r not in finished, f"a stage finishes %{r}")
        operands = [kernel.values[r].operand for r in s.reduces]  # type: ignore[union-attr]
        for root in (*operands, *(t.value for t in s.stores)):
            for r in reduces_below(kernel, root):
                need(r in finished, f"a stage uses %{r} before a stage finished it")
        for t in s.stores:
            access = kernel.accesses[t.access]
            need(access.writes, f"@{t.access} is not a store access")
            need(access.dtype == kernel.values[t.value].dtype, f"@{t.access} stores another dtype")
            still = s.loops or (set(access.classes[kernel.outer :]) <= {"0"} and not moves[t.value] & rows)
            need(still, f"@{t.access} moves along row axes in a stage that does not loop")
        finished.update(s.reduces)
    need(
        finished == {i for i, v in enumerate(kernel.values) if isinstance(v, Reduce)},
        "every reduction is finished by exactly one stage",
    )


def _below(kernel: Kernel, roots: Iterable[int]) -> Iterator[int]:
    """The values that evaluating `roots` at a point reads, themselves included; a Reduce is read, not evaluated."""
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        i = todo.pop()
        if i not in seen:
            seen.add(i)
            yield i
            todo.extend(operands_of(kernel.values[i]))


def reduces_below(kernel: Kernel, root: int) -> set[int]:
    """The Reduce values that evaluating `root` at a point reads."""
    return {i for i in _below(kernel, [root]) if isinstance(kernel.values[i], Reduce)}


def bounds_below(kernel: Kernel, roots: Iterable[int]) -> set[int]:
    """The bounds of the Checks that evaluating `roots` at a point reads."""
    return {v.bound for i in _below(kernel, roots) if isinstance(v := kernel.values[i], Check)}


def used_accesses(kernel: Kernel, values: Iterable[int], stores: tuple[Store, ...]) -> set[int]:
    """The accesses that the given values and stores address."""
    found = {t.access for t in stores}
    for v in values:
        access = getattr(kernel.values[v], "access", None)
        if access is not None:
            found.add(access)
    return found
