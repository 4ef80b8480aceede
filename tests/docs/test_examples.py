"""The examples run as a user would run them, learn what they say they learn, and stop planning and compiling."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def output(*command: str) -> str:
    """What `python COMMAND` prints; warnings are errors."""
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], cwd=TOP, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    """Every number that the pattern's group finds."""
    return [float(x) for x in re.findall(pattern, text)]


@pytest.mark.slow
def test_digits_in_short():
    text = output("examples/digits.py", "--quick")
    assert numbers(r"test accuracy ([\d.]+)%", text)[-1] > 75
    assert numbers(r"syncs, (\d+) plans", text)[0] <= 2
    assert "last sync: sync()" in text


@pytest.mark.slow
def test_digits_reaches_98_percent():
    pytest.importorskip("sklearn")
    text = output("examples/digits.py")
    assert numbers(r"test accuracy ([\d.]+)%", text)[-1] >= 98
    assert numbers(r"syncs, (\d+) plans", text)[0] <= 2


@pytest.mark.slow
def test_sine_waves_in_short():
    text = output("examples/sine_waves.py", "--quick")
    losses = numbers(r"loss ([\d.]+)", text)
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.45
    assert "*" in text.partition("steps ahead")[2]


@pytest.mark.slow
def test_chargpt_in_short():
    text = output("examples/chargpt.py", "--quick")
    losses = numbers(r"validation ([\d.]+) nats", text)
    assert losses[-1] < 3.5
    assert losses == sorted(losses, reverse=True)
    # The step that adds to gradients has equal turns, one a parameter, and is divided between them.
    assert numbers(r"training steps, (\d+) plans", text)[0] <= 8
    assert "plan      known" in text
    assert numbers(r"one character at a time \((\d+) plans\)", text)[0] <= 2


@pytest.mark.slow
def test_chargpt_in_mixed_precision():
    """Losses are within a percent of float32's, and few more plans are made."""
    found = {}
    for dtype in ("", "bfloat16", "float16"):
        text = output("examples/chargpt.py", "--steps", "10", *(["--amp", dtype] if dtype else []))
        found[dtype] = numbers(r"validation ([\d.]+) nats", text)[-1]
        assert numbers(r"training steps, (\d+) plans", text)[0] <= 10
    for dtype in ("bfloat16", "float16"):
        assert abs(found[dtype] - found[""]) < 0.01 * found[""], found


@pytest.mark.slow
def test_per_sample_gradients_in_short():
    pytest.importorskip("sklearn")
    text = output("examples/per_sample_gradients.py", "--quick")
    assert numbers(r"digits right: ([\d.]+)%", text)[-1] > 75
    assert numbers(r"(\d+)% have a wrong label", text)[0] > 60


@pytest.mark.slow
def test_physics_fit_in_short():
    text = output("examples/physics_fit.py", "--quick")
    values = numbers(r"-> +([\d.]+)", text)
    assert values[-1] == min(values) < 30
    for spread, error in zip(numbers(r"fits ([\d.]+)", text), numbers(r"\+- ([\d.]+)", text), strict=True):
        assert 0.5 < spread / error < 2


@pytest.mark.slow
def test_vae_in_short():
    text = output("examples/vae.py", "--quick")
    losses = numbers(r"unseen: ([\d.]+) nats", text)
    assert losses[-1] < losses[0] < 30
    assert numbers(r"training steps, (\d+) plans", text)[0] <= 2
    assert text.count("@") > 50


@pytest.mark.slow
def test_resnet_in_short():
    text = output("examples/resnet.py", "--quick")
    losses = numbers(r"loss ([\d.]+)", text)
    assert losses[-1] < losses[0] and numbers(r"unseen right +([\d.]+)%", text)[-1] > 20
    assert numbers(r"training steps, (\d+) plans", text)[0] <= 2
    assert text.count("%%") > 50


@pytest.mark.slow
def test_gan_in_short():
    text = output("examples/gan.py", "--quick")
    assert numbers(r"the last 50 steps: (\d+) plans made", text) == [0]
    assert numbers(r"after: ([\d.]+)", text)[0] < numbers(r"before: ([\d.]+)", text)[0]


@pytest.mark.slow
def test_policy_gradient_in_short():
    text = output("examples/policy_gradient.py", "--quick")
    assert numbers(r"planned anew after the tenth: (\d+)", text) == [0]
    first, last = numbers(r"([\d.]+) of 200 steps", text)
    assert last > 2 * first


def test_first_session():
    """A process of its own: what is said of plans depends on the programs seen before."""
    output("-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE", "docs/tutorials/first-session.md")


@pytest.mark.slow
def test_denoise_in_short():
    text = output("examples/denoise.py", "--quick")
    assert numbers(r"filtered +([\d.]+)", text)[-1] < 0.5 * numbers(r"noisy ([\d.]+)", text)[-1]
