"""Fit the swing of a damped pendulum to noisy measurements, by Newton's method: with the exact Hessian.

    python examples/physics_fit.py              # a few seconds
    python examples/physics_fit.py --quick      # a short form, for checking that all is well

`lt.hessian` gives the second derivatives of the misfit by amplitude, damping, frequency, phase and rest: Newton's
method needs a handful of steps, and the inverse of the same matrix says how well the data determine each parameter.
`lt.vmap` of that fits many pendulums at once, in one program, and so checks the standard errors.
"""

from __future__ import annotations

import argparse

import numpy as np

import lazyt as lt
from lazyt import Tensor

NAMES = ("amplitude [rad]", "damping [1/s]", "frequency [1/s]", "phase [rad]", "rest [rad]")
TRUE = np.array([0.9, 0.25, 2.7, 0.4, 0.05])
START = np.array([0.7, 0.15, 2.6, 0.2, 0.0])
NOISE = 0.02


def swing(p: Tensor, times: Tensor) -> Tensor:
    """The angle at these times."""
    amplitude, damping, frequency, phase, rest = lt.unstack(p)
    return rest + amplitude * lt.exp(-damping * times) * lt.cos(frequency * times + phase)


def misfit(p: Tensor, times: Tensor, measured: Tensor) -> Tensor:
    """Half the sum of squares over the noise's variance: minus the logarithm of the likelihood."""
    return ((swing(p, times) - measured) ** 2).sum() / (2 * NOISE**2)


gradient, hessian = lt.grad(misfit), lt.hessian(misfit)


def step(p: Tensor, times: Tensor, measured: Tensor, damping: float) -> Tensor:
    """One of Newton's steps, shortened after Levenberg and Marquardt."""
    h = hessian(p, times, measured)
    return p - lt.linalg.solve(h + damping * lt.diag(lt.abs(lt.diagonal(h))), gradient(p, times, measured))


def fit(times: Tensor, measured: Tensor, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """The parameters, and their standard errors."""
    p, damping = lt.asarray(START), 1.0
    value = misfit(p, times, measured).item()
    for turn in range(turns):
        tried = step(p, times, measured, damping)
        new = misfit(tried, times, measured).item()
        print(f"turn {turn:2}  misfit {value:12.3f} -> {new:12.3f}  damping of the step {damping:.0e}")
        if new < value:
            gained, p, value, damping = value - new, tried, new, damping / 10
            if gained < 1e-6 * value:
                break
        else:
            damping *= 10
    return p.numpy(), np.sqrt(np.diag(np.linalg.inv(hessian(p, times, measured).numpy())))


def fit_many(times: Tensor, measured: Tensor, turns: int) -> np.ndarray:
    """The parameters of many pendulums, each measured by itself: Newton's steps for all of them at once."""
    p = lt.broadcast_to(lt.asarray(START), (len(measured), 5))
    for turn in range(turns):
        p = lt.vmap(step, in_axes=(0, None, 0, None))(p, times, measured, 0.1**turn)
        lt.sync()
    return p.numpy()


def plot(measured: np.ndarray, fitted: np.ndarray, width: int = 72, height: int = 15) -> str:
    """Measurements (.) and the fit (o) as text."""
    rows = [[" "] * width for _ in range(height)]
    low, high = measured.min(), measured.max()
    for values, mark in ((measured, "."), (fitted, "o")):
        for i, v in enumerate(values):
            row = round(float((high - v) / (high - low)) * (height - 1))
            rows[min(max(row, 0), height - 1)][i * width // len(values)] = mark
    return "\n".join("".join(r).rstrip() for r in rows)


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter simulation, fewer turns")
    options = parser.parse_args(argv)
    n, turns, many = (40, 12, 20) if options.quick else (200, 25, 1000)
    rng = np.random.default_rng(0)
    times = lt.linspace(0, 8, n, dtype=lt.float64)
    clean = swing(lt.asarray(TRUE), times).numpy()
    measured = clean + NOISE * rng.standard_normal(n)
    p, errors = fit(times, lt.asarray(measured), turns)
    print(plot(measured, swing(lt.asarray(p), times).numpy()))
    others = fit_many(times, lt.asarray(clean + NOISE * rng.standard_normal((many, n))), turns)
    for i, name in enumerate(NAMES):
        spread = others[:, i].std()
        print(f"{name:16} {p[i]:7.3f} +- {errors[i]:.4f}   true {TRUE[i]:6.3f}   spread of {many} fits {spread:.4f}")
    return float(np.max(np.abs(p - TRUE) / errors))


if __name__ == "__main__":
    main()
