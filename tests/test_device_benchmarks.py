"""The device benchmarks, as far as they go without a GPU: every work runs with lazyt, and a missing GPU is said."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import lazyt as lt
from benchmarks.device.__main__ import measure, table
from benchmarks.device.libraries import Lazyt
from benchmarks.device.works import WORKS


@pytest.mark.parametrize("work", WORKS, ids=lambda w: w.name)
def test_works_run(work: Any) -> None:
    try:
        found = measure(Lazyt("cpu"), work, 4096, 0.001)
        assert found["seconds"] > 0
    finally:
        lt.set_float32_matmul_precision("highest")


def test_the_table_says_what_failed_and_what_is_missing() -> None:
    found = {
        "lazyt": {"version": "1", "works": {0: {"seconds": 0.002, "first": 2.5}, 1: {"failure": "Error: why"}}},
        "torch": {"version": "2", "works": {0: {"seconds": 0.001, "first": 0.1}}},
        "cupy": {"missing": "ImportError: none"},
    }
    lines = table(found, 4e12, 1)
    assert lines[1].split()[-4:] == ["0.537", "27%", "0.90", "2.00"]
    assert any(line.startswith("FAILED lazyt: sum") and line.endswith("Error: why") for line in lines)
    assert "left out cupy: ImportError: none" in lines
    assert any("tanh-GELU chain, 256M 2.5 s" in line for line in lines)


def test_without_a_gpu_it_says_so() -> None:
    command = [sys.executable, "-m", "benchmarks.device"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("no GPU to measure on: ")
