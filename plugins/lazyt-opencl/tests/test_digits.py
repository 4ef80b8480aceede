"""The example of lazyt's README learns on the device."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lazyt_opencl.device import Device

TOP = Path(__file__).parents[3]


def test_digits_learns(opencl: Device) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "examples/digits.py", "--device", opencl.name, "--epochs", "1"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(re.findall(r"test accuracy ([\d.]+)%", done.stdout)[-1]) > 50
