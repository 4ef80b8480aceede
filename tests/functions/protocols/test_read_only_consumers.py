"""Compiled code that asks for a writable buffer is given a copy: what docs/ecosystem.md says of it."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt


def test_sosfilt_takes_a_copy_of_its_coefficients() -> None:
    signal = pytest.importorskip("scipy.signal")
    sos, x = signal.butter(4, 0.2, output="sos"), np.linspace(0, 1, 50)
    fixed = sos.copy()
    fixed.flags.writeable = False
    for given in (fixed, lt.asarray(sos)):
        with pytest.raises(ValueError, match="buffer source array is read-only"):
            signal.sosfilt(given, x)
    want = signal.sosfilt(sos, x)
    np.testing.assert_array_equal(signal.sosfilt(lt.asarray(sos).numpy(copy=True), lt.asarray(x)), want)
