"""Hamiltonian Monte Carlo: the posterior of a logistic regression, by gradients; every proposal is decided on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Inputs, in_float64, seeded, workload

LEAPS, STEP = 10, 0.02


def _inputs(quick: bool) -> Inputs:
    n, features, samples = (20, 4, 2) if quick else (1000, 20, 10)
    # NOTE: the random numbers are data, so that every library draws the same.
    rng = np.random.default_rng(9)
    x, truth = seeded((n, features), 0), seeded((features,), 1)
    return {
        "x": x,
        "y": (rng.random(n) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32),
        "momenta": seeded((samples, features), 2),
        "uniform": rng.random(samples, np.float32),
    }


def _energy(m: Any, w: Any, x: Any, y: Any) -> Any:
    """Minus the logarithm of the posterior, with a normal prior."""
    z = x @ w
    return (m.logaddexp(0 * z, z) - y * z).sum() + 0.5 * (w * w).sum()


def _slope(m: Any, w: Any, x: Any, y: Any) -> Any:
    """Its gradient by hand."""
    return x.T @ (1 / (1 + m.exp(-(x @ w))) - y) + w


def _leapfrog(gradient: Callable[..., Any], w: Any, p: Any, x: Any, y: Any) -> tuple[Any, Any]:
    p = p - 0.5 * STEP * gradient(w, x, y)
    for i in range(LEAPS):
        w = w + STEP * p
        p = p - (STEP if i < LEAPS - 1 else 0.5 * STEP) * gradient(w, x, y)
    return w, p


def _proposal(m: Any, gradient: Callable[..., Any], w: Any, p: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The weights after all leaps, and the logarithm of the probability to take them."""
    new, q = _leapfrog(gradient, w, p, x, y)
    return new, _energy(m, w, x, y) + 0.5 * (p * p).sum() - _energy(m, new, x, y) - 0.5 * (q * q).sum()


class _Chain:
    """The proposals are decided by `if`, on a number of Python."""

    def __init__(self, peer: Any, inputs: Inputs, gradient: Callable[..., Any]) -> None:
        self.peer, self.m = peer, peer.module
        self.x, self.y, momenta, uniform = inputs.values()
        self.momenta, self.uniform = [peer.array(p) for p in momenta], uniform.tolist()
        self.start = peer.array(np.zeros_like(momenta[0]))
        self.x, self.y = peer.array(self.x), peer.array(self.y)
        self.propose = peer.jit(lambda *xs: _proposal(self.m, gradient, *xs))

    def __call__(self) -> Any:
        w, chain = self.start, []
        for p, u in zip(self.momenta, self.uniform, strict=True):
            new, gained = self.propose(w, p, self.x, self.y)
            if np.log(u) < float(gained):
                w = new
            chain.append(w)
        return self.peer.wait([self.m.stack(chain)])


def _differentiated(peer: Any, inputs: Inputs) -> _Chain:
    functions = peer.module if peer.name == "lazyt" else peer.module.func
    return _Chain(peer, inputs, functions.grad(lambda *xs: _energy(peer.module, *xs)))


def _scan(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    m, jax = peer.module, peer.jax
    arrays = [peer.array(x) for x in inputs.values()]
    gradient = jax.grad(lambda *xs: _energy(m, *xs))

    def run(x: Any, y: Any, momenta: Any, uniform: Any) -> Any:
        def sample(w: Any, drawn: Any) -> Any:
            p, u = drawn
            new, gained = _proposal(m, gradient, w, p, x, y)
            w = m.where(m.log(u) < gained, new, w)
            return w, w

        return jax.lax.scan(sample, m.zeros(x.shape[1]), (momenta, uniform))[1]

    f = peer.compile(run)
    return lambda: peer.wait([f(*arrays)])


class _Exact:
    """NumPy for the reference, which leaves float64 as it is."""

    name, module = "numpy", np
    array = jit = wait = staticmethod(lambda x: x)


def _by_hand(peer: Any, inputs: Inputs) -> _Chain:
    return _Chain(peer, inputs, lambda *xs: _slope(np, *xs))


def _reference(inputs: Inputs) -> Sequence[Array]:
    return _by_hand(_Exact, in_float64(inputs))()


workload(
    name="hmc",
    what=f"10 samples of Hamiltonian Monte Carlo ({LEAPS} leaps each) for a logistic regression of 1,000 x 20",
    inputs=_inputs,
    reference=_reference,
    builds={
        **dict.fromkeys(("lazyt", "torch", "torch.compile"), _differentiated),
        "jax": _scan,
        "numpy": _by_hand,
    },
    rtol=1e-3,
    atol=1e-3,
)
