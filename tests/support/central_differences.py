"""Derivatives of graphs against central differences of the interpreter, to any order."""

from __future__ import annotations

import numpy as np

from lazyt.autograd.batching import batch
from lazyt.autograd.forward import push
from lazyt.autograd.reverse import backward
from lazyt.ir import dtypes
from lazyt.ir.builder import Builder
from lazyt.ir.graph import Graph
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.verify import verify

F, C, INT = dtypes.float64, dtypes.complex128, dtypes.int64


def random(rng, shape, dtype=F):
    x = rng.uniform(0.3, 0.9, shape)
    return x + 1j * rng.uniform(0.3, 0.9, shape) if dtype == C else x


def inner(a, b):
    """The real inner product, for which cotangents are gradients."""
    return float(np.real(np.sum(np.conj(a) * b)))


def check(f, *arrays, constants=(), order=2, rtol=1e-6):
    """Differentiate f(b, *nodes, *constants) and compare, then its gradients in turn."""
    rng = np.random.default_rng(len(arrays) + 10 * order)
    b = Builder()
    every = [*arrays, *constants]
    leaves = [b.input(i, a.shape, a.dtype) for i, a in enumerate(every)]
    outputs = f(b, *leaves)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    values = interpret(b.nodes, outputs, every)
    cotangents = [random(rng, v.shape, v.dtype) for v in values]
    wanted = leaves[: len(arrays)]
    for k in range(order):
        seeds = [b.input(len(every) + i, c.shape, c.dtype) for i, c in enumerate(cotangents)]
        every = [*every, *cotangents]
        grads, _ = backward(b, outputs, seeds, [[x] for x in wanted])
        verify(Graph(b.nodes, grads))
        _compare(b, outputs, cotangents, wanted, grads, every, rng, rtol)
        _compare_forward(b, outputs, cotangents, wanted, grads, every, rng, rtol)
        if not k:
            _compare_mixed(b, outputs, cotangents, wanted, seeds, grads, every, rng, rtol)
            check_lanes(b, [*leaves, *seeds], [*outputs, *grads], every, rng)
        wanted, outputs = [*wanted, *seeds], grads
        cotangents = [random(rng, g.shape, g.dtype) for g in grads]


def _compare(b, outputs, cotangents, wanted, grads, every, rng, rtol):
    found = interpret(b.nodes, grads, every)
    for x, grad in zip(wanted, found, strict=True):
        k = x.attrs.index
        v, h = random(rng, grad.shape, grad.dtype), 1e-5
        sides = []
        for sign in (h, -h):
            moved = list(every)
            moved[k] = every[k] + sign * v
            ys = interpret(b.nodes, outputs, moved)
            sides.append(sum(inner(c, y) for c, y in zip(cotangents, ys, strict=True)))
        want = (sides[0] - sides[1]) / (2 * h)
        np.testing.assert_allclose(inner(grad, v), want, rtol=rtol, atol=1e-7, err_msg=f"operand {k}")


def _compare_forward(b, outputs, cotangents, wanted, grads, every, rng, rtol):
    """The tangent of each direction, seen along the cotangents, is the gradient along it: to each order.

    At the second it is forward over reverse mode, against reverse over reverse.
    """
    fork = b.fork()
    directions = [random(rng, x.shape, x.dtype) for x in wanted]
    seeds = [fork.input(len(every) + i, v.shape, v.dtype) for i, v in enumerate(directions)]
    some = [(x, t) for i, (x, t) in enumerate(zip(wanted, seeds, strict=True)) if len(wanted) < 2 or i != 1]
    for pairs in ([*zip(wanted, seeds, strict=True)], some):
        tangents = push(fork, outputs, *zip(*pairs, strict=True))
        there = [(c, t) for c, t in zip(cotangents, tangents, strict=True) if t is not None]
        nodes = [t for _, t in there]
        assert [t.shape for t in nodes] == [np.shape(c) for c, _ in there]
        verify(Graph(fork.nodes, nodes))
        pushed = interpret(fork.nodes, nodes, [*every, *directions])
        got = sum(inner(c, t) for (c, _), t in zip(there, pushed, strict=True))
        pulled = dict(zip(wanted, interpret(b.nodes, grads, every), strict=True))
        want = sum(inner(pulled[x], every_of(t, every, directions)) for x, t in pairs)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-9)


def _compare_mixed(b, outputs, cotangents, wanted, seeds, grads, every, rng, rtol):
    """Reverse over forward mode is forward over reverse: the gradient of a tangent, the tangent of a gradient."""
    fork = b.fork()
    directions = [random(rng, x.shape, x.dtype) for x in wanted]
    leaves = [fork.input(len(every) + i, v.shape, v.dtype) for i, v in enumerate(directions)]
    forward = push(fork, grads, wanted, leaves)
    tangents = push(fork, outputs, wanted, leaves)
    there = [(t, c) for t, c in zip(tangents, seeds, strict=True) if t is not None]
    reverse, _ = backward(fork, *map(list, zip(*there, strict=True)), [[x] for x in wanted]) if there else ([], ())
    pairs = [(f, r) for f, r in zip(forward, reverse, strict=True) if f is not None] if there else []
    found = interpret(fork.nodes, [n for pair in pairs for n in pair], [*every, *directions])
    scale = max((np.abs(x).max(initial=0) for x in found), default=0)
    for f, r in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(r, f, rtol=rtol, atol=1e-9 * (1 + scale))


def every_of(leaf, *lists):
    """The array that a leaf stands for."""
    return [x for arrays in lists for x in arrays][leaf.attrs.index]


def check_lanes(b, leaves, outputs, arrays, rng=None):
    """What two lanes compute together is what each computes: all operands with lanes, and each alone."""
    lanes = [arrays, [_other(x, rng) for x in arrays]]
    choices = [range(len(leaves)), *([i] for i in range(len(leaves)) if len(leaves) > 1)]
    for own in choices:
        each = [[lane[i] if i in own else arrays[i] for i in range(len(arrays))] for lane in lanes]
        wants = [interpret(b.nodes, outputs, xs) for xs in each]
        fork = b.fork()
        stacked = [np.stack([lane[i] for lane in lanes]) for i in own]
        values = [fork.input(len(arrays) + k, x.shape, x.dtype) for k, x in enumerate(stacked)]
        found = batch(fork, outputs, [leaves[i] for i in own], values, 2)
        there = [n for n in found if n is not None]
        verify(Graph(fork.nodes, there))
        got = iter(interpret(fork.nodes, there, [*arrays, *stacked]))
        for n, y, *want in zip(found, outputs, *wants, strict=True):
            if n is None:
                np.testing.assert_array_equal(*want)
                continue
            assert n.shape == (2, *y.shape) and n.dtype == y.dtype
            # NOTE: a product may add in another order.
            exact = {} if y.dtype.kind in "fc" else {"atol": 0}
            np.testing.assert_allclose(next(got), np.stack(want), **{"rtol": 1e-6, "atol": 1e-9} | exact)


def _other(x, rng):
    """Another value that the same operation takes."""
    if x.dtype == bool:
        return ~x
    if x.dtype.kind in "iu" or rng is None:
        return np.flip(x)
    return x + 0.05 * random(rng, x.shape, x.dtype)
