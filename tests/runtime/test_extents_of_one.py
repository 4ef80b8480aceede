"""Shapes with ones: an extent that happens to be 1 is not one that always is, forward, backward and across syncs.

Random programs of what moves, repeats and broadcasts, run again and again with batches of 1 and of more, beside NumPy
and its slopes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir.symbolic import Scope
from lazyt.tracing.trace import local

OPERATIONS = (
    "m.tile({t}, ({r}, {r}))", "m.tile({t}, {r})", "m.repeat({t}, {r}, axis={ax})", "m.repeat({t}, {r})[:, None]",
    "m.reshape({t}, (-1, {t}.shape[1]))", "m.reshape({t}, ({t}.shape[1], {t}.shape[0]))", "m.reshape({t}, (1, -1))",
    "m.reshape({t}, (-1, 1))", "m.reshape({t}, ({t}.shape[0], 1, {t}.shape[1])).sum({ax})", "m.kron({t}, {u})",
    "{t} + {u}", "{t} * {u}", "{t} - {u}", "{t}.sum(axis={ax})", "{t}.sum(axis={ax}, keepdims=True)", "{t}.sum(-1)",
    "{t}.mean(0)", "m.broadcast_to({t}, ({r}, *{t}.shape)).sum(0)", "m.broadcast_to({t}, ({r}, *{t}.shape)).sum(2)",
    "m.expand_dims({t}, 0)[0]", "{t}.T", "{t}.T @ {u}", "{t} @ {u}.T", "{t}[:1]", "{t}[:, :1]", "{t}[-1:]",
    "m.concatenate([{t}, {t}], axis={ax})", "m.stack([{t}, {u}])[0]", "m.outer({t}, {u})[:3, :3]",
    "{t}[:, None] * {t}[None]", "({t}[:, None] * {u}[None]).sum({ax})", "m.broadcast_to({t}[:1], {t}.shape)",
    "m.cumsum({t}, axis={ax})", "m.flip({t}, axis={ax})", "m.roll({t}, 1, axis={ax})", "m.squeeze({t}[None], 0)",
    "m.swapaxes({t}, 0, 1)", "m.where({t} > 0, {t}, {u})", "m.max({t}, axis={ax}, keepdims=True)",
    "m.pad({t}, ((0, {z}), ({z}, 0)))", "m.einsum('ij,ik->jk', {t}, {u})", "m.einsum('ij,kj->ik', {t}, {u})",
    "m.diagonal({t} @ {t}.T)", "m.ravel({t})[None]",
)  # fmt: skip


def written(rng: random.Random) -> list[tuple[str, str]]:
    """The names and expressions of a program over a (n, d), b (m, d) and c (1, e)."""
    names, lines = ["a", "b", "c"], []
    for k in range(rng.randint(2, 7)):
        t, u = rng.choice([*names[-3:], "b"]), rng.choice(names)
        r, ax, z = rng.choice([1, 1, 2, 3]), rng.choice([0, 1]), rng.choice([0, 1])
        lines.append((f"t{k}", rng.choice(OPERATIONS).format(t=t, u=u, r=r, ax=ax, z=z)))
        names.append(f"t{k}")
    return lines


def run(m: Any, lines: list[tuple[str, str]], space: dict[str, Any]) -> Any:
    """The loss of a program: each of its matrices has a part in it."""
    loss = 0.0
    for k, (name, text) in enumerate(lines):
        v = eval(text, {"m": m}, space)
        v = v if v.ndim == 2 else v.reshape(1, -1)
        space[name] = v = v if v.size <= 400 else v[:3, :3]
        loss = loss + (v * v).sum() * (0.1 + 0.05 * k) + v.sum()
        if m is lt and space["at"] == k:
            lt.sync()
    return loss


def accepted(lines: list[tuple[str, str]], host: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines that NumPy does not refuse for these shapes."""
    kept: list[tuple[str, str]] = []
    for line in lines:
        try:
            run(np, [*kept, line], dict(host))
        except (ValueError, NameError, IndexError):
            continue
        kept.append(line)
    return kept


def check(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    d, m, e = (rng.choice([1, 1, 2, 3]) for _ in range(3))
    lines, at = written(rng), rng.choice([-1, *range(5)])
    for n in [rng.choice([1, 1, 2, 3]) for _ in range(4)]:
        host = {k: np.round(numbers.standard_normal(s), 2) for k, s in {"a": (n, d), "b": (m, d), "c": (1, e)}.items()}
        kept = accepted(lines, host)
        ours: dict[str, Any] = {k: lt.asarray(v).requires_grad_(k != "c") for k, v in host.items()}
        loss = run(lt, kept, ours | {"at": at})
        if not kept or not loss.requires_grad:
            continue
        loss.backward()
        np.testing.assert_allclose(loss.item(), run(np, kept, dict(host)), rtol=1e-9, err_msg=str((seed, n, kept)))
        for k in ("a", "b"):
            g = ours[k].grad
            for i in list(np.ndindex(*host[k].shape))[:3] if g is not None else ():
                moved = [host | {k: host[k] + h * (np.arange(host[k].size) == np.ravel_multi_index(i, host[k].shape))
                                 .reshape(host[k].shape)} for h in (1e-6, -1e-6)]  # fmt: skip
                slope = (run(np, kept, moved[0]) - run(np, kept, moved[1])) / 2e-6
                np.testing.assert_allclose(g.numpy()[i], slope, rtol=1e-4, atol=1e-4, err_msg=str((seed, n, k, kept)))


@pytest.mark.parametrize("seed", [270, *range(12)])
def test_programs_over_shapes_with_ones(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_many_programs_over_shapes_with_ones() -> None:
    for seed in range(1000, 1150):
        check(seed)


REPEATED = (
    lambda a: lt.tile(a, (1, 1)), lambda a: lt.repeat(a, 1, axis=0), lambda a: a[:1],
    lambda a: lt.broadcast_to(a, (1, *a.shape)).reshape(-1, 3),
)  # fmt: skip


@pytest.mark.parametrize("repeated", REPEATED)
def test_a_product_of_extents_that_is_one(repeated: Any) -> None:
    local.trace.start()
    for n in (1, 1, 2, 1):
        a = lt.tensor([[1.0, 2.0, 3.0]] * n)
        b = lt.tensor([1.0, 2.0, 3.0], requires_grad=True)
        d = a * 1
        s = ((repeated(a) * d) * b).sum(-1, keepdims=True)
        e = d * s
        lt.sync()
        e.sum().backward()
        np.testing.assert_allclose(b.grad.tolist(), [6 * n, 24 * n, 54 * n])


def test_a_batch_of_one_and_then_of_more_across_a_sync() -> None:
    """What a segment keeps has extents of its own: in a plan made for a batch of 1 they were not those of the batch."""
    for n in (1, 2, 1, 3):
        host = np.arange(1.0, 1 + 2 * n).reshape(n, 2)
        a = lt.asarray(host).requires_grad_()
        b = lt.asarray([[3.0, 5.0]], dtype="float64").requires_grad_()
        t = (b[:, None] * a[None]).sum(1)
        lt.sync()
        (t * t).sum().backward()
        total = host.sum(0) * [3.0, 5.0]
        np.testing.assert_allclose(a.grad.numpy(), np.tile(2 * total * [3.0, 5.0], (n, 1)))
        np.testing.assert_allclose(b.grad.numpy(), [2 * total * host.sum(0)])


def test_what_is_relied_on_is_known_afterwards() -> None:
    """Sums and products of extents too: whatever unify was told is equal from then on."""
    scope = Scope()
    a, b, c, d, e, f = (scope.symbol(k, n) for k, n in enumerate((2, 3, 2, 3, 1, 1)))
    assert scope.unify(a * e, a) == a and scope.known_equal(e, 1)  # a common factor goes
    scope.unify(f * e, 1)
    assert scope.known_equal(f, 1)
    scope.unify(a * b, c * d)
    assert scope.known_equal(a * b, c * d) and scope.known_equal(c * d * 2 + 1, c * d * 2 + 1)
    scope.unify(a, c)  # what was alike is compared again
    assert scope.known_equal(b, d)
    scope = Scope()
    a, b, c, d = (scope.symbol(k, n) for k, n in enumerate((0, 5, 4, 2)))
    scope.unify(a * b, a * c)  # of nothing there is no saying how wide it is
    assert not scope.known_equal(b, c) and scope.known_equal(a * b, a * c)
    scope.unify((b + 1) // 2, c - 1)
    assert scope.known_equal((b + 1) // 2 + d, c - 1 + d)
    scope.unify(b + c + d, b + c * d - 2)
    assert scope.known_equal(c + d, c * d - 2)


def test_of_three_the_last_is_left() -> None:
    scope = Scope()
    a, b = scope.symbol(0, 1), scope.symbol(1, 1)
    assert scope.unify(a * a * b, 1) == 1
    assert scope.known_equal(a, 1) and scope.known_equal(b, 1)
