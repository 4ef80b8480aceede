"""The registry of derivatives: what every primitive and every library call does to cotangents.

    @vjp("abs")                                       @library_vjp("linalg_inv")
    def _abs(b, n, ct): ...                           def _inv(b, n, cts): ...

A rule of a primitive takes the builder, the node and its cotangent; one of a library call takes the call and for each
of its outputs a cotangent or None. Both give a cotangent (or None) for each operand. Rules are written in builder
primitives only, so that derivatives are differentiable again. A name has a rule or a reason why it has none; a test
keeps it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lazyt.ir.library_calls import NO_GRADIENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.autograd.rules.formula import OpaqueRule, Rule

    R = TypeVar("R", bound=Rule)
    L = TypeVar("L", bound=OpaqueRule)

# primitive -> rule(b, node, cotangent). `opaque` and `item` are the engine's own: see OPAQUE_VJP.
VJP: dict[str, Rule] = {}
# opaque function -> rule(b, call, one cotangent an output or None)
OPAQUE_VJP: dict[str, OpaqueRule] = {}
# primitive or opaque function -> why no cotangent passes through it
NONDIFFERENTIABLE: dict[str, str] = {**NO_GRADIENT}


def _new(*names: str) -> None:
    for name in names:
        assert name not in VJP, f"{name} has a rule already"
        assert name not in OPAQUE_VJP, f"{name} has a rule already"
        assert name not in NONDIFFERENTIABLE, f"{name} is not differentiable: {NONDIFFERENTIABLE[name]}"


def vjp(*names: str) -> Callable[[R], R]:
    """Make a function the rule of these primitives."""

    def put(rule: R) -> R:
        _new(*names)
        VJP.update(dict.fromkeys(names, rule))
        return rule

    return put


def library_vjp(*names: str) -> Callable[[L], L]:
    """Make a function the rule of these library calls."""

    def put(rule: L) -> L:
        _new(*names)
        OPAQUE_VJP.update(dict.fromkeys(names, rule))
        return rule

    return put


def nondifferentiable(why: str, *names: str) -> None:
    """Say why no cotangent passes through these primitives or library calls."""
    _new(*names)
    NONDIFFERENTIABLE.update(dict.fromkeys(names, why))
