"""Functions of OpenCL C that every program has in front, as far as it needs them: one text for an element type."""

from __future__ import annotations

from functools import cache

HEAD = """#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
"""
_UNSIGNED = {"i1": "bool", "i8": "uchar", "i16": "ushort", "i32": "uint", "i64": "ulong"}
_RANGES = {
    "i8": ("-128", "127", "255"),
    "i16": ("-32768", "32767", "65535"),
    "i32": ("-2147483647 - 1", "2147483647", "4294967295u"),
    "i64": ("-9223372036854775807l - 1l", "9223372036854775807l", "18446744073709551615ul"),
}

Needs = tuple[tuple[str, str], ...]


@cache
def helper(name: str, element: str) -> tuple[str, str, Needs]:
    """The symbol of a function for an element type, its text, and the functions that it calls."""
    # NOTE: `lt_` begins the names of rules, some of which are called alike.
    symbol = f"c_{name}_{element}" if element else f"c_{name}"
    if name.startswith("saturate"):
        return symbol, _saturate(symbol, name, element), ()
    text, below = _BY_NAME[name](symbol, element)
    return symbol, text + "\n", tuple((n, element) for n in below)


def _saturate(symbol: str, name: str, element: str) -> str:
    """Float to integer: truncated, at the ends of the range where it is outside, 0 for NaN."""
    _, source, sign = name.split("_")
    low, high, top = _RANGES[element]
    to, through = _UNSIGNED[element], _UNSIGNED[element]
    if sign == "s":
        through = through[1:]
    else:
        low, high = "0", top
    return (
        f"{to} {symbol}({source} x) {{\n"
        f"    if (x != x) return 0;\n"
        # The highest one may round up to the first float that is too large: >= catches it either way.
        f"    if (x >= ({source})({high})) return ({to})({through})({high});\n"
        f"    return x <= ({source})({low}) ? ({to})({through})({low}) : ({to})({through})x;\n}}\n"
    )


def _shift(symbol: str, element: str, op: str) -> tuple[str, tuple[str, ...]]:
    """Shifts by the width or more are defined: everything is shifted out."""
    t, bits = _UNSIGNED[element], int(element[1:])
    wide = "ulong" if bits == 64 else "uint"
    return f"{t} {symbol}({t} x, {t} n) {{ return n < {bits} ? ({t})(({wide})x {op} n) : ({t})0; }}", ()


def _ashr(symbol: str, element: str) -> tuple[str, tuple[str, ...]]:
    t, last = _UNSIGNED[element], int(element[1:]) - 1
    return f"{t} {symbol}({t} x, {t} n) {{ return ({t})(({t[1:]})x >> (n < {last} ? n : ({t}){last})); }}", ()


def _extreme(symbol: str, element: str, sign: str) -> tuple[str, tuple[str, ...]]:
    """NaN if either is; -0 lies below +0."""
    t, word = element, "int" if element == "float" else "long"
    nan = "as_float(0x7fc00000u)" if element == "float" else "as_double(0x7ff8000000000000ul)"
    a, b = ("y", "x") if sign == ">" else ("x", "y")
    return (
        f"{t} {symbol}({t} x, {t} y) {{\n"
        f"    if (x != x || y != y) return {nan};\n"
        f"    return x == y ? (as_{word}(x) < 0 ? {a} : {b}) : x {sign} y ? x : y;\n}}"
    ), ()


def _key(symbol: str, element: str) -> tuple[str, tuple[str, ...]]:
    """An integer in a float's order, NaN above all or, where `highest` is false, below all."""
    t, word = element, "int" if element == "float" else "long"
    nan, most, zero = (
        ("0x7fc00000", "0x7fffffff", "0.0f")
        if element == "float"
        else ("0x7ff8000000000000l", "0x7fffffffffffffffl", "0.0")
    )
    return (
        f"{word} {symbol}({t} x, bool highest) {{\n"
        f"    const {word} bits = as_{word}(x + {zero});\n"
        f"    if (x != x) return highest ? {nan} : ~{nan};\n"
        f"    return bits < 0 ? bits ^ {most} : bits;\n}}"
    ), ()


def _divide(symbol: str, element: str) -> tuple[str, tuple[str, ...]]:
    """A quotient rounded once. Of float32 the driver's is, or one of float64 that is rounded again, harmlessly."""
    if element == "double":
        return f"double {symbol}(double x, double y) {{ return x / y; }}", ()
    return (
        "#ifdef LT_ROUNDED\n"
        f"float {symbol}(float x, float y) {{ return x / y; }}\n#else\n"
        f"float {symbol}(float x, float y) {{ return (float)((double)x / (double)y); }}\n#endif"
    ), ()


def _sqrt(symbol: str, element: str) -> tuple[str, tuple[str, ...]]:
    if element == "double":
        return f"double {symbol}(double x) {{ return sqrt(x); }}", ()
    return (
        "#ifdef LT_ROUNDED\n"
        f"float {symbol}(float x) {{ return sqrt(x); }}\n#else\n"
        f"float {symbol}(float x) {{ return (float)sqrt((double)x); }}\n#endif"
    ), ()


def _check(symbol: str, _: str) -> tuple[str, tuple[str, ...]]:
    """The index clamped into [0, bound); the first work-item to meet one outside writes the status."""
    return (
        f"ulong {symbol}(ulong index, ulong bound, long code, volatile __global long *status, bool active) {{\n"
        "    if (active && index >= bound && atomic_cmpxchg((volatile __global int *)status, 0, (int)code) == 0)\n"
        "        status[1] = (long)index;\n"
        "    const long top = (long)bound - 1, low = (long)index < top ? (long)index : top;\n"
        "    return (ulong)(low > 0 ? low : 0);\n}"
    ), ()


def _fshl(symbol: str, _: str) -> tuple[str, tuple[str, ...]]:
    return (
        f"ulong {symbol}(ulong high, ulong low, ulong n) {{\n"
        "    n &= 63;\n    return n ? high << n | low >> (64 - n) : high;\n}"
    ), ()


def _tree(j: int, half: int, op: str) -> str:
    return f"s[{j}]" if half > 8 else f"({_tree(j, 2 * half, op)} {op} {_tree(j + half, 2 * half, op)})"


def _of_lanes(symbol: str, op: str) -> tuple[str, tuple[str, ...]]:
    """What 16 work-items hold, by halves: lane j with lane j + 8, and so on; in each of them."""
    return (
        f"double {symbol}(__local double *s, int lane, double x) {{\n"
        "    s[lane] = x;\n    barrier(CLK_LOCAL_MEM_FENCE);\n"
        f"    const double r = {_tree(0, 1, op)};\n"
        "    barrier(CLK_LOCAL_MEM_FENCE);\n    return r;\n}"
    ), ()


_BY_NAME = {
    "sum_of_lanes": lambda s, _: _of_lanes(s, "+"), "prod_of_lanes": lambda s, _: _of_lanes(s, "*"),
    "shl": lambda s, e: _shift(s, e, "<<"), "lshr": lambda s, e: _shift(s, e, ">>"), "ashr": _ashr,
    "maximum": lambda s, e: _extreme(s, e, ">"), "minimum": lambda s, e: _extreme(s, e, "<"),
    "fdiv": _divide, "sqrt": _sqrt, "key": _key, "check": _check, "fshl": _fshl,
}  # fmt: skip
