"""What random loops with several losses do: recurrences beside and behind each other, of which each is differentiated.

Losses are recorded anywhere and differentiated anywhere: together, in another order, by some values, twice, or not at
all. `long_programs.py` draws from these tables. `{s}` is a state, `{t}` a value, `{a}` a value times a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

STATES = ("h", "z")
VALUES = ("h", "z", "e", "h.detach()", "e.detach()", "(held[-1] if held else z)")
APPLIED = ("{t} @ w", "{t} * v", "{t} @ u", "({t} @ w) * v", "{t} @ w.T")
# What an iteration does: contractions, so that no order of sums is seen in the end.
ITERATIONS = (
    "{s} = xp.tanh({a} + 0.3 * {t})", "{s} = xp.tanh({a} + 0.3 * {t})", "{s} = {s} * 0.7 + xp.sin({a}) * 0.3",
    "e = xp.tanh({a})", "with lt.no_grad(): e = xp.tanh({a})", "{s} = xp.where({s} > 0, {s}, {s} * 0.5) * 0.9",
    "held.append({t})", "{s} = {s} * 0.5; {s}[0] = {t}[-1] * 0.5", "{s} = {s}.detach() * 0.9",
    "{s} = xp.softmax({s}, axis=-1) * 0.5 + {s} * 0.5", "e = {t} * xp.tanh(xp.sum(u)) * 0.5",
)  # fmt: skip
LOSSES = (
    "xp.sum({t} ** 2)", "xp.mean({t} * {t}) + xp.sum(xp.sin(v)) * 0.3", "xp.sum(xp.tanh(w)) * 0.2", "xp.sum({a})",
    "xp.sum(xp.stack(held[-9:]) * 0.1) if held else xp.sum({t})",
)  # fmt: skip
BACKWARDS = (
    "if some and some[-1].requires_grad: some.pop().backward(retain_graph=True)",
    "if some and some[-1].requires_grad: some.pop().backward(retain_graph=True)",
    "if some and some[0].requires_grad: some.pop(0).backward(retain_graph=True)",
    "if some and some[-1].requires_grad: kept += grads(some[-1], [w, v])",
    "if {s}.requires_grad: {s}.backward(xp.ones({s}.shape, dtype={s}.dtype) * 0.1, retain_graph=True)",
    "loss = [l for l in some if l.requires_grad]\nif loss: lt.autograd.backward(loss, retain_graph=True)\nsome = []",
    "if {s}.requires_grad and some and some[-1].requires_grad: kept += grads(some[-1], [{s}, u])",
    "kept.append(lt.grad(lambda t: xp.sum(xp.sin(t) * {s}.detach()))({s}.detach()))",
    "kept.append(lt.vmap(lambda t: xp.sin(t) * xp.sum(t))({s}.detach()))",
    "if e.requires_grad: xp.sum(e ** 2).backward(retain_graph=True)",
)  # fmt: skip
# Before the loop, and where a turn begins and ends.
STATE = (
    "u = param(({d}, {d}), 5, 'float64', 0.3)",
    "grads = lambda loss, of: lt.autograd.grad(loss, of, retain_graph=True, allow_unused=True)",
)
BEGIN = ("h, z, some, held = x * 0.9, y, [], []", "e = h")
END = (
    "kept += [t.grad for t in (w, v, u) if t.grad is not None]",
    "if w.grad is not None: w = (w - 0.1 * xp.tanh(w.grad)).detach().requires_grad_()",
    "if v.grad is not None:\n    with lt.no_grad(): v -= 0.1 * xp.tanh(v.grad)\n    v.grad = None",
    "loss = None",
)


class Draws(Protocol):
    """Who draws."""

    def pick(self, n: int) -> int:
        """A number below n."""

    def one(self, of: Sequence[str]) -> str:
        """One of these."""


def _drawn(w: Draws, of: Sequence[str]) -> str:
    text = w.one(of)
    for name, some in (("{a}", APPLIED), ("{s}", STATES), ("{t}", VALUES)):
        text = text.replace(name, w.one(some))
    return text


def turn(w: Draws) -> list[str]:
    """Loops, and losses and backwards behind them, and at times within."""
    out = [*BEGIN]
    for _ in range(1 + w.pick(4)):
        if w.pick(6):
            body = [_drawn(w, ITERATIONS) for _ in range(1 + w.pick(4))]
            if w.pick(6) == 0:
                body.append(f"some.append({_drawn(w, LOSSES)})")
            if w.pick(8) == 0:
                body.append(_drawn(w, BACKWARDS))
            turns = w.one(("12", "20", "30", "9 + k"))
            out.append("\n    ".join([f"for j in range({turns}):", *(x.replace("\n", "\n    ") for x in body)]))
        for _ in range(w.pick(4)):
            kind = w.pick(10)
            out.append(
                f"some.append({_drawn(w, LOSSES)})" if kind < 5 else _drawn(w, BACKWARDS if kind < 8 else ITERATIONS)
            )
    out += [_drawn(w, BACKWARDS) for _ in range(1 + w.pick(3))]
    return [*out, *END]
