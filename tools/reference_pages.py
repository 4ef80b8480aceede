"""The reference in full, from docstrings: a page for each namespace, written when the site is built.

`docs/reference.md` has every function in one table; these pages have all of each docstring, and classes with methods.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

# The page, its title, and the namespace that it shows.
PAGES = (
    ("reference/tensor.md", "Tensor", "lazyt.Tensor"),
    ("reference/lazyt.md", "lazyt", "lazyt"),
    ("reference/nn.md", "lazyt.nn", "lazyt.nn"),
    ("reference/nn-functional.md", "lazyt.nn.functional", "lazyt.nn.functional"),
    ("reference/nn-init.md", "lazyt.nn.init", "lazyt.nn.init"),
    ("reference/nn-utils.md", "lazyt.nn.utils", "lazyt.nn.utils"),
    ("reference/nn-utils-rnn.md", "lazyt.nn.utils.rnn", "lazyt.nn.utils.rnn"),
    ("reference/optim.md", "lazyt.optim", "lazyt.optim"),
    ("reference/lr-scheduler.md", "lazyt.optim.lr_scheduler", "lazyt.optim.lr_scheduler"),
    ("reference/swa-utils.md", "lazyt.optim.swa_utils", "lazyt.optim.swa_utils"),
    ("reference/amp.md", "lazyt.amp", "lazyt.amp"),
    ("reference/distributions.md", "lazyt.distributions", "lazyt.distributions"),
    ("reference/func.md", "lazyt.func", "lazyt.func"),
    ("reference/random.md", "lazyt.random", "lazyt.random"),
    ("reference/linalg.md", "lazyt.linalg", "lazyt.linalg"),
    ("reference/fft.md", "lazyt.fft", "lazyt.fft"),
    ("reference/memory.md", "lazyt.memory", "lazyt.memory"),
    ("reference/debug.md", "lazyt.debug", "lazyt.debug"),
    ("reference/testing.md", "lazyt.testing", "lazyt.testing"),
    ("reference/backends.md", "lazyt.backends", "lazyt.backends"),
)
# Pages of their own.
ELSEWHERE = {"Tensor"}


def namespace(space: str) -> Any:
    """A module, or an object that stands as one (`lazyt.memory`)."""
    found: Any = importlib.import_module("lazyt")
    for part in space.split(".")[1:]:
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(f"{found.__name__}.{part}")
    return found


def public(space: str) -> dict[str, Any]:
    """What a namespace offers, modules and plain values apart, in order."""
    module = namespace(space)
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in sorted(names, key=lambda n: (n.lower(), n))}
    return {n: o for n, o in found.items() if isinstance(o, type | types.FunctionType) and n not in ELSEWHERE}


def methods(cls: type) -> dict[str, Any]:
    """The public methods and properties that a class, or a class of lazyt's above it, defines, in order."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "lazyt":
            found |= {n: o for n, o in vars(base).items() if not n.startswith("_") and inspect.getdoc(o)}
    return dict(sorted((n, o) for n, o in found.items() if isinstance(o, property) or callable(_bare(o))))


def _bare(o: Any) -> Any:
    return o.__func__ if isinstance(o, classmethod | staticmethod) else o


def signature(f: Callable[..., Any], drop_self: bool = False) -> str:
    """Parameters without annotations; '(...)' where Python knows none."""
    try:
        s = inspect.signature(f)
    except ValueError:
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in s.parameters.values()]
    if drop_self and bare:
        del bare[0]
    return str(s.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _escaped(text: str) -> str:
    """Prose with the signs that Markdown would read taken literally, but for code between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]<>#|\\])", r"\\\1", p) for p in parts)


def markdown(doc: str) -> str:
    """A docstring as Markdown: examples become blocks of code."""
    parts = []
    for part in re.split(r"\n\s*\n", doc.strip()):
        prose, prompt, example = part.partition(">>> ") if not part.startswith(">>> ") else ("", ">>> ", part[4:])
        if prompt and prose and not prose.endswith("\n"):
            prose, prompt, example = part, "", ""  # a prompt within a line is prose
        if prose.strip():
            parts.append(_escaped(prose.strip()))
        if prompt:
            # What follows an empty line of an example's output goes on with it.
            parts.append(f"```pycon\n>>> {example.rstrip()}\n```")
    return "\n\n".join(parts)


def _entry(name: str, o: Any, level: str, owner: str = "") -> Iterator[str]:
    f = _bare(o)
    yield f"{level} `{name}`"
    if not isinstance(o, property):
        drop_self = bool(owner) and not isinstance(o, staticmethod)
        call = textwrap.wrap(f"{owner}{name}{signature(f, drop_self)}", 84, subsequent_indent="    ")
        yield "\n".join(("```python", *call, "```"))
    yield markdown(inspect.getdoc(f) or "")


def entries(name: str, o: Any) -> Iterator[str]:
    """A function, or a class with its methods, in paragraphs of Markdown."""
    yield from _entry(name, o, "##")
    if isinstance(o, type):
        for n, m in methods(o).items():
            if not (issubclass(o, BaseException) or n in _inherited(o)):
                yield from _entry(n, m, "###", f"{name}.")


def _inherited(cls: type) -> set[str]:
    """Methods that are described at the base, as `Module.train` is, not with each layer; functions of a class."""
    bases = [b for b in cls.__mro__[1:] if b.__module__.partition(".")[0] == "lazyt"]
    above = {n: o for b in reversed(bases) for n, o in vars(b).items()}
    return {
        n
        for n, o in methods(cls).items()
        if n not in vars(cls)
        or inspect.getdoc(above.get(n)) == inspect.getdoc(o)
        or "." not in getattr(_bare(o), "__qualname__", ".")
    }


def page(title: str, space: str) -> str:
    """The text of a page."""
    parts = [f"# {title}"]
    if space == "lazyt.Tensor":
        cls = namespace(space)
        parts.append(markdown(inspect.getdoc(cls) or ""))
        for n, m in methods(cls).items():
            parts += _entry(n, m, "##", "Tensor.")
        return "\n\n".join(parts) + "\n"
    parts.append(markdown(inspect.getdoc(namespace(space)) or ""))
    found = public(space)
    for name, o in found.items():
        own = o.__name__
        same = own != name and own in found and inspect.getdoc(found[own]) == inspect.getdoc(o)
        parts += (f"## `{name}`", f"The same as [`{own}`](#{own.lower()}).") if same else entries(name, o)
    return "\n\n".join(parts) + "\n"
