"""The generated page of every public function, and the comparison of its list with NumPy's.

`python -m tests.docs.test_reference` writes the page anew.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import overrides

import lazyt as lt
from lazyt.functions.protocols.functions import NATIVE
from lazyt.functions.protocols.special_cases import REFUSED, SPECIAL
from lazyt.functions.protocols.through import name_of
from lazyt.functions.protocols.ufuncs import UFUNCS

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
SPACES = ("lazyt", "lazyt.linalg", "lazyt.fft", "lazyt.random", "lazyt.nn.functional", "lazyt.debug")
# Every public module, in the order of the page.
MODULES = (
    *SPACES, "lazyt.nn", "lazyt.nn.init", "lazyt.nn.utils", "lazyt.nn.utils.rnn", "lazyt.optim",
    "lazyt.optim.lr_scheduler", "lazyt.optim.swa_utils", "lazyt.amp", "lazyt.data", "lazyt.distributions",
    "lazyt.func", "lazyt.memory", "lazyt.debug", "lazyt.autograd", "lazyt.utils.checkpoint", "lazyt.testing",
    "lazyt.backends", "lazyt.library",
)  # fmt: skip
NAMED = re.compile(r"`((?:numpy|scipy|torch|jax)(?:\.\w+)+)`")

NUMPY = "## The functions of NumPy"
VERSION = ".".join(np.__version__.split(".")[:2])

# Equivalents that a docstring does not name.
ALIKE = {
    "asarray": "numpy.asarray",
    "can_cast": "numpy.can_cast",
    "concatenate": "numpy.concatenate",
    "from_dlpack": "numpy.from_dlpack",
    "from_numpy": "torch.from_numpy",
    "grad": "jax.grad",
    "is_grad_enabled": "torch.is_grad_enabled",
    "isdtype": "numpy.isdtype",
    "load": "numpy.load",
    "one_hot": "torch.nn.functional.one_hot",
    "relu": "torch.relu",
    "rsqrt": "torch.rsqrt",
    "save": "numpy.savez",
    "get_num_threads": "torch.get_num_threads",
    "set_flush_denormal": "torch.set_flush_denormal",
    "set_num_threads": "torch.set_num_threads",
    "tensor": "torch.tensor",
    "value_and_grad": "jax.value_and_grad",
    "vjp": "jax.vjp",
    "bernoulli": "torch.bernoulli",
    "default_generator": "torch.default_generator",
    "get_state": "torch.get_rng_state",
    "set_state": "torch.set_rng_state",
    "seed": "torch.manual_seed",
}
# lazyt's own: what only a library that defers has a use for.
OWN = {
    "explain", "get_float32_convolution_precision", "kernel", "last_sync", "pending",
    "set_float32_convolution_precision", "spelling", "sync",
}  # fmt: skip

_FILES = "it reads or writes a file: `lazyt.save`, `lazyt.load`, or NumPy's on an array"
_TEXT = "it is about text: NumPy's takes a tensor, which computes it"
_SETTINGS = "NumPy's own settings and information"
_DATES = "lazyt has no dtype for dates"
_MEMORY = "a tensor is C-contiguous memory of lazyt's: `asarray`"
_ROOTS = "NumPy computes it on values, a sync: eigenvalues or a division of data-dependent length"
# NumPy's public functions that lazyt has not under their name, and why.
ABSENT = {
    **dict.fromkeys(
        ("fromfile", "fromregex", "genfromtxt", "loadtxt", "savetxt", "savez", "savez_compressed"), _FILES
    ),
    **dict.fromkeys(
        ("array2string", "array_repr", "array_str", "base_repr", "binary_repr", "format_float_positional",
         "format_float_scientific", "fromstring", "typename"), _TEXT),
    **dict.fromkeys(
        ("get_include", "get_printoptions", "getbufsize", "geterr", "geterrcall", "info", "printoptions",
         "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime", "test"), _SETTINGS),
    **dict.fromkeys(
        ("busday_count", "busday_offset", "datetime_as_string", "datetime_data", "is_busday", "isnat"), _DATES),
    **dict.fromkeys(
        ("asanyarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "isfortran", "may_share_memory",
         "require", "shares_memory"), _MEMORY),
    **dict.fromkeys(("poly", "polydiv", "polyfit", "roots"), _ROOTS),
    **dict.fromkeys(("asmatrix", "bmat"), "matrices are tensors of two dimensions"),
    **dict.fromkeys(("frombuffer", "fromiter"), "NumPy's, then `asarray`"),
    **dict.fromkeys(("copyto", "fill_diagonal", "place", "put", "putmask"),
                    "NumPy's function on a tensor is a deferred write; so is `x[key] = value`"),
    **dict.fromkeys(("common_type", "min_scalar_type", "mintypecode"), "`result_type` says what promotes to what"),
    **dict.fromkeys(("frompyfunc", "iterable", "nested_iters"), "it is about Python objects"),
    "einsum_path": "NumPy's takes tensors; `einsum(..., optimize=)` finds or follows a path",
    "fromfunction": "`function(*indices(shape))`",
    "mask_indices": "its length is data: `nonzero(mask)`",
    "real_if_close": "its dtype is data",
    "row_stack": "an old name of `vstack`, which NumPy drops",
    "linalg.tensorinv": "NumPy computes it on values, a sync",
    "linalg.tensorsolve": "NumPy computes it on values, a sync",
}  # fmt: skip


def functions(space: str) -> dict[str, types.FunctionType]:
    """The public functions of a namespace."""
    module = importlib.import_module(space)
    # NOTE: what is loaded on demand is not in `__all__`, and shown.
    names = dir(module) if space == "lazyt" else getattr(module, "__all__", None) or dir(module)
    return {
        n: f for n in sorted(names) if not n.startswith("_") and isinstance(f := getattr(module, n), types.FunctionType)
    }


def equivalent(name: str, f: types.FunctionType) -> str:
    """The function of NumPy's (or another library's) that a function is as; '' for lazyt's own."""
    found = [] if name in ALIKE else NAMED.findall(f.__doc__ or "")
    if name != f.__name__ and f"numpy.{f.__name__}" in found and hasattr(np, name):
        return f"numpy.{name}"  # another name of the function
    if found:
        return found[-1] if len(found) == 1 else next((n for n in found if n.rpartition(".")[2] == name), found[-1])
    return (
        ""
        if name in OWN
        else ALIKE.get(name, ALIKE.get(f.__name__, ""))
        or pytest.fail(f"{name}: the docstring names no equivalent, and neither does ALIKE or OWN")
    )


def signature(f: types.FunctionType) -> str:
    s = inspect.signature(f)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in s.parameters.values()]
    return str(s.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def first_sentence(f: Any) -> str:
    text = " ".join((inspect.getdoc(f) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) (?=[A-Z>])", text)[0].replace("|", "\\|")


def numpy_names() -> dict[str, Any]:
    """NumPy's public functions: `mean`, `linalg.inv`, `fft.fft`."""
    found = {}
    for prefix, space in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for n in space.__all__:
            f = getattr(space, n)
            if callable(f) and not isinstance(f, type):
                found[prefix + n] = f
    return found


def has(name: str) -> bool:
    prefix, _, short = name.rpartition(".")
    return hasattr(getattr(lt, prefix) if prefix else lt, short)


def dispatched() -> dict[str, list[str]]:
    """What happens to each of NumPy's functions that ask their arguments' class, called on tensors."""
    ways: dict[str, list[str]] = {"recorded": [], "computed": [], "refused": []}
    for f in overrides.get_overridable_numpy_array_functions() | overrides.get_overridable_numpy_ufuncs():
        name = name_of(f) if not isinstance(f, np.ufunc) else f"numpy.{f.__name__}"
        known = getattr(np, f.__name__, None) if name.startswith("numpy.") and name.count(".") == 1 else f
        if name.startswith("numpy._") or known is None:
            continue  # not public
        ours = {f, known} & (NATIVE.keys() | SPECIAL.keys() | UFUNCS.keys())
        way = "refused" if f in REFUSED or f is np.isnat else "recorded" if ours else "computed"
        if not name.startswith(("numpy.strings.", "numpy.char.", "numpy.lib.recfunctions.", "numpy.polynomial.")):
            ways[way].append(name)
    return {way: sorted(set(names)) for way, names in ways.items()}


DTYPES = {
    "bfloat16": "A dtype: float32 with a mantissa of 8 bits.",
    "float8_e4m3fn": "A dtype that values are stored in: 4 bits of exponent, 3 of mantissa, no infinity.",
    "float8_e5m2": "A dtype that values are stored in: 5 bits of exponent, 2 of mantissa.",
}


def others(space: str) -> list[str]:
    """The rows of a module's names that are no functions: classes, modules, dtypes, constants."""
    module = importlib.import_module(space)
    rows = []
    for name in sorted(module.__dir__()):
        o = getattr(module, name)
        if isinstance(o, types.FunctionType):
            continue
        if isinstance(o, np.dtype):
            text = DTYPES.get(name, "A dtype.")
        elif isinstance(o, float) or o is None:
            text = f"The constant {o}."
        else:
            text = first_sentence(o)
        rows.append(f"| `{name}` | {text} |")
    head = ["", "| name | what it is |", "| --- | --- |"]
    return rows if not rows or space not in SPACES else head + rows


def page() -> str:
    lines = [
        "# Reference",
        "",
        "Every public function, from the docstrings: `python -m tests.docs.test_reference` writes this page. The",
        "layers, losses and optimizers of `lazyt.nn` and `lazyt.optim` are classes, documented where they are.",
    ]
    for space in SPACES:
        lines += ["", f"## {space}", "", "| function | as | what it is |", "| --- | --- | --- |"]
        for name, f in functions(space).items():
            other = equivalent(name, f)
            lines.append(
                f"| `{name}{signature(f)}`".replace("|", "\\|").replace("\\|", "|", 1)
                + f" | {f'`{other}`' if other else 'lazyt'} | {first_sentence(f)} |"
            )
        lines += others(space)
    for space in MODULES[len(SPACES) :]:
        lines += ["", f"## {space}", "", "| name | what it is |", "| --- | --- |"]
        for name, f in functions(space).items():
            lines.append(f"| `{name}{signature(f)}` | {first_sentence(f)} |")
        lines += others(space)
    ways = dispatched()
    texts = {
        "recorded": "By lazyt's function of that name: deferred, unless the result's shape is data",
        "computed": "Computed by NumPy on values, a sync whose cause is the name",
        "refused": "Refused: lazyt has no dtype for dates",
    }
    lines += ["", f"{NUMPY} {VERSION} called on tensors"]
    for way, names in ways.items():
        lines += ["", f"{texts[way]}:", "", ", ".join(f"`{n.removeprefix('numpy.')}`" for n in names) + "."]
    lines += ["", "## NumPy's names that lazyt has not", "", "| name | why |", "| --- | --- |"]
    lines += [f"| `{n}` | {why} |" for n, why in sorted(ABSENT.items())]
    return "\n".join(lines) + "\n"


def test_the_page_is_what_the_docstrings_say():
    shown, fresh = (text.partition(NUMPY) for text in (PAGE.read_text(), page()))
    assert shown[0] == fresh[0], "write it anew: python -m tests.docs.test_reference"
    if shown[2].startswith(f" {VERSION} "):
        assert shown[2] == fresh[2], "write it anew: python -m tests.docs.test_reference"


@pytest.mark.parametrize("space", MODULES)
def test_a_module_shows_what_the_reference_does(space):
    section = PAGE.read_text().partition(f"\n## {space}\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)", section, re.M)
    module = importlib.import_module(space)
    assert dir(module) == sorted(named)
    on_demand = {*lt._ON_DEMAND, *lt._OF_AMP} if space == "lazyt" else set()
    assert set(module.__all__) == set(named) - on_demand


def test_no_module_of_the_package_hides_behind_a_public_name():
    for info in pkgutil.walk_packages(lt.__path__, "lazyt."):
        parent, _, name = info.name.rpartition(".")
        if parent in ("lazyt", "lazyt.nn", "lazyt.optim"):
            public = importlib.import_module(parent).__dir__()
            assert name not in public or importlib.import_module(info.name) is getattr(sys.modules[parent], name), (
                info.name
            )


@pytest.mark.parametrize("space", SPACES)
def test_every_function_names_its_equivalent(space):
    for name, f in functions(space).items():
        other = equivalent(name, f)
        assert other or name in OWN
        if other.startswith("numpy."):
            found: Any = np
            for part in other.split(".")[1:]:
                assert hasattr(found, part), f"{name}: there is no {other}"
                found = getattr(found, part)


def test_no_name_of_numpys_falls_out_unseen():
    missing = {n for n in numpy_names() if not has(n)}
    assert missing <= ABSENT.keys(), f"give these a function or a reason: {sorted(missing - ABSENT.keys())}"
    assert not [n for n in ABSENT if has(n)], "these are there by now: take them off ABSENT"


if __name__ == "__main__":
    PAGE.write_text(page())
