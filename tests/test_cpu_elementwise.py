"""The CPU backend's lowering of each primitive and cast, against NumPy and wider arithmetic.

Bounds are in ULP of the result's dtype. float32 is judged by float64, float64 by the x87's long double
where that is wider. The exhaustive tests run only when asked for: `pytest -m slow`.
"""

from __future__ import annotations

import ctypes
import functools
import math

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from lazyt.backends.cpu import casts, elementwise, philox
from lazyt.backends.cpu.text import Body, Module, mem_type, vector
from lazyt.errors import LazytInternalError

LANES = 16
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BOOL, F16, F32, F64 = (np.dtype(n) for n in ("bool", "f2", "f4", "f8"))
SIGNED = [np.dtype(f"i{n}") for n in "1248"]
UNSIGNED = [np.dtype(f"u{n}") for n in "1248"]
INTS = SIGNED + UNSIGNED
FLOATS = [F16, BFLOAT16, F32, F64]
LONG = np.longdouble
by_dtype = functools.partial(pytest.mark.parametrize, "dtype", ids=str)

PREDICATES = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"}
BINARY = set(
    "add sub mul div floordiv rem fmod pow maximum minimum eq ne lt le gt ge and or xor shl shr "
    "atan2 hypot logaddexp copysign nextafter".split()
)
NUMPY = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "round": "rint",
    "floordiv": "floor_divide", "rem": "remainder", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "and": "bitwise_and", "pow": "power",
    "or": "bitwise_or", "xor": "bitwise_xor", "not": "invert", "shl": "left_shift",
    "shr": "right_shift", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "popcount": "bitwise_count",
}  # fmt: skip

# The bounds that are asserted: (float32, float64).
UNARY_ULP = {
    "exp": (0.53, 0.8), "exp2": (0.53, 0.8), "expm1": (0.51, 1.0), "log": (0.52, 0.7),
    "log2": (0.52, 0.7), "log10": (0.52, 0.7), "log1p": (0.52, 1.2), "sin": (0.51, 0.8),
    "cos": (0.51, 0.8), "tan": (0.53, 0.9), "asin": (0.51, 0.7), "acos": (0.51, 0.7),
    "atan": (0.51, 1.2), "sinh": (0.51, 1.0), "cosh": (0.53, 0.8), "tanh": (0.51, 0.9),
    "asinh": (0.52, 1.1), "acosh": (0.51, 0.7), "atanh": (0.52, 1.1), "erf": (0.51, 1.0),
    "erfc": (0.55, 2.0), "rsqrt": (1.5, 1.5),
}  # fmt: skip
BINARY_ULP = {"pow": (0.53, 0.8), "atan2": (0.51, 1.2), "hypot": (0.51, 0.6), "logaddexp": (0.51, 1.5)}


# Compiling


@functools.cache
def machine(cpu: str):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    if cpu == "host":
        features = llvm.get_host_cpu_features().flatten()
        return target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True
        )
    return target.create_target_machine(cpu=cpu, features="", opt=2, jit=True)


ENGINES = []


def compiled(source: str, cpu: str = "host") -> int:
    """The address of `@kernel` in `source`."""
    module = llvm.parse_assembly(source)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine(cpu).target_data)
    module.verify()
    code = machine(cpu).emit_object(module)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), target.create_target_machine(jit=True)
    )
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    ENGINES.append(engine)
    return engine.get_function_address("kernel")


def text_of(write, inputs, outputs, module=None) -> str:
    """A module with `@kernel`: a loop over `write(body, *vectors) -> vectors` from memory to memory."""
    body = Body(module)
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


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def asked_for(request):
    if "slow" not in request.config.option.markexpr.replace("not slow", ""):
        pytest.skip("exhaustive: run with -m slow")


def same(got, want, name=""):
    """Equal, with NaN equal to NaN and the signs of zeros compared."""
    assert got.dtype == want.dtype
    got, want = (v.astype(F32) if v.dtype in (F16, BFLOAT16) else v for v in (got, want))
    np.testing.assert_array_equal(got, want, err_msg=name)
    if got.dtype.kind == "f":
        signs = [np.signbit(v[~np.isnan(want)]) for v in (got, want)]
        np.testing.assert_array_equal(*signs, err_msg=name)


def ulp_error(got, exact):
    """The distance to `exact` (wider) in units of got's last place there; inf where special values differ."""
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


def libm(name: str):
    """A long double function of the C library, over arrays; ctypes rounds its result to a double."""
    f = getattr(ctypes.CDLL(None), name)
    f.restype, f.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    scalar = np.frompyfunc(lambda x: f(ctypes.c_longdouble(x)), 1, 1)
    return lambda x: scalar(x.astype(np.float64)).astype(LONG)


def reference(op: str, wide):
    """`op` by NumPy at a wider dtype."""
    if op == "rsqrt":
        return lambda x: 1 / np.sqrt(x)
    if op in ("erf", "erfc"):
        if wide == LONG:
            return libm(f"{op}l")
        return np.vectorize(getattr(math, op), otypes=[np.float64])
    return getattr(np, NUMPY.get(op, op))


def floats(dtype: np.dtype, n: int = 20_000) -> np.ndarray:
    """Special values, every exponent, and where functions bend."""
    rng = np.random.default_rng(7)
    info = ml_dtypes.finfo(dtype)
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


# Floats


@pytest.mark.parametrize("op", UNARY_ULP)
@by_dtype([F32, F64])
def test_unary_functions_stay_within_their_bounds(op, dtype):
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    x = floats(dtype, 20_000 if dtype == F32 else 4_000)
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide))
    within(kernel(op, dtype)(x), exact, UNARY_ULP[op][dtype == F64], x)


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@by_dtype([F32, F64])
def test_huge_angles_are_reduced_exactly(op, dtype):
    top = float(np.finfo(dtype).maxexp)
    x = np.exp2(np.random.default_rng(0).uniform(20, top, 3000)).astype(dtype)
    # The double next to a multiple of pi/2 (Kahan's), and the float32 that is hardest to reduce.
    x = np.concatenate([x, -x, np.array([1e22, 6381956970095103 * 2.0**797, 16367173 * 2.0**72], dtype)])
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide))
    within(kernel(op, dtype)(x), exact, UNARY_ULP[op][dtype == F64], x)


def scattered_powers(dtype):
    """Bases and exponents whose power neither overflows nor is 1."""
    rng = np.random.default_rng(11)
    limit = 120 if dtype == F32 else 1000
    near = rng.uniform(-1, 1, 8000) * np.exp2(rng.uniform(-20, -1, 8000))
    x = np.concatenate([1 + near, np.exp2(rng.uniform(-30, 30, 8000))]).astype(dtype)
    y = (rng.uniform(-limit, limit, 16000) / np.log2(x.astype(np.float64))).astype(dtype)
    return x, y


@pytest.mark.parametrize("op", BINARY_ULP)
@by_dtype([F32, F64])
def test_binary_functions_stay_within_their_bounds(op, dtype):
    if dtype == F64 and np.finfo(LONG).nmant <= 52:
        pytest.skip("long double is no wider than double here")
    x, y = pairs(dtype)
    if op == "pow":
        a, b = scattered_powers(dtype)
        x, y = np.concatenate([x, a]), np.concatenate([y, b])
    if op == "logaddexp" and dtype == F64:
        # Where the sum is near 1 the terms cancel, and only the absolute error is small.
        x, y = np.abs(x), np.abs(y)
    wide = np.float64 if dtype == F32 else LONG
    exact = reference(op, wide)(x.astype(wide), y.astype(wide))
    within(kernel(op, dtype)(x, y), exact, BINARY_ULP[op][dtype == F64], x, y)


def test_pow_has_the_special_values_of_c99():
    cases = [
        (0.0, -1.0, math.inf), (-0.0, -3.0, -math.inf), (-0.0, -2.0, math.inf), (-0.0, 3.0, -0.0),
        (-1.0, math.inf, 1.0), (1.0, math.nan, 1.0), (math.nan, 0.0, 1.0), (-8.0, 1 / 3, math.nan),
        (0.5, -math.inf, math.inf), (2.0, -math.inf, 0.0), (-math.inf, -3.0, -0.0),
        (-math.inf, 3.0, -math.inf), (-math.inf, 0.5, math.inf), (-math.inf, 2.0, math.inf),
        (-2.0, 3.0, -8.0), (math.inf, -1.0, 0.0), (math.nan, 1.0, math.nan),
    ]  # fmt: skip
    for dtype in FLOATS:
        x, y, want = (np.array(v).astype(dtype) for v in zip(*cases, strict=True))
        same(kernel("pow", dtype)(x, y), want)


EXACT_UNARY = "neg abs sign sqrt floor ceil trunc round isnan isinf isfinite signbit".split()
EXACT_BINARY = (
    "add sub mul div copysign nextafter floordiv rem fmod eq ne lt le gt ge maximum minimum".split()
)


def numpy_like(op, dtype, *args):
    """NumPy's result, the halves computed in float32 except where they are only moved."""
    f = getattr(np, NUMPY.get(op, op))
    if dtype.itemsize > 2 or op == "nextafter":
        return f(*args)
    r = f(*(a.astype(np.float32) for a in args))
    return r if r.dtype == BOOL else r.astype(dtype)


@pytest.mark.parametrize("op", EXACT_UNARY)
@by_dtype(FLOATS)
def test_unary_arithmetic_is_numpys(op, dtype):
    x = floats(dtype)
    same(kernel(op, dtype)(x), numpy_like(op, dtype, x))


@pytest.mark.parametrize("op", EXACT_BINARY)
@by_dtype(FLOATS)
def test_binary_arithmetic_is_numpys(op, dtype):
    x, y = pairs(dtype)
    got, want = kernel(op, dtype)(x, y), numpy_like(op, dtype, x, y)
    if op in ("maximum", "minimum"):
        # NumPy leaves open which of -0 and +0 is larger; here +0 is.
        zeros = (x == 0) & (y == 0)
        negative = np.signbit(x) & np.signbit(y) if op == "maximum" else np.signbit(x) | np.signbit(y)
        want = np.where(zeros, np.where(negative, -0.0, 0.0).astype(dtype), want)
    same(got, want)


@by_dtype([F16, BFLOAT16])
def test_halves_are_float32_rounded_once(dtype):
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    for op in UNARY_ULP:
        wide = kernel(op, F32)(x.astype(np.float32))
        same(kernel(op, dtype)(x), wide.astype(dtype), op)


@by_dtype([BOOL, *INTS, *FLOATS])
def test_select(dtype):
    a = np.arange(50).astype(dtype)
    b, c = a[::-1].copy(), np.arange(50) % 3 == 0
    np.testing.assert_array_equal(kernel("select", dtype)(c, a, b), np.where(c, a, b))


# Integers


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


def wrapped(value: int, dtype: np.dtype) -> int:
    bits = 8 * dtype.itemsize
    value &= 2**bits - 1
    return value - 2**bits if dtype.kind == "i" and value >> (bits - 1) else value


def integer_power(x: int, y: int, dtype: np.dtype) -> int:
    if y < 0:
        return x ** (y & 1) if x in (1, -1) else 0
    return pow(x, y, 2 ** (8 * dtype.itemsize))


INTEGER = {
    "add": lambda x, y, d: x + y,
    "sub": lambda x, y, d: x - y,
    "mul": lambda x, y, d: x * y,
    "floordiv": lambda x, y, d: x // y if y else 0,
    "rem": lambda x, y, d: x % y if y else 0,
    "fmod": lambda x, y, d: int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0,
    "pow": integer_power,
    "maximum": lambda x, y, d: max(x, y),
    "minimum": lambda x, y, d: min(x, y),
    "and": lambda x, y, d: x & y,
    "or": lambda x, y, d: x | y,
    "xor": lambda x, y, d: x ^ y,
    "shl": lambda x, y, d: x << y if 0 <= y < 8 * d.itemsize else 0,
    "shr": lambda x, y, d: x >> (y if 0 <= y < 8 * d.itemsize else 99),
    "eq": lambda x, y, d: x == y,
    "ne": lambda x, y, d: x != y,
    "lt": lambda x, y, d: x < y,
    "le": lambda x, y, d: x <= y,
    "gt": lambda x, y, d: x > y,
    "ge": lambda x, y, d: x >= y,
    "neg": lambda x, d: -x,
    "abs": lambda x, d: abs(x),
    "sign": lambda x, d: (x > 0) - (x < 0),
    "not": lambda x, d: ~x,
    "popcount": lambda x, d: (x & (2 ** (8 * d.itemsize) - 1)).bit_count(),
}


@pytest.mark.parametrize("op", INTEGER)
@by_dtype(INTS)
def test_integers_wrap_and_never_trap(op, dtype):
    arrays = integers(dtype)[: 2 if op in BINARY else 1]
    if dtype.itemsize == 1 and op in BINARY:
        arrays = tuple(a[::7] for a in arrays) if op not in ("floordiv", "rem") else arrays
    got = kernel(op, dtype)(*arrays)
    exact = (INTEGER[op](*values, dtype) for values in zip(*(a.tolist() for a in arrays), strict=True))
    want = list(exact) if op in PREDICATES else [wrapped(v, dtype) for v in exact]
    np.testing.assert_array_equal(got, np.array(want, got.dtype))


def test_bools():
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    like = {"add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}
    for op, kinds in elementwise.OPS.items():
        if "b" in kinds and op not in ("select", "not"):
            f = getattr(np, like.get(op, NUMPY.get(op, op)))
            np.testing.assert_array_equal(kernel(op, BOOL)(x, y), f(x, y), err_msg=op)
    np.testing.assert_array_equal(kernel("not", BOOL)(x), ~x)


# Casts


def rounded(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """float64 to a narrower float with one rounding, by the size of its last place."""
    digits, least, top = {F32: (24, -149, 128), F16: (11, -24, 16), BFLOAT16: (8, -133, 128)}[target]
    _, exponent = np.frexp(x)
    place = np.maximum(exponent - digits, least)
    r = np.ldexp(np.rint(np.ldexp(x, -place)), place)
    r = np.where(np.abs(r) >= 2.0**top, np.copysign(np.inf, x), r)
    return np.where(np.isfinite(x), r, x).astype(target)


def exactly(v: int) -> float:
    """An integer as a double, rounded to odd where it does not fit, so that it can be rounded again."""
    excess = max(abs(v).bit_length() - 53, 0)
    high = abs(v) >> excess
    sticky = (high << excess) != abs(v)
    return math.copysign(float((high | sticky) << excess), v)


def cast_like(x: np.ndarray, target: np.dtype) -> np.ndarray:
    source = x.dtype
    if target == BOOL:
        return x.astype(np.float64) != 0
    if source == BOOL:
        return x.astype(np.float64).astype(target)
    if source.kind in "iu" and target.kind in "iu":
        return x.astype(target)
    if source.kind in "iu":
        if target == F64:
            return x.astype(target)
        return rounded(np.array([exactly(v) for v in x.tolist()]), target)
    if target.kind in "iu":
        info = np.iinfo(target)
        whole = [0 if math.isnan(v) else v for v in x.astype(np.float64).tolist()]
        clipped = [max(min(v, info.max), info.min) for v in whole]
        return np.array([int(v) for v in clipped], target)
    return x.astype(F64) if target == F64 else rounded(x.astype(F64), target)


@pytest.mark.parametrize("source", [BOOL, *INTS, *FLOATS], ids=str)
def test_casts_round_once_and_saturate(source):
    if source == BOOL:
        x = np.arange(40) % 3 == 0
    elif source in INTS:
        x = np.concatenate([*integers(source), ties(source)])[::3]
    elif source.itemsize == 2:
        x = np.arange(2**16, dtype=np.uint16).view(source)
    else:
        x = np.concatenate([floats(source, 6000), ties(source)])
    for target in [BOOL, *INTS, *FLOATS]:
        if target != source:
            same(caster(source, target)(x), cast_like(x, target), str(target))


def ties(source: np.dtype) -> np.ndarray:
    """Values at, just below and just above the middle between two neighbours of a narrower float."""
    middles = [s * (1 + (2 * k + 1) * 2.0**-d) for d in (8, 11, 24) for k in range(5) for s in (1, 6e-8)]
    middles += [65504.0, 65519.99, 65520.0, 2.0**31, 2.0**63, 3.3895313892515355e38]
    x = np.array(middles)
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, math.inf), x * 2.0**-14])
    if source.kind not in "iu":
        return np.concatenate([x, -x]).astype(source)
    ints = [int(m * 2**s) + d for m in middles[:15:2] for s in range(5, 62, 7) for d in (-1, 0, 1)]
    info = np.iinfo(source)
    return np.array([v for v in ints if v <= info.max], source)


def test_half_conversions_without_instructions_give_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    x = np.arange(2**16, dtype=np.uint16).view(F16)
    y = np.concatenate([rng.integers(0, 2**32, 50_000, dtype=np.uint32).view(F32), ties(F32)])
    y = np.concatenate([y, np.exp2(rng.uniform(-26, 17, 50_000)).astype(F32), x.astype(F32)])
    native = caster(F16, F32)(x), caster(F32, F16)(y)
    monkeypatch.setattr(casts, "native_half", lambda: False)
    widen = runner(text_of(lambda b, v: [elementwise.cast(v, F16, F32, b, LANES)], [F16], [F32]), [F32])
    narrow = runner(text_of(lambda b, v: [elementwise.cast(v, F32, F16, b, LANES)], [F32], [F16]), [F16])
    np.testing.assert_array_equal(widen(x).view(np.uint32), native[0].view(np.uint32))
    np.testing.assert_array_equal(narrow(y).view(np.uint16), native[1].view(np.uint16))


# Random bits


PHILOX = [  # Random123's known answers: counter, key, words
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


def test_philox_gives_the_known_answers():
    u32 = np.dtype("u4")

    def write(body, *x):
        return philox.philox_4x32_10(x[:2], x[2:], body, LANES)

    run = runner(text_of(write, [u32] * 6, [u32] * 4), [u32] * 4)
    words = [np.array(v, np.uint32) for v in zip(*((*k, *c) for c, k, _ in PHILOX), strict=True)]
    np.testing.assert_array_equal(np.stack(run(*words), axis=1), [want for _, _, want in PHILOX])


def test_random_bits_place_their_words():
    u64, i64 = np.dtype("u8"), np.dtype("i8")

    def write(body, *x):
        return [elementwise.lower("random_bits", x, i64, body, LANES)]

    run = runner(text_of(write, [u64, u64, i64], [u64]), [u64])
    counter, key, want = PHILOX[2]
    seed, step, index = (
        np.array([low | high << 32]) for low, high in (key, counter[2:], counter[:2])
    )
    got = run(seed.astype(u64), step.astype(u64), index.astype(np.uint64).view(i64))
    assert got[0] == want[0] | want[1] << 32


# The table


def test_hosts_agree_bit_for_bit():
    """A processor without fma, f16c or AVX gives the same bits, by calls of the C library's fma."""
    if not llvm.get_process_triple().startswith("x86_64"):
        pytest.skip("needs another x86 target to compare with")
    for op in ("exp", "log", "sin", "tanh", "erf", "pow", "rem", "round"):
        for dtype in (F32, F64):
            args = pairs(dtype, 300)[: 2 if op in BINARY else 1]
            old, new = kernel(op, dtype, "x86-64")(*args), kernel(op, dtype)(*args)
            same(old, new, f"{op} {dtype}")
    x = floats(F64, 1000)
    for target in (F32, BFLOAT16, *INTS):
        same(caster(F64, target, "x86-64")(x), caster(F64, target)(x), str(target))


def test_helpers_can_live_in_a_library():
    loaded = {}

    def library(symbol, text):
        if symbol not in loaded:
            loaded[symbol] = text
            renamed = text.replace(f"@{symbol}(", "@kernel(")
            llvm.add_symbol(symbol, compiled(renamed))

    def write(body, x):
        return [elementwise.lower("sin", [x], F32, body, LANES)]

    text = text_of(write, [F32], [F32], Module(library))
    assert "define internal" not in text
    assert list(loaded) == ["lazyt.payne_hanek.v16"]
    x = floats(F32, 1000)
    same(runner(text, [F32])(x), kernel("sin", F32)(x))


def test_missing_rules_are_internal_errors():
    with pytest.raises(LazytInternalError, match="no rule for div on int32"):
        elementwise.lower("div", ["%x", "%y"], np.dtype("i4"), Body(), LANES)


def test_every_op_is_tested_on_all_its_dtypes():
    covered = {op: "f" for op in (*UNARY_ULP, *BINARY_ULP, *EXACT_UNARY, *EXACT_BINARY)}
    for op in INTEGER:
        covered[op] = "iu" + covered.get(op, "")
    for op, kinds in elementwise.OPS.items():
        if op not in ("select", "random_bits"):
            assert set(kinds) - {"b"} == set(covered[op]), op


# All of float32


@pytest.mark.slow
@pytest.mark.parametrize("op", UNARY_ULP)
def test_every_float32(op, asked_for):
    if op in ("erf", "erfc"):
        exact_of = getattr(pytest.importorskip("scipy.special"), op)
    else:
        exact_of = reference(op, np.float64)
    run, chunk = kernel(op, F32), 2**22
    worst = 0.0
    for start in range(0, 2**32, chunk):
        x = np.arange(start, start + chunk, dtype=np.uint64).astype(np.uint32).view(F32)
        got, exact = run(x), exact_of(x.astype(np.float64))
        nearest = exact.astype(F32)
        # Most are the nearest float32 outright; the rest are measured.
        off = (got.view(np.uint32) != nearest.view(np.uint32)) & ~(np.isnan(got) & np.isnan(nearest))
        if off.any():
            error = ulp_error(got[off], exact[off])
            worst = max(worst, error.max())
            within(got[off], exact[off], UNARY_ULP[op][0], x[off])
    print(f"{op}: {worst:.4f} ULP")
