"""The pages for who comes from PyTorch and JAX: every public name of theirs, with lazyt's.

`python -m tests.docs.test_porting` writes the pages anew; `tools/names_of_peers.py` wrote the lists of names.
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import lazyt as lt
from lazyt.functions.spelling import RULES
from lazyt.tracing.name_hints import ATTRIBUTES, FUNCTIONS

FOLDER = Path(__file__).parents[2]
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
OTHERWISE = {
    "jax.grad": "`lt.grad`, or `x.backward()`",
    "jax.nn.initializers.glorot_normal": "`lt.nn.init.xavier_normal_`",
    "jax.nn.initializers.glorot_uniform": "`lt.nn.init.xavier_uniform_`",
    "jax.nn.initializers.he_normal": "`lt.nn.init.kaiming_normal_`",
    "jax.nn.initializers.he_uniform": "`lt.nn.init.kaiming_uniform_`",
    "jax.random.PRNGKey": "`lt.random.Generator(seed)`",
    "jax.random.key": "`lt.random.Generator(seed)`",
    "jax.random.randint": "`lt.random.integers`",
    "jax.lax.erf_inv": "`lt.erfinv`",
    "jax.lax.stop_gradient": "`x.detach()`",
    "torch.Tensor.size": "`x.shape`; `x.size` is the number of elements",
    "torch.autograd.functional.hessian": "`lt.hessian(f)(x)`",
    "torch.autograd.functional.hvp": "`lt.hvp(f, (x,), (v,))`",
    "torch.autograd.functional.jacobian": "`lt.jacrev(f)(x)`",
    "torch.autograd.functional.jvp": "`lt.jvp(f, (x,), (v,))`",
    "torch.autograd.functional.vhp": "`lt.hvp(f, (x,), (v,))`, as a Hessian is symmetric",
    "torch.autograd.functional.vjp": "`lt.vjp(f, x)`, which gives the value and the function that pulls v back",
    "torch.equal": "`lt.array_equal`",
    "torch.from_numpy": "`lt.from_numpy`",
    "torch.get_autocast_dtype": "`lt.get_autocast_dtype`",
    "torch.is_autocast_enabled": "`lt.is_autocast_enabled`",
    "torch.random.manual_seed": "`lt.random.seed`",
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
process. What both have and read differently (`x.max(1)`, `x.split(2)`, `x.transpose(0, 1)`, `x.std()`) means PyTorch's
in files that have `lazyt.torch` among their names, and NumPy's in all others. Results are pending until something reads
them, as all of lazyt's. What stays lazyt's: dtypes that meet are promoted as NumPy's (`x * i` of float32 and int64 is
float64), random bits are not PyTorch's, and `torch.save` keeps states, not whole models.

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
`jax.numpy` is `lt` itself, and there is no `jit`: what runs is recorded, planned and compiled. Arrays may be written in
place (`x[i] = v`), so `x.at[i].set(v)` is not needed; random numbers have a generator, not a key that is split.
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
        ]
    names = (FOLDER / "tests" / "docs" / f"{library}_names.txt").read_text().split()
    lines += [
        f"`python -m tests.docs.test_porting` writes the tables, from {len(names)} public names of {title}'s.",
        "",
    ]
    for space in dict.fromkeys(n.rpartition(".")[0] for n in names):
        pairs = [(n, spelled(n)) for n in names if n.rpartition(".")[0] == space]
        lines += [f"## {space}", "", f"| {title} | lazyt |", "| --- | --- |"]
        lines += [f"| `{n}` | {here} |" for n, here in pairs if here]
        if missing := [f"`{n.rpartition('.')[2]}`" for n, here in pairs if not here]:
            lines += ["", f"Not there: {', '.join(missing)}."]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize("library", TITLES)
def test_the_page_has_every_name(library):
    shown = (FOLDER / "docs" / TITLES[library][0]).read_text()
    assert shown == page(library), "write it anew: python -m tests.docs.test_porting"


@pytest.mark.parametrize("library", TITLES)
def test_what_a_row_says_is_there(library):
    for path in re.findall(r"^\| `[\w.]+` \| `lt\.([\w.]+)", page(library), re.M):
        found: Any = lt
        for part in path.split("."):
            found = getattr(found, part)
    for method in re.findall(r"^\| `[\w.]+` \| `x\.(\w+)", page(library), re.M):
        assert hasattr(lt.Tensor, method)


if __name__ == "__main__":
    for name, (file, _) in TITLES.items():
        (FOLDER / "docs" / file).write_text(page(name))
