"""The registry of derivatives: what every primitive and every library call does to cotangents.

    @vjp("abs")                                       @library_vjp("linalg_inv")
    def _abs(b, n, ct): ...                           def _inv(b, n, cts): ...

A rule of a primitive takes the builder, the node and its cotangent; one of a library call takes the call and for each
of its outputs a cotangent or None. Both give a cotangent (or None) for each operand. Rules are written in builder
primitives only, so that derivatives are differentiable again. A name has a rule or a reason why it has none; a test
keeps it so.
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, Any, TypeVar

from lazyt.ir.library_calls import NO_GRADIENT

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from lazyt.autograd.rules.formula import OpaqueRule, Rule

    R = TypeVar("R", bound=Rule)
    L = TypeVar("L", bound=OpaqueRule)

# primitive -> rule(b, node, cotangent). `opaque` and `item` are the engine's own: see OPAQUE_VJP.
VJP: dict[str, Rule] = {}
# opaque function -> rule(b, call, one cotangent an output or None)
OPAQUE_VJP: dict[str, OpaqueRule] = {}
# primitive or opaque function -> why no cotangent passes through it
# NOTE: library functions are registered when their operations are loaded, which may be later than this.
NONDIFFERENTIABLE: MutableMapping[str, str] = ChainMap({}, NO_GRADIENT)


def is_other(known: Any, rule: Any) -> bool:
    """Whether a name has a rule of another file already: a file that was interrupted is imported again."""
    return known is not None and getattr(known, "__module__", "") != getattr(rule, "__module__", "")


def _new(rule: Any, *names: str) -> None:
    for name in names:
        assert not is_other(VJP.get(name), rule), f"{name} has a rule already"
        assert not is_other(OPAQUE_VJP.get(name), rule), f"{name} has a rule already"
        assert name not in NONDIFFERENTIABLE, f"{name} is not differentiable: {NONDIFFERENTIABLE[name]}"


def vjp(*names: str) -> Callable[[R], R]:
    """Make a function the rule of these primitives."""

    def put(rule: R) -> R:
        _new(rule, *names)
        VJP.update(dict.fromkeys(names, rule))
        return rule

    return put


def library_vjp(*names: str) -> Callable[[L], L]:
    """Make a function the rule of these library calls."""

    def put(rule: L) -> L:
        _new(rule, *names)
        OPAQUE_VJP.update(dict.fromkeys(names, rule))
        return rule

    return put


def nondifferentiable(why: str, *names: str) -> None:
    """Say why no cotangent passes through these primitives or library calls."""
    for name in names:
        assert NONDIFFERENTIABLE.get(name, why) == why, f"{name} is not differentiable: {NONDIFFERENTIABLE[name]}"
        assert name not in {*VJP, *OPAQUE_VJP}, f"{name} has a rule already"
    NONDIFFERENTIABLE.update(dict.fromkeys(names, why))
