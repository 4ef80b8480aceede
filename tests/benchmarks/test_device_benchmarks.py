"""The device benchmarks, as far as they go without a GPU: every work runs with lazyt, and a missing GPU is said."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import lazyt as lt
from benchmarks.device import memory
from benchmarks.device.__main__ import measure, run_library, table
from benchmarks.device.libraries import Lazyt
from benchmarks.device.works import WORKS


@pytest.mark.parametrize("work", [w for w in WORKS if "text" in w.makes or "lazyt" in w.makes], ids=lambda w: w.name)
def test_works_run(work: Any) -> None:
    try:
        found = measure(Lazyt("cpu"), work, 4096, 0.001)
        assert found["seconds"] > 0 and found["compile"] >= 0
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


def test_the_limit_of_products_is_the_best_rate_of_the_others() -> None:
    at = {w.name: i for i, w in enumerate(WORKS)}
    own, large = at["matmul 8192^3 tf32"], at["matmul 16384^3 tf32"]
    found = {
        "lazyt": {"version": "1", "works": {own: {"seconds": 0.004}}},
        "torch": {"version": "2", "works": {own: {"seconds": 0.0032}, large: {"seconds": 0.02}}},
        "jax.jit": {"version": "3", "works": {large: {"seconds": 0.024}}},
    }
    lines = {line[:36].strip(): line.split()[-4:] for line in table(found, 4e12, 1)}
    # 20 ms / 8 = 2.5 ms.
    assert lines["matmul 8192^3 tf32"] == ["2.500", "62%", "0.98", "1.25"]
    del found["torch"], found["jax.jit"]
    lines = {line[:36].strip(): line.split()[-4:] for line in table(found, 4e12, 1)}
    assert lines["matmul 8192^3 tf32"] == ["-", "-", "0.98", "-"], "lazyt's own rate is no limit"


@pytest.mark.slow
def test_compiling_is_timed_with_empty_caches_and_from_disk() -> None:
    (i,) = (i for i, w in enumerate(WORKS) if w.name == "GPT step, tf32")
    found = run_library("lazyt", "cpu", ["GPT step, tf32"], 4096, 0.0)
    cold, warm = found["works"][i], found["warm"][i]
    assert cold["compiles"] > 10 and 0 <= warm["compile"] < cold["compile"]
    (line,) = (x for x in table({"lazyt": found}, 0.0, 4096) if x.startswith("compile, "))
    assert line.startswith(f"compile, GPT step, tf32, lazyt: {cold['compiles']} kernels in ") and line.endswith("disk")


def test_without_a_gpu_it_says_so() -> None:
    command = [sys.executable, "-m", "benchmarks.device"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("no GPU to measure on: ")


def test_ways_to_keep_less_run_and_are_compared() -> None:
    try:
        found = {f"lazyt {way}": memory.measure(Lazyt("cpu"), way, 4096, 0.001) for way in ("plain", "least", "L2")}
    finally:
        lt.set_float32_matmul_precision("highest")
    plain, budget, compressed = found.values()
    assert budget["losses"] == plain["losses"]
    assert budget["peak"] < plain["peak"]
    assert compressed["losses"][0] == plain["losses"][0]
    assert memory.row("lazyt budget", budget, plain).startswith("lazyt budget")
    assert memory.row("torch plain", {"failure": "ImportError: none"}, {}).endswith("ImportError: none")
