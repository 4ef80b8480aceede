"""The benchmark of bfloat16 beside float32 runs, and prints what it should."""

from __future__ import annotations

import pytest

from benchmarks import halves


@pytest.mark.slow
def test_a_row_of_small_products(capfd):
    assert halves.main(["--quick", "--only", "product 512", "--threads", "1"]) == 0
    out = capfd.readouterr().out
    assert "multipl" in out.splitlines()[0]
    assert "lazyt  float32" in out


def test_a_line_has_the_ratio_and_the_rate():
    found = halves.line_of("mlp step", "torch", {"float32": 2e-3, "medium": 1.5e-3, "bfloat16": 1e-3, "flops": 4e9})
    assert "ratio  0.50" in found
    assert "4000.0 GFLOP/s" in found
