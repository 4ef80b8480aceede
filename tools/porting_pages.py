"""The pages for who comes from PyTorch and JAX: every public name of theirs, with lazyt's.

`python -m tools.porting_pages` writes the pages anew; `tools/names_of_peers.py` wrote the lists of names.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.functions.spelling import RULES
from lazyt.tracing.name_hints import ATTRIBUTES, FUNCTIONS
from tools import jax_remarks, torch_remarks

FOLDER = Path(__file__).parents[1]
TITLES = {"torch": ("from-pytorch.md", "PyTorch"), "jax": ("from-jax.md", "JAX")}
# A namespace of theirs -> those of lazyt's where its names are looked for.
SPACES = {
    "torch": ("lazyt", "lazyt.linalg", "lazyt.fft", "lazyt.random"),
    "torch.Tensor": ("lazyt.Tensor",),
    "torch.nn": ("lazyt.nn",),
    "torch.nn.functional": ("lazyt.nn.functional", "lazyt"),
    "torch.nn.init": ("lazyt.nn.init",),
    "torch.nn.utils": ("lazyt.nn.utils",),
    "torch.optim": ("lazyt.optim",),
    "torch.optim.lr_scheduler": ("lazyt.optim.lr_scheduler",),
    "torch.autograd": ("lazyt.autograd", "lazyt"),
    "torch.autograd.functional": (),
    "torch.func": ("lazyt.func",),
    "torch.linalg": ("lazyt.linalg", "lazyt"),
    "torch.fft": ("lazyt.fft",),
    "torch.utils.data": ("lazyt.data",),
    "torch.distributions": ("lazyt.distributions",),
    "torch.amp": ("lazyt.amp",),
    "jax": ("lazyt",),
    "jax.numpy": ("lazyt",),
    "jax.numpy.linalg": ("lazyt.linalg", "lazyt"),
    "jax.numpy.fft": ("lazyt.fft",),
    "jax.nn": ("lazyt.nn.functional", "lazyt"),
    "jax.nn.initializers": ("lazyt.nn.init",),
    "jax.random": ("lazyt.random",),
    "jax.lax": ("lazyt", "lazyt.linalg"),
}
# What is spelled otherwise and that no error says: the error of a missing name has its own table (name_hints.py).
OTHERWISE = {**torch_remarks.REMARKS, **jax_remarks.REMARKS}
OF_ERRORS = """\
## Errors

Errors of shapes, matrices and dtypes are of the builtin classes that NumPy has for them, so a PyTorch program's `except
RuntimeError` does not catch them, by whichever import. `lt.LazytError` is the base of all that lazyt raises but
NumPy's `LinAlgError`. What depends on values is found at the sync: its handler belongs around the line that reads.

>>> try:
...     torch.ones(2) + torch.ones(3)
... except (RuntimeError, ValueError) as error:
...     print(type(error).__name__, error)
ShapeError add: shapes (2,) and (3,) do not broadcast
"""
# What is wrong, the class of PyTorch's and that of lazyt's.
ERRORS = [
    (
        "shapes: of operands, layers, `reshape`, `cat`, `einsum`; no square matrix",
        "RuntimeError",
        "`lt.ShapeError`, a ValueError",
    ),
    ("an axis", "IndexError", "`lt.AxisError`, an IndexError and a ValueError"),
    (
        "an index out of range: `x[i]`, `take`, `embedding`, a class of `cross_entropy`",
        "IndexError",
        "`lt.IndexOutOfRange`, an IndexError",
    ),
    ("an index of `gather` or `scatter_add` out of range", "RuntimeError", "`lt.IndexOutOfRange`, an IndexError"),
    (
        "a matrix that is singular, or not positive definite; an SVD of NaN",
        "`torch.linalg.LinAlgError`, a RuntimeError",
        "`numpy.linalg.LinAlgError`, a ValueError",
    ),
    ("a dtype: `x & y` of floats, `b - b` of booleans, `i ** -1`", "RuntimeError", "`lt.DTypeError`, a TypeError"),
    ("`bool(x)` of several elements", "RuntimeError", "`lt.NotOneElement`, a ValueError and a TypeError"),
    ("`x.item()` of several elements", "RuntimeError", "`lt.ShapeError`, a ValueError"),
    (
        "a gradient: a graph that was freed, a leaf or a saved value that was written",
        "RuntimeError",
        "`lt.AutogradError`, a RuntimeError",
    ),
    (
        "an option of an optimizer or a scheduler: a negative `lr`, no parameters, a parameter in two groups",
        "ValueError, TypeError",
        "`lt.ArgumentError`, a ValueError; `lt.DTypeError`, a TypeError",
    ),
    (
        "a name of a parameter, buffer or child that is taken or has dots; a group without `params`",
        "KeyError",
        "`lt.InvalidKey`, a KeyError",
    ),
    ("a module before its `super().__init__()`", "AttributeError", "`lt.UninitializedModule`, an AttributeError"),
    ("`error_if_nonfinite` of `clip_grad_norm_`", "RuntimeError", "`lt.AutogradError`, a RuntimeError"),
    ("a state dict that does not fit", "RuntimeError", "`lt.StateError`, a RuntimeError and a ValueError"),
    (
        "a file that is damaged, or has more in it than tensors and containers",
        "RuntimeError, `pickle.UnpicklingError`",
        "`lt.StateError`, also an UnpicklingError",
    ),
    ("a device that is not there", "RuntimeError, AssertionError", "`lt.DeviceError`, a RuntimeError"),
    ("a distribution's parameters", "ValueError", "`lt.DistributionError`, a ValueError"),
    ("no memory", "RuntimeError, `torch.OutOfMemoryError`", "`lt.OutOfMemory`, a MemoryError"),
    (
        "the gradient of `U`, `Vh` of `svd(full_matrices=True)`, if the matrix is not square",
        "nothing: their first columns and rows have one",
        "`lt.NotSupportedError`, in `backward`",
    ),
    ("a class of `one_hot` beyond `num_classes`", "RuntimeError", "nothing: a row of zeros"),
    ("negative weights of `multinomial`", "RuntimeError", "nothing"),
]
CHECKED = {
    "jax": [
        "`tests/docs/jax_calls.txt` has calls of each of them, in JAX and in lazyt: that both give the same is tested.",
    ],
}
INTRODUCTION = {
    "torch": """\
A file that is to stay as it is changes its imports alone:

>>> import lazyt.torch as torch
>>> import lazyt.torch.nn as nn
>>> from lazyt.torch.utils.data import DataLoader
>>> x = torch.arange(6.0).view(2, 3)
>>> x.size(0), x.max(1).values.tolist(), x.mul(2).eq(4).sum(dim=1).tolist()
(2, [2.0, 5.0], [1, 0])

Functions of `lazyt.torch` have PyTorch's names, arguments, defaults and results. Tensors get PyTorch's methods that
NumPy's arrays have not (`x.add_(y)`, `x.masked_fill(mask, 0)`, `x.size(0)`), and `dim=` for `axis=`, in the whole
process. What both have and read differently means PyTorch's in files that have `lazyt.torch` among their names, and
NumPy's in all others:

- methods: `x.max(1)`, `x.split(2)`, `x.transpose(0, 1)`, `x.std(axis=0)`. One argument that only NumPy has (`ddof=`)
  makes a call NumPy's;
- keys: integers select before index arrays are placed, so `x[0, :, i]` has the axis of `i` last, and uint8 is a mask;
- operators: a tensor without axes promotes as a number of its class, so float16 times `torch.tensor(2.0)` is float16.
  Functions (`torch.mul`) and methods (`x.mul`) do so in every file;
- modules: a leaf that `nn.Parameter` did not make is no parameter when it is assigned.

Results are pending until something reads them, as all of lazyt's. What stays lazyt's in such files too:

- integers that meet floats are promoted as NumPy's: `x * i` of float32 and int64, `i * 0.5`, `i / 2` and `i.sqrt()` are
  float64. So where PyTorch asks for one dtype (`scatter_add`, `index_add`, `isclose`), one kind of dtype is enough;
- more is computed: products of two dtypes, means, norms and activations of integers, slices with a negative step;
- random bits are not PyTorch's, and `torch.save` keeps states, not whole models;
- a hook or `retain_grad` on a view that an in-place method then writes gets the gradient of the value before the write.
  PyTorch drops it, as the view has another history after the write;
- `x.add_(y)` of unsigned integers takes no wider ones, and `x.t_()`, `x.transpose_(0, 1)`, `x.squeeze_()` and
  `x.unsqueeze_(0)` are not there: write `x = x.t()`.

A write reaches what a result was made of where it does in PyTorch: `diagonal`, `flatten` and `expand` are views, `flip`
and `rot90` are copies. `+x`, `x.unfold(...)` and a complex `x.conj()` are copies here, and an element that an expansion
repeats is not written (ShapeError). `x.view(...)` of a view that needs a copy is a RuntimeError, as there; what an
operation computed is always contiguous here.

>>> K = torch.zeros(2, 2)
>>> _, _ = K.diagonal().add_(0.5), K.flip(0).fill_(9)
>>> K.tolist()
[[0.5, 0.0], [0.0, 0.5]]

A file that is written for lazyt has `import lazyt as lt`, with `lt.nn` for `torch.nn`, `lt.optim` for `torch.optim`,
and so on; `torch.utils.data` is `lt.data`, and `lt.utils.data` too. Layers, losses, optimizers and `DataLoader` have
PyTorch's names, arguments and `state_dict` keys, and `lt.load` reads `.pt` files. Functions of arrays have NumPy's
names and defaults, with `dim` as `axis`. What follows is about such files.

## The same text, another meaning

These are legal in both. Under `lt.spelling("torch")` each is an error that says both readings; write the last column.
`x.size(0)` is not, and its error is Python's, that an int is not callable: `x.size` is the number of elements here.
Write `x.shape[0]`.
""",
    "jax": """\
`jax.numpy` is `lt` itself, and nothing needs a `jit`: what runs is recorded, planned and compiled.
[`lt.jit`](how-to/skip-python.md) skips a function's Python too. Arrays may be written in place (`x[i] = v`), so
`x.at[i].set(v)` is not needed; random numbers have a generator, not a key that is split.

>>> import lazyt as lt
>>> x, y = lt.asarray([1.0, -2.0, 3.0]), lt.asarray([3.0, 2.0, 1.0])
>>> lt.where(x > 0, x, -x).tolist()  # lax.select(x > 0, x, -x)
[1.0, 2.0, 3.0]
>>> lt.maximum(x, y).tolist()  # lax.max(x, y)
[3.0, 2.0, 3.0]
>>> lt.random.normal(size=(3,), generator=lt.random.Generator(0)).shape  # jax.random.normal(jax.random.key(0), (3,))
(3,)

What holds for all names:

- Dtypes are NumPy's. float64 data stays float64, new integers are int64, float32 with int32 is float64, and so is the
  square root or the mean of integers; in JAX each of these has 32 bits. A dtype is no function: for `jnp.float32(x)`,
  write `x.astype(lt.float32)`, or `lt.asarray(1.5, dtype=lt.float32)` of a number.
- An index out of range raises `IndexOutOfRange`, and a singular matrix `LinAlgError`, at the sync where only values can
  tell. JAX clamps the index or gives NaN.
- Gradients of complex arguments are the conjugates of JAX's, as PyTorch's are.
- Functions of `lax` want equal shapes and dtypes; those that stand for them broadcast and promote.
- Lists of numbers stand for arrays everywhere. Arrays are passed by position: their names (`a`, `x1`, `operand`) are
  mostly no keywords.
- `size=` and `fill_value=` of functions whose result has no known size (`nonzero`, `unique`), `total_repeat_length=`,
  `precision=`, `preferred_element_type=`, `out_sharding=` and `accuracy=` are not there.
""",
}


def there(space: str) -> list[tuple[str, Any]]:
    """The namespaces of lazyt's that stand for one of theirs."""
    found = []
    for path in SPACES[space]:
        if path == "lazyt.Tensor":
            found.append(("x", lt.Tensor))
            continue
        try:
            found.append((path.replace("lazyt", "lt", 1), importlib.import_module(path)))
        except ModuleNotFoundError:
            continue
    return found


def spelled(full: str) -> str:
    """lazyt's spelling of a name of theirs; '' where there is none."""
    if full in OTHERWISE:
        return OTHERWISE[full]
    space, _, name = full.rpartition(".")
    for path, o in there(space):
        public = getattr(o, "__all__", None)
        if name in public if public is not None else hasattr(o, name):
            return f"`{path}.{name}`"
    hint = (
        ATTRIBUTES.get(name) if space == "torch.Tensor" else FUNCTIONS.get(name) if space in ("torch", "jax") else None
    )
    if hint is None:
        return ""
    text = re.sub(r" \((?:PyTorch|JAX): [\w.]+\)$", "", hint)
    plain = "`" in text or text.startswith(("the ", "lt itself", "a slice", "an index", "nothing,"))
    return text if plain else f"`{text}`"


def by_the_same_name(pairs: dict[str, str]) -> dict[str, list[str]]:
    """The names of a namespace that are called as in JAX (jax_calls.txt says how), by where they stand, and dtypes."""
    found: dict[str, list[str]] = {}
    for name, here in pairs.items():
        path = here.strip("`").removesuffix(f".{name}")
        if here != f"`{path}.{name}`":
            continue
        dtype = isinstance(getattr(lt, name, None), np.dtype)
        head = "Dtypes, which are no functions here" if dtype else f"The same by the same name in `{path}`"
        found.setdefault(head, []).append(name)
    return found


def listed(names: list[str]) -> str:
    """Names as code, with commas."""
    return ", ".join(f"`{n}`" for n in names)


@functools.cache
def page(library: str) -> str:
    """The whole page."""
    title = TITLES[library][1]
    lines = [f"# {title}'s names", "", INTRODUCTION[library]]
    if library == "torch":
        lines += ["| text | here | in PyTorch | write |", "| --- | --- | --- | --- |"]
        lines += [f"| `{r.call}` | {r.here} | {r.there} | {r.write} |" for r in RULES]
        lines += [
            "| `x * np.float64(2)` | float64 | x's dtype | x * 2.0 (a warning under `spelling`, once a line) |",
            "| `i * 0.5`, `i / 2`, `lt.sqrt(i)`, of integers | float64 | float32 | i.float() * 0.5 (a warning too) |",
            "| `x * i`, of float32 and int64 | float64 | float32 | x * i.float() (the same) |",
            "| `layer(x)`, of float64 data and float32 weights | float64 | an error | layer(x.float()) (the same) |",
            "",
            OF_ERRORS,
            "| what is wrong | PyTorch raises | lazyt raises |",
            "| --- | --- | --- |",
            *(f"| {what} | {there} | {here} |" for what, there, here in ERRORS),
            "",
        ]
    names = (FOLDER / "tests" / "docs" / f"{library}_names.txt").read_text().split()
    lines += [
        f"`python -m tools.porting_pages` writes the tables, from {len(names)} public names of {title}'s.",
        *CHECKED.get(library, ()),
        "",
    ]
    for space in dict.fromkeys(n.rpartition(".")[0] for n in names):
        pairs = {n.rpartition(".")[2]: spelled(n) for n in names if n.rpartition(".")[0] == space}
        same = by_the_same_name(pairs) if library == "jax" else {}
        rows = {n: here for n, here in pairs.items() if here and not any(n in found for found in same.values())}
        lines += [f"## {space}", ""]
        if rows:
            lines += [f"| {title} | lazyt |", "| --- | --- |", *(f"| `{space}.{n}` | {rows[n]} |" for n in rows), ""]
        lines += [line for head, found in same.items() for line in (f"{head}: {listed(found)}.", "")]
        if missing := [n for n, here in pairs.items() if not here]:
            lines += [f"Not there: {listed(missing)}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    for name, (file, _) in TITLES.items():
        (FOLDER / "docs" / file).write_text(page(name))
