"""What a kernel cannot do is refused, with the line and the place of the construct."""

from __future__ import annotations

import linecache
import math
import re
from typing import Any

import numpy as np
import pytest

import lazyt as lt

_count = iter(range(1000))
TENSOR = lt.ones(3)


def made(text: str, **options: Any) -> Any:
    """The kernel of a text, which is a file of its own."""
    name = f"/kernels/k{next(_count)}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"np": np, "lt": lt, "math": math, "TENSOR": TENSOR, "__name__": "kernels"}
    exec(compile(text, name, "exec"), space)
    return lt.kernel(**options)(space["f"])


# The body of `f(i, /, x)`, the construct that the caret is under, and the message.
REFUSED = [
    ("while x[i] > 0: pass\nreturn 1", "while", "`while`, because how often it runs would depend on data"),
    ("for k in range(3):\n    break\nreturn 1", "break", "`break`, because every index"),
    ("try:\n    y = 1\nfinally: pass\nreturn y", "try", "`try`"),
    ("x[i] = 2\nreturn x[i]", "x[i] = 2", "an assignment to an element, because arguments are read only"),
    ("y = [1, 2]\nreturn y", "[1, 2]", "a list"),
    ("return open(x[i])", "open(", "the function 'open', because a kernel calls elementwise functions"),
    ("return np.sort(x[i])", "np.sort", "the function 'np.sort'"),
    ("return math.gcd(i, 2)", "math.gcd", "the function 'math.gcd'"),
    ("return nothing(x[i])", "nothing", "'nothing', because nothing has that name"),
    ("return lt.nothing(x[i])", "lt.nothing", "'nothing', because lazyt has no such name"),
    ("return TENSOR[i]", "TENSOR", "'TENSOR', a Tensor, because values from outside are numbers"),
    ("return x[i] @ x[i]", "x[i] @", "`@`"),
    ("return x[i] if x else 0", None, "a condition of several truths"),
    ("for k in range(x.shape[0]):\n    return 1\nreturn 2", "return 1", "`return` in a loop"),
    ("if x[i] > 0:\n    y = 1\nreturn y", "y", "'y' here, because it is set under a condition only"),
    ("return y\ny = 1", "y", "'y' here, because it is set later"),
    ("if x[i] > 0:\n    return 1", "if", "a way without `return`"),
    ("s = 0.0\nfor k in range(x.shape[0]):\n    s = s * 0.5 + x[k]\nreturn s", "s * 0.5", "depends on the round bef"),
    ("s = 0.0\nfor k in range(i):\n    s += 1\nreturn s", "i):", "a range to `i`"),
    ("for k in x:\n    pass\nreturn 1", "x:", "a loop over `x`"),
    ("return sum([x[k] for k in range(3)])", "[x[k]", "leave the brackets out"),
    ("return sum(x[i])", "sum(", "sum of a number"),
    ("return x[i].cumsum()", "x[i].cumsum", "the method 'cumsum', because arrays have sum"),
    ("return x[0:2]", "0:2", "a part of an axis"),
    ("return x[i] and x[i]", "x[i] and", "`and` of numbers"),
    ("return x[i].T", "x[i].T", "the attribute 'T'"),
    ("print(x[i])\nreturn 1", "print", "a kernel only computes what it returns"),
    ("return 'a'", "'a'", "the constant 'a'"),
    ("return lambda: 1", "lambda", "`lambda`"),
    ("return max(x[i], key=abs)", "key", "an argument by keyword"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "at", "why"), REFUSED, ids=[body.replace("\n", "; ") for body, _, _ in REFUSED])
def test_constructs_that_are_refused(body, at, why):
    text = "def f(i, /, x):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    with pytest.raises(lt.NotSupportedError, match=re.escape(why)) as e:
        made(text)(np.ones(3), shape=3)
    message = str(e.value)
    found = re.search(r"File '(/kernels/k\d+\.py)', line (\d+)\n    (.*)\n( *)\^", message)
    assert found is not None, message
    line = text.split("\n")[int(found[2]) - 1]
    assert line.strip() == found[3]
    if at is not None:
        assert found[3][len(found[4]) - 4 :].startswith(at), message


@pytest.mark.parametrize(
    ("body", "error", "why"),
    [
        ("return x[i - 1]", lt.IndexOutOfRange, r"x\[i - 1\]: index -1 is out .* axis 0 with size 3, where i = 0"),
        ("return x[2 * i] + x[i]", lt.IndexOutOfRange, r"index 4 is out of bounds for axis 0 with size 3, where i = 2"),
        ("return x[-1] + x[i]", lt.IndexOutOfRange, r"x\[-1\]: index -1 is out of bounds"),
        ("return sum(x[k + i] for k in range(1, 70)) + x[i]", lt.IndexOutOfRange, "index 71 is out of bounds"),
        ("return x[i, i]", lt.ShapeError, r"x\[i, i\]: 2 indices for an array of 1 dimensions"),
        ("return x[1.5] + x[i]", lt.DTypeError, "an index is a whole number, got 1.5"),
        ("return x[x[i]]", lt.DTypeError, "an index is a whole number, got float64"),
        ("return x[i] & 1", lt.DTypeError, "bitwise_and"),
    ],
)  # fmt: skip
def test_errors_of_a_call_name_the_line(body, error, why):
    f = made(f"def f(i, /, x):\n    {body}\n")
    with pytest.raises(error, match=why) as e:
        f(np.ones(3))
    assert "line 2" in str(e.value)
    assert "^" in str(e.value)


def test_indices_from_data_are_checked_at_the_sync():
    f = made("def f(i, /, x, at):\n    return x[at[i]] if at[i] < 9 else 0.0\n")
    x = lt.arange(3.0)
    assert f(x, np.array([2, 9, 0])).tolist() == [2.0, 0.0, 0.0]
    with pytest.raises(
        lt.IndexOutOfRange, match=r"index 5 is .* axis of size 3 .*, by x\[at\[i\]\] at /kernels/k\d+.py:2"
    ):
        f(x, np.array([2, 5, 0])).tolist()
    with pytest.raises(lt.IndexOutOfRange, match=r"axis of size 3"):
        f(x, np.array([2, -1, 0])).tolist()


def test_calls_that_do_not_fit():
    f = made("def f(i, /, x, y, c=1.0):\n    return x[i] * y[i] * c\n")
    with pytest.raises(
        lt.ShapeError, match=r"index 'i' runs over axis 0 of x with 3 and axis 0 of y with 4; give shape="
    ):
        f(np.ones(3), np.ones(4))
    assert f(np.ones(3), np.ones(4), shape=2).shape == (2,)
    with pytest.raises(lt.IndexOutOfRange, match="index 3 is out of bounds"):
        f(np.ones(3), np.ones(4), shape=(4,))
    with pytest.raises(lt.ShapeError, match=r"shape=\(2, 2\) has 2 extents, and the indices are i"):
        f(np.ones(3), np.ones(4), shape=(2, 2))
    with pytest.raises(TypeError, match=r"kernel f\(x, y, c=1.0\): missing a required argument: 'y'"):
        f(np.ones(3))
    with pytest.raises(lt.DTypeError, match="argument 'y' is an array or a number, got None"):
        f(np.ones(3), None)
    with pytest.raises(lt.DTypeError, match=r"kernel f: argument 'x': asarray: .*dtype <U1"):
        f(np.array(["a"]), np.ones(1))
    with pytest.raises(lt.ShapeError, match="no argument is an array"):
        f(1.0, 2.0)


def test_what_is_no_kernel():
    with pytest.raises(
        lt.NotSupportedError, match=r"a kernel without indices, because its first parameters, up to `/`"
    ):
        made("def f(x):\n    return x\n")
    with pytest.raises(lt.NotSupportedError, match="indices of a kernel over rows"):
        made("def f(i, /, x):\n    return x\n", axis=0)
    with pytest.raises(lt.NotSupportedError, match="an argument `shape`"):
        made("def f(i, /, shape):\n    return 1\n")
    with pytest.raises(lt.NotSupportedError, match=re.escape("`*xs`")):
        made("def f(i, /, *xs):\n    return 1\n")
    with pytest.raises(lt.ShapeError, match="bounds='mirror' is not one of error, zero, clamp, wrap"):
        lt.kernel(bounds="mirror")
    with pytest.raises(lt.DTypeError, match=r"axis is an integer, got 1\.5"):
        lt.kernel(axis=1.5)  # type: ignore[arg-type]
    with pytest.raises(lt.NotSupportedError, match="a `def` is required"):
        lt.kernel(lambda i, /, x: x[i])
    space: dict[str, Any] = {}
    exec("def f(i, /, x):\n    return x[i]\n", space)
    with pytest.raises(lt.NotSupportedError, match="a function without source, because a kernel is read as text"):
        lt.kernel(space["f"])
    rows = made("def f(x):\n    return x[0]\n", axis=-1)
    with pytest.raises(lt.ShapeError, match="no argument has an axis -1"):
        rows(lt.asarray(1.0))
    with pytest.raises(lt.ShapeError, match="of a kernel over rows"):
        rows(np.ones(3), shape=(3,))


def test_the_extent_of_an_index_must_be_known():
    f = made("def f(i, /, x):\n    return x[i // 2]\n")
    with pytest.raises(lt.NotSupportedError, match="the extent of index 'i' is not known"):
        f(np.ones(3))
    assert f(np.ones(3), shape=(6,)).shape == (6,)


LARGE = [
    "i + 9223372036854775808", "i - 9223372036854775808 - 10", "i * 9223372036854775807", "i % 9223372036854775808",
    "i * 4611686018427387904 // 4611686018427387904", "i // 2 * 2**62 * 4", "(i << 62) >> 62", "i**64", "i * i * 2**62",
    "9223372036854775808", "-(i - 9223372036854775808)", "min(i, 9223372036854775808)", "~i * 2**62",
    "sum(j * 2**61 for j in range(100)) + i", "i if i < 3 else i * 2**62", "(i | 2**63) - 2**63",
    "sum(j for j in range(2**63)) + i",
]  # fmt: skip


@pytest.mark.parametrize("bounds", ["error", "zero", "clamp", "wrap"])
@pytest.mark.parametrize("index", LARGE)
def test_an_index_that_may_leave_64_bits_is_refused(index: str, bounds: str) -> None:
    bodies = [f"return x[{index}]", f"return x[i] + ({index})"]
    for body in bodies[: 1 if index.isdigit() else 2]:  # a number alone is one of floats beside x[i]
        f = made(f"def f(i, /, x):\n    {body}", bounds=bounds)
        with pytest.raises(lt.LazytError, match=r"64 bits|out of bounds") as found:
            f(lt.arange(5.0), shape=(5,)).numpy()
        assert "line 2" in str(found.value)


@pytest.mark.parametrize(
    "number", ["2**62 << 3", "abs(-(2**64))", "max(2**70, 3)", "(2**70 | 1) & 3", "~(2**70)", "2**70 >> 60"]
)
def test_integers_of_a_kernel_are_python_s(number: str) -> None:
    got = made(f"def f(i, /, x):\n    return x[i] + ({number}) // 2**60")(lt.zeros(2, dtype="f8"))
    assert got.tolist() == [eval(number) // 2**60] * 2


def test_large_indices_of_64_bits_are_right() -> None:
    for index in ("i * 2**40 // 2**40", "i**15 % 3", "(i + 2**62) % 3", "(i << 50) >> 50"):
        got = made(f"def f(i, /, x):\n    return x[{index}]", bounds="clamp")(lt.arange(9.0), shape=(9,))
        assert got.tolist() == [eval(index) for i in range(9)]
