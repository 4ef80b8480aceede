"""The registry of forward derivatives: what every primitive and every library call does to tangents.

    @jvp("abs")                                       @library_jvp("sort")
    def _abs(b, n, ts): ...                           def _sort(b, n, ts, used): ...

A rule takes the builder, the node and for each operand a tangent or None (at least one is there); one of a library call
also takes which of its outputs are used. A primitive's rule gives the tangent of its result, a library call's one an
output, or None. Rules are written in builder primitives only, so derivatives are differentiable again. The names are
those of the cotangents' registry (`rules/registry.py`); its `NONDIFFERENTIABLE` holds for both. A test keeps it so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lazyt.autograd.rules.registry import NONDIFFERENTIABLE, is_other

if TYPE_CHECKING:
    from lazyt.ir.builder import Builder
    from lazyt.ir.graph import Node

    Tangents = tuple[Node | None, ...]
    Rule = Callable[[Builder, Node, Tangents], Node | None]
    LibraryRule = Callable[[Builder, Node, Tangents, frozenset[int]], Tangents]

# primitive -> rule(b, node, tangents). `opaque` and `item` are the engine's own: see OPAQUE_JVP.
JVP: dict[str, Rule] = {}
# library function -> rule(b, call, tangents, outputs that are used)
OPAQUE_JVP: dict[str, LibraryRule] = {}


def _put(table: dict[str, Any], names: tuple[str, ...], rule: Any) -> Any:
    for name in names:
        assert not is_other(JVP.get(name, OPAQUE_JVP.get(name)), rule), f"{name} has a rule already"
        assert name not in NONDIFFERENTIABLE, f"{name} is not differentiable: {NONDIFFERENTIABLE[name]}"
        table[name] = rule
    return rule


def jvp(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these primitives."""
    return lambda rule: _put(JVP, names, rule)


def library_jvp(*names: str) -> Callable[[LibraryRule], LibraryRule]:
    """Make a function the rule of these library calls."""
    return lambda rule: _put(OPAQUE_JVP, names, rule)
