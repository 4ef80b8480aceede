"""Messages say the name that the user wrote, and how lazyt spells what was written in PyTorch's or JAX's way."""

from __future__ import annotations

import re

import pytest

import lazyt as lt
from lazyt.tracing.name_hints import FUNCTIONS
from lazyt.tracing.public_names import ALIASES

X, Y, V, C = lt.ones((2, 3)), lt.ones((4, 5)), lt.ones(7), lt.ones((2, 3), dtype=lt.complex64)
I = lt.arange(3)  # noqa: E741 - of integers
F = lt.nn.functional

# A call of each alias that fails, by the namespace that it stands in.
FAILING = {
    "lt": {
        **dict.fromkeys(("amax", "amin", "average", "cumprod", "cumsum", "lexsort"), lambda f: f(X, axis=7)),
        **dict.fromkeys(
            ("allclose", "arctan2", "atan2", "bitwise_left_shift", "bitwise_right_shift", "divide", "divmod",
             "float_power", "left_shift", "mod", "pow", "power", "remainder", "right_shift", "true_divide"),
            lambda f: f(X, Y)),
        **dict.fromkeys(("block", "column_stack", "concatenate", "dstack", "hstack", "vstack"), lambda f: f([X, Y])),
        **dict.fromkeys(("hsplit", "vsplit"), lambda f: f(X, 9)),
        **dict.fromkeys(("fliplr", "flipud"), lambda f: f(lt.ones(()))),
        **dict.fromkeys(("bitwise_invert", "bitwise_not", "invert"), lambda f: f(X)),
        **dict.fromkeys(
            ("acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan",
             "atanh", "abs", "absolute", "conj", "conjugate"), lambda f: f(X, dtype="bool", casting="no")),
        **dict.fromkeys(("deg2rad", "fix", "isneginf", "isposinf", "rad2deg"), lambda f: f(C)),
        "append": lambda f: f(X, Y, axis=0),
        "around": lambda f: f(X, decimals=0, out=V),
        "broadcast_arrays": lambda f: f(X, Y),
        "diag": lambda f: f(lt.ones((2, 2, 2))),
        "dsplit": lambda f: f(lt.ones((2, 2, 2)), 3),
        "full_like": lambda f: f(X, Y),
        "identity": lambda f: f(-1),
        "matvec": lambda f: f(X, V),
        "transpose": lambda f: f(X, (0, 0)),
        "vdot": lambda f: f(X, Y),
        "vecmat": lambda f: f(V, X),
        "sort_complex": lambda f: f(lt.ones(())),
    },
    "x": {
        **dict.fromkeys(("amax", "amin", "cumprod", "cumsum"), lambda f: f(X, axis=7)),
        "clamp": lambda f: f(X, Y, Y),
        "pow": lambda f: f(X, Y),
        "expand": lambda f: f(X, 5, 7),
        "permute": lambda f: f(X, 0, 0),
        "transpose": lambda f: f(X, 1, 1),
        "unsqueeze": lambda f: f(X, 9),
        "view": lambda f: f(X, 9),
        "requires_grad_": lambda f: f(I),
        "tobytes": lambda f: f(lt.ones(2).requires_grad_()),
    },
    "linalg": {"norm": lambda f: f(X, axis=9), "multi_dot": lambda f: f([X, Y])},
    "fft": dict.fromkeys(("fft2", "ifft2", "rfft2", "irfft2"), lambda f: f(V)),
    "random": dict.fromkeys(("rand", "randn"), lambda f: f(-1)),
}  # fmt: skip
SPACES = {"lt": lt, "x": lt.Tensor, "linalg": lt.linalg, "fft": lt.fft, "random": lt.random}
CASES = [(space, name, call) for space, calls in FAILING.items() for name, call in calls.items()]


@pytest.mark.parametrize(("space", "name", "call"), CASES, ids=[f"{s}.{n}" for s, n, _ in CASES])
def test_an_error_says_the_name_that_was_written(space, name, call):
    f = getattr(SPACES[space], name)
    for _ in range(2):
        with pytest.raises(lt.LazytError) as e:
            call(f)
        first = str(e.value).partition(": ")[0].removeprefix("numpy.")
        assert first.rpartition(".")[2] == name, str(e.value)


def test_every_alias_is_public_and_its_names_are_of_operations():
    spaces = (lt, lt.Tensor, lt.linalg, lt.fft, lt.random)
    assert not [n for n in ALIASES if not any(hasattr(s, n) for s in spaces)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_name_of_another_library_is_hinted(name):
    with pytest.raises(AttributeError, match=re.escape(f"lazyt has no {name!r}: use {FUNCTIONS[name]}")):
        getattr(lt, name)
    assert not hasattr(lt, name) and name not in dir(lt)
    assert getattr(lt, name, 7) == 7
    for path in re.findall(r"\blt((?:\.\w+)+)", FUNCTIONS[name]):
        found = lt
        for part in path[1:].split("."):
            found = getattr(found, part)
    for attribute in re.findall(r"\bx\.(\w+)", FUNCTIONS[name]):
        assert hasattr(lt.Tensor, attribute)


def test_any_other_name_is_python_s_error():
    with pytest.raises(AttributeError, match=r"^module 'lazyt' has no attribute 'catt'$"):
        lt.catt  # noqa: B018 - the lookup is what is tested


@pytest.mark.parametrize(
    "call",
    [
        lambda: X.split(1, dim=0),
        lambda: lt.unstack(X, dim=0),
        lambda: X.unstack(dim=0),
        lambda: lt.linalg.cross(X, X, dim=1),
        lambda: lt.diff(X, dim=1),
        lambda: X.expand_dims(dim=0),
    ],
)
def test_a_keyword_is_hinted_in_functions_and_methods(call):
    with pytest.raises(TypeError, match=r"lazyt spells it axis= for dim="):
        call()


def test_a_keyword_of_several_axes_is_hinted_by_its_own_name():
    for call, here in (
        (lambda: lt.tensordot(X, X, dims=2), "axes= for dims="),
        (lambda: lt.fft.fftn(X, dim=(0,)), "axes= for dim="),
        (lambda: lt.diagonal(X, dim1=1, dim2=0), "axis1= for dim1=, axis2= for dim2="),
    ):
        with pytest.raises(TypeError, match=f"lazyt spells it {here}$"):
            call()


@pytest.mark.parametrize("name", ["empty", "ones", "zeros"])
def test_a_shape_is_one_argument(name):
    f = getattr(lt, name)
    with pytest.raises(lt.DTypeError, match=rf"^{name}: not a dtype: 3; the shape is one argument, as in {name}\("):
        f(2, 3)
    with pytest.raises(TypeError, match=rf"the shape is one argument, as in {name}\(\(2, 3\)\)$"):
        f(2, 3, 4, 5, 6)
