"""Pairs of operations and of features: what the searches visit, and a sample of each."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazyt.ops import catalog  # noqa: F401 - the table is whole
from lazyt.ops.definition import OPS
from lazyt.testing.seeds import Coverage
from lazyt.testing.statements import Stopped
from tests.support import dual_numbers as dual
from tests.support.fuzz import feature_pairs, operation_pairs, pair_check

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", range(11, 44_000, 4_000))
def test_a_pair_of_operations_has_the_gradients_of_numpy(seed: int) -> None:
    writer = operation_pairs.Program(seed)
    with contextlib.suppress(Stopped):
        failure = operation_pairs.OperationPairs().run(seed, writer, Coverage())
        assert failure is None, f"{writer.lines}: {failure.message}"


@pytest.mark.parametrize("seed", range(7, 3_000, 600))
def test_a_pair_of_features_has_the_gradients_of_dual_numbers(seed: int) -> None:
    writer = feature_pairs.Program(seed)
    with contextlib.suppress(Stopped):
        failure = feature_pairs.check_features(writer.lines)
        assert failure is None, f"{writer.lines}: {failure.message}"


@pytest.mark.slow
def test_a_sample_of_all_pairs_has_the_gradients_of_numpy() -> None:
    command = [sys.executable, "-m", "tests.support.fuzz.pairs", "--count", "256", "--seed", "1000"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_every_differentiable_operation_is_in_a_pair() -> None:
    visited = {u.name for u in operation_pairs.units()}
    left = {
        name
        for name, op in OPS.items()
        if op.differentiable and name not in visited and not name.startswith(operation_pairs.ELSEWHERE)
    }
    assert not left, "an operation needs samples with floating operands, or SPELLED calls"


def test_seeds_in_a_row_visit_each_pair_once() -> None:
    pairs = operation_pairs.pairs()
    names = [u.name for u in pairs.units]
    seen = {(f.name, g.name) for f, g in map(pairs.of, range(1000, 1000 + pairs.total))}
    assert seen == {(f, g) for f in names for g in names}


def test_a_pair_fits_together() -> None:
    writer = operation_pairs.Program(5)
    assert writer.lines[-1].startswith("loss = ")
    assert operation_pairs.check_pair(writer.lines) is None


def test_a_wrong_gradient_is_found() -> None:
    lines = ["x = var((3,), 1)", "m = new(xp.exp(x * 0.1))", "y = half(m)", "loss = total(y, 1)"]
    space = pair_check.space_for

    def wrong(xp: object) -> object:
        names = space(xp)
        names["half"] = lambda m: m if not hasattr(m, "detach") else m * 0.5 + m.detach() * 0.5
        names["np"] = np
        return names

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_check, "space_for", wrong)
        failure = operation_pairs.check_pair(lines)
    assert failure is not None
    assert failure.kind == "pairs, planned whole: gradient"


@pytest.mark.parametrize("lines", [["x = var((3,), 1)"], ["loss = "]])
def test_what_is_no_program_is_no_finding(lines: list[str]) -> None:
    with pytest.raises((SyntaxError, Stopped)):
        operation_pairs.check_pair(lines)


def test_each_feature_is_in_both_meanings() -> None:
    for name in feature_pairs.FEATURES:
        assert callable(getattr(feature_pairs.Features, name)), name
        assert callable(getattr(feature_pairs.Meaning, name)), name


def test_features_are_found_wrong_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_pairs.Features, "hooked", feature_pairs.Features.plain)
    failure = feature_pairs.check_features("model = chain(hooked(dense), read(attention))")
    assert failure is not None
    assert failure.kind == "features, planned whole: gradient"


def test_gradients_of_dual_numbers_are_differences() -> None:
    rng = np.random.default_rng(2)
    x, w = rng.uniform(-1, 1, (3, 4)), rng.uniform(-1, 1, (4, 4))

    def f(x: object, w: object) -> object:
        inner = lambda z: dual.total(dual.tanh(z @ w) * z / (z * z + 1.0))
        g = dual.gradient(inner, x, 0 if isinstance(x, np.ndarray) else 1)
        y, t = dual.pushforward(lambda z: dual.exp(z * 0.3) @ w, g, np.ones((3, 4)), 1)
        return dual.total(y * t + dual.joined([dual.part(g, slice(1, None)), dual.part(g, slice(0, 1))], -2))

    _, (gx, gw) = dual.gradients(lambda xs: f(*xs), [x, w])
    dx, dw = rng.uniform(-1, 1, x.shape), rng.uniform(-1, 1, w.shape)
    h = 1e-5
    ahead, behind = (float(dual.gradients(lambda xs: f(*xs), [x + s * dx, w + s * dw])[0]) for s in (h, -h))
    np.testing.assert_allclose((gx * dx).sum() + (gw * dw).sum(), (ahead - behind) / (2 * h), rtol=1e-7)


def test_scaled_stopped_and_custom_derivatives_of_dual_numbers() -> None:
    x = np.full((1, 1), 2.0)
    meanings = {
        "scaled": (lambda u: dual.scaled(u * u, 3.0), 12.0),
        "stopped": (lambda u: u * dual.stopped(u), 2.0),
        "custom": (lambda u: dual.custom(u, lambda z: z * z, lambda z: z * 5.0), 10.0),
        "forward": (lambda u: dual.pushforward(lambda z: dual.scaled(z, 3.0), u, np.ones((1, 1)), 1)[1] * u, 1.0),
    }
    for name, (f, want) in meanings.items():
        assert dual.gradients(lambda xs, f=f: dual.total(f(xs[0])), [x])[1][0] == want, name
