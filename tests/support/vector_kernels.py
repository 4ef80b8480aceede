"""Loops around single primitives, compiled, and how their results are judged."""

from __future__ import annotations

import ctypes
import functools
import math

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from lazyt.backends.cpu import engine
from lazyt.backends.cpu.codegen import elementwise
from lazyt.backends.cpu.codegen.text import Body, mem_type, vector

LANES = 16
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BOOL, F16, F32, F64 = (np.dtype(n) for n in ("bool", "f2", "f4", "f8"))
SIGNED = [np.dtype(f"i{n}") for n in "1248"]
UNSIGNED = [np.dtype(f"u{n}") for n in "1248"]
INTS = SIGNED + UNSIGNED
FLOATS = [F16, BFLOAT16, F32, F64]

PREDICATES = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"}
BINARY = {
    "add", "sub", "mul", "div", "floordiv", "rem", "fmod", "pow", "maximum", "minimum", "eq", "ne",
    "lt", "le", "gt", "ge", "and", "or", "xor", "shl", "shr", "atan2", "hypot", "logaddexp",
    "copysign", "nextafter",
}  # fmt: skip


# Compiling


@functools.cache
def machine(cpu: str):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    if cpu == "host":
        return engine.host().create_machine()  # as LAZYT_DEBUG=width-8 wants it
    return target.create_target_machine(cpu=cpu, features="", opt=2, jit=True)


ENGINES = []


def compiled(source: str, cpu: str = "host") -> int:
    """The address of `@kernel` in `source`."""
    module = llvm.parse_assembly(source)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine(cpu).target_data)
    module.verify()
    code = machine(cpu).emit_object(module)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    loader = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine(jit=True))
    loader.add_object_file(llvm.ObjectFileRef.from_data(code))
    loader.finalize_object()
    ENGINES.append(loader)
    return loader.get_function_address("kernel")


def text_of(write, inputs, outputs) -> str:
    """A module with `@kernel`: a loop over `write(body, *vectors)` from memory to memory."""
    body = Body()
    parameters = [f"ptr %in{i}" for i in range(len(inputs))]
    parameters += [f"ptr %out{i}" for i in range(len(outputs))] + ["i64 %n"]
    body.line("br label %loop")
    body.label("loop")
    body.line("%i = phi i64 [0, %entry], [%next, %latch]")
    loaded = []
    for k, dtype in enumerate(inputs):
        kind = mem_type(dtype)
        at = body.let(f"getelementptr {kind}, ptr %in{k}, i64 %i")
        x = body.let(f"load {vector(kind, LANES)}, ptr {at}, align 1")
        if dtype == BOOL:
            x = body.let(f"trunc {vector('i8', LANES)} {x} to {vector('i1', LANES)}")
        loaded.append(x)
    for k, (x, dtype) in enumerate(zip(write(body, *loaded), outputs, strict=True)):
        kind = mem_type(dtype)
        if dtype == BOOL:
            x = body.let(f"zext {vector('i1', LANES)} {x} to {vector('i8', LANES)}")
        at = body.let(f"getelementptr {kind}, ptr %out{k}, i64 %i")
        body.line(f"store {vector(kind, LANES)} {x}, ptr {at}, align 1")
    body.line("br label %latch")
    body.label("latch")
    body.line(f"%next = add i64 %i, {LANES}")
    body.line("%more = icmp ult i64 %next, %n")
    body.line("br i1 %more, label %loop, label %done")
    body.label("done")
    body.line("ret void")
    head = f"define void @kernel({', '.join(parameters)})"
    return f"{body.module.text()}\n{head} {{\nentry:\n{body.text()}\n}}\n"


def runner(source: str, outputs, cpu: str = "host"):
    """`@kernel` as a function of NumPy arrays."""
    address = compiled(source, cpu)

    def run(*arrays):
        n = len(arrays[0])
        size = -(-n // LANES) * LANES
        padded = [np.resize(a, size) for a in arrays]
        results = [np.empty(size, d) for d in outputs]
        pointers = [a.ctypes.data for a in [*padded, *results]]
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)
        prototype(address)(*pointers, size)
        return [r[:n] for r in results] if len(results) > 1 else results[0][:n]

    return run


@functools.cache
def kernel(op: str, dtype: np.dtype, cpu: str = "host"):
    """`op` on arrays of `dtype` (and bool, for select)."""
    inputs = [dtype] * (2 if op in BINARY else 1)
    if op == "select":
        inputs = [BOOL, dtype, dtype]
    outputs = [BOOL if op in PREDICATES else dtype]

    def write(body, *xs):
        return [elementwise.lower(op, xs, dtype, body, LANES)]

    return runner(text_of(write, inputs, outputs), outputs, cpu)


@functools.cache
def caster(source: np.dtype, target: np.dtype, cpu: str = "host"):
    def write(body, x):
        return [elementwise.cast(x, source, target, body, LANES)]

    return runner(text_of(write, [source], [target]), [target], cpu)


# Judging


def same(got, want, name=""):
    """Equal, with NaN equal to NaN and the signs of zeros compared."""
    assert got.dtype == want.dtype
    got, want = (v.astype(F32) if v.dtype in (F16, BFLOAT16) else v for v in (got, want))
    np.testing.assert_array_equal(got, want, err_msg=name)
    if got.dtype.kind == "f":
        signs = [np.signbit(v[~np.isnan(want)]) for v in (got, want)]
        np.testing.assert_array_equal(*signs, err_msg=name)


def ulp_error(got, exact):
    """The distance to `exact` (wider) in units of the last place; inf for a wrong special value."""
    digits, least = {F32: (24, -149), F64: (53, -1074)}[got.dtype]
    rounded = exact.astype(got.dtype)
    _, exponent = np.frexp(exact)
    distance = np.abs(got.astype(exact.dtype) - exact)
    distance = np.ldexp(distance, -np.maximum(exponent - digits, least)).astype(np.float64)
    alike = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    zeros = (rounded == 0) & (got == 0) & (exact == 0)
    wrong_sign = zeros & (np.signbit(got) != np.signbit(rounded))
    special = ~np.isfinite(exact) | ~np.isfinite(got) | ~np.isfinite(rounded)
    return np.where(special, np.where(alike, 0.0, np.inf), distance) + np.where(wrong_sign, np.inf, 0)


def within(got, exact, bound, *args):
    error = ulp_error(got, exact)
    worst = int(error.argmax())
    assert error[worst] <= bound, (
        f"{error[worst]} ULP at {[a[worst] for a in args]!r}: {got[worst]!r}, not {exact[worst]!r}"
    )


def floats(dtype: np.dtype, n: int = 20_000) -> np.ndarray:
    """Special values, every exponent, and where functions bend."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2 ** (8 * dtype.itemsize), n, dtype=f"u{dtype.itemsize}").view(dtype)
    usual = np.exp2(rng.uniform(-12, 8, n)) * rng.choice([-1, 1], n)
    near_one = 1 + np.exp2(rng.uniform(-30, -1, n)) * rng.choice([-1, 1], n)
    return np.concatenate([specials(dtype), bits, usual.astype(dtype), near_one.astype(dtype)])


def specials(dtype: np.dtype) -> np.ndarray:
    info = ml_dtypes.finfo(dtype)
    tiny, least, most = (float(v) for v in (info.tiny, info.smallest_subnormal, info.max))
    sizes = [0, 1, 2, 3, 4, 0.5, 1.5, 2.5, 0.25, 1e-3, 100, 1 - float(info.epsneg)]
    sizes += [1 + float(info.eps), math.pi, 88.7, 127.5, tiny, least, 3 * least, most, math.inf]
    both = np.array(sizes + [-s for s in sizes] + [math.nan])
    return both.astype(dtype)


def pairs(dtype: np.dtype, n: int = 20_000):
    a, b = (x.ravel() for x in np.meshgrid(specials(dtype), specials(dtype)))
    x = floats(dtype, n)
    y = np.random.default_rng(3).permutation(x)
    return np.concatenate([a, x]), np.concatenate([b, y])


def integers(dtype):
    """Pairs of edges and of random integers of all lengths; all pairs of 8-bit ones."""
    info = np.iinfo(dtype)
    if dtype.itemsize == 1:
        every = np.arange(info.min, info.max + 1)
        return tuple(v.ravel().astype(dtype) for v in np.meshgrid(every, every))
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**63, (2, 3000), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    short = bits >> rng.integers(0, 64, bits.shape).astype(np.uint64)
    edges = [0, 1, 2, 3, 7, 10, info.max, info.max - 1, info.max // 2, info.min, info.min + 1]
    edges += [8 * dtype.itemsize - 1, 8 * dtype.itemsize, 2 ** (4 * dtype.itemsize)]
    edges += [-1, -2, -3] if dtype.kind == "i" else []
    x, y = (v.ravel() for v in np.meshgrid(np.array(edges, object), np.array(edges, object)))
    random = [v.astype(dtype) for v in (bits, short)]
    random[1] = random[1] * rng.choice([1, -1], bits.shape).astype(dtype)
    return (
        np.concatenate([x.astype(dtype), random[0][0], random[1][0], random[0][0]]),
        np.concatenate([y.astype(dtype), random[0][1], random[1][1], random[1][1]]),
    )
