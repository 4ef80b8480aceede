"""Kernels for tests: a builder that takes NumPy views, and a few that every backend must do."""

from __future__ import annotations

import dataclasses

import numpy as np

from lazyt.ir import kernel as ir
from lazyt.ir.kernel_interpreter import Arguments, Bound

BOOL, INT64, F32 = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float32)


def bound(view: np.ndarray) -> Bound:
    """`view` as an access argument; what it is a view of must be C-contiguous."""
    root = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    offset = (view.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // view.itemsize
    flat = root.reshape(-1)
    return Bound(flat, offset, tuple(s // view.itemsize for s in view.strides))


class Builder:
    """A kernel and its arguments, from NumPy views that broadcast to the domain."""

    def __init__(self, extents: tuple[int, ...], rows: int = 0, vector: str = "outer") -> None:
        self.extents, self.rows, self.vector = extents, rows, vector
        self.accesses: list[ir.Access] = []
        self.bounds: list[Bound] = []
        self.affines: list[ir.Affine] = []
        self.coefficients: list[tuple[tuple[int, ...], int]] = []
        self.scalars: list[bool | int | float] = []
        self.values: list[ir.Value] = []
        self.stages: list[ir.Stage] = []

    def access(self, view: np.ndarray, writes: bool = False, classes: str = "") -> int:
        if not writes:
            view = np.broadcast_to(view, self.extents)
        where = bound(view)
        found = classes or "".join("0" if s == 0 else "1" if s == 1 else "n" for s in where.strides)
        if view.size == 0:  # NumPy's strides then say nothing
            found = classes or "n" * view.ndim
        self.accesses.append(ir.Access(view.dtype, found, writes))
        self.bounds.append(where)
        return len(self.accesses) - 1

    def add(self, value: ir.Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def load(self, view: np.ndarray, where: int | None = None, classes: str = "") -> int:
        return self.add(ir.Load(self.access(view, classes=classes), view.dtype, where))

    def op(self, name: str, *operands: int, dtype: np.dtype | None = None) -> int:
        return self.add(ir.Op(name, operands, dtype or self.values[operands[-1]].dtype))

    def const(self, x: bool | float, dtype: np.dtype) -> int:
        return self.add(ir.Const(x, dtype))

    def argument(self, x: bool | float) -> int:
        self.scalars.append(x)
        return len(self.scalars) - 1

    def scalar(self, x: bool | float, dtype: np.dtype) -> int:
        return self.add(ir.Scalar(self.argument(x), dtype))

    def index(self, coefficients: tuple[int, ...], offset: int = 0) -> int:
        self.affines.append(ir.Affine("".join("0" if c == 0 else "1" if c == 1 else "n" for c in coefficients)))
        self.coefficients.append((coefficients, offset))
        return self.add(ir.Index(len(self.affines) - 1, INT64))

    def reduce(self, name: str, operand: int) -> int:
        dtype = INT64 if name.startswith("arg") else self.values[operand].dtype
        return self.add(ir.Reduce(name, operand, dtype))

    def store(self, value: int, out: np.ndarray, classes: str = "") -> ir.Store:
        return ir.Store(self.access(out, True, classes), value)

    def store_once(self, value: int, out: np.ndarray) -> ir.Store:
        """A store, in a stage that does not loop, to the C-contiguous `out` of the outer shape."""
        strides = tuple(s // out.itemsize for s in out.strides)
        classes = "n" * (out.ndim - 1) + "1" * (out.ndim > 0)
        self.accesses.append(ir.Access(out.dtype, classes + "0" * self.rows, True))
        self.bounds.append(Bound(out.reshape(-1), 0, strides + (0,) * self.rows))
        return ir.Store(len(self.accesses) - 1, value)

    def stage(self, *stores: ir.Store, reduces: tuple[int, ...] = (), loops: bool = False) -> None:
        self.stages.append(ir.Stage(loops, reduces, stores))

    def kernel(self) -> ir.Kernel:
        made = ir.Kernel(
            outer=len(self.extents) - self.rows,
            rows=self.rows,
            vector=self.vector,
            accesses=tuple(self.accesses),
            affines=tuple(self.affines),
            scalars=len(self.scalars),
            values=tuple(self.values),
            stages=tuple(self.stages),
        )
        ir.verify(made)
        return made

    def arguments(self) -> Arguments:
        """Fresh copies of what is stored to."""
        copies: dict[int, np.ndarray] = {}
        for a, b in zip(self.accesses, self.bounds, strict=True):
            if a.writes:
                copies.setdefault(b.array.ctypes.data, b.array.copy())
        bounds = tuple(dataclasses.replace(b, array=copies.get(b.array.ctypes.data, b.array)) for b in self.bounds)
        return Arguments(self.extents, bounds, tuple(self.coefficients), tuple(self.scalars))


def reduction(name: str, x: np.ndarray, vector: str, rows: int = 1) -> Builder:
    """`name` over the last `rows` axes of x, and its store in a stage of its own."""
    outer = x.shape[: x.ndim - rows]
    out = np.zeros(outer, INT64 if name.startswith("arg") else x.dtype)
    k = Builder(x.shape, rows, vector)
    r = k.reduce(name, k.load(x))
    k.stage(reduces=(r,), loops=True)
    k.stage(k.store_once(r, out))
    return k


def softmax(x: np.ndarray, vector: str, axis: int) -> Builder:
    x = np.moveaxis(x, axis, -1)
    out = np.moveaxis(np.zeros(np.moveaxis(x, -1, axis).shape, x.dtype), axis, -1)
    k = Builder(x.shape, 1, vector)
    v = k.load(x)
    top = k.reduce("max", v)
    e = k.op("exp", k.op("sub", v, top))
    total = k.reduce("sum", e)
    k.stage(reduces=(top,), loops=True)
    k.stage(reduces=(total,), loops=True)
    k.stage(k.store(k.op("div", e, total), out), loops=True)
    return k


def layernorm(x: np.ndarray, w: np.ndarray, b: np.ndarray, vector: str) -> Builder:
    """Two reductions in one stage, values between stages, outputs inside and outside the rows."""
    rows, n = x.shape
    out, mean_out = np.zeros_like(x), np.zeros(rows, F32)
    k = Builder(x.shape, 1, vector)
    v = k.load(x)
    total, squares = k.reduce("sum", v), k.reduce("sum", k.op("mul", v, v))
    scale = k.scalar(1.0 / n, F32)
    mean = k.op("mul", total, scale)
    var = k.op("sub", k.op("mul", squares, scale), k.op("mul", mean, mean))
    std = k.op("sqrt", k.op("add", var, k.const(1e-5, F32)))
    y = k.op("div", k.op("sub", v, mean), std)
    y = k.op("add", k.op("mul", y, k.load(w[None, :])), k.load(b[None, :]))
    k.stage(reduces=(total, squares), loops=True)
    k.stage(k.store(y, out), loops=True)
    k.stage(k.store_once(mean, mean_out))
    return k


def checked_gather(n: int, index: np.ndarray, table: np.ndarray, where: bool = False) -> tuple[Builder, ir.Kernel]:
    out = np.full(n, 9.0, F32)
    k = Builder((n,))
    i = k.load(index, classes="1")
    guard = k.op("ne", i, k.const(-5, INT64), dtype=BOOL) if where else None
    i = k.add(ir.Check(i, k.scalar(len(table), INT64), k.argument(41), INT64, guard))
    k.accesses.append(ir.Access(F32, "0"))
    k.bounds.append(Bound(table, 0, (0,)))
    k.stage(k.store(k.add(ir.Gather(len(k.accesses) - 1, ((i, k.argument(1)),), F32, guard)), out))
    return k, k.kernel()


def several_sums(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, shape: tuple[int, ...], rows: int, vector: str
) -> Builder:
    """Sums, a product and extremes of x, h and c, and what they are computed of, over `rows` row axes."""
    k = Builder(shape, rows, vector)
    values = [k.load(v) for v in (x, h, c)]
    y = k.op("add", k.op("mul", values[1], values[2]), values[0])
    scaled = k.op("add", k.op("mul", y, k.const(1e-3, x.dtype)), k.const(1.0, x.dtype))
    reduces = (k.reduce("sum", y), k.reduce("max", y), k.reduce("prod", scaled), k.reduce("sum", values[0]))
    k.stage(k.store(y, np.zeros(shape, x.dtype)), reduces=reduces, loops=True)
    # What is summed up in a later stage.
    apart = k.op("abs", k.op("sub", y, reduces[0]))
    total = k.reduce("sum", apart)
    k.stage(reduces=(total,), loops=True)
    k.stage(k.store(apart, np.zeros(shape, x.dtype)), loops=True)
    for r in (*reduces, total):
        k.stage(k.store_once(r, np.zeros(shape[:1], x.dtype)))
    return k
