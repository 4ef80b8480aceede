"""Altered files of every format that is read: StateError or a miss, within 400 MiB, and no crash."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.support import damaged_files
from tests.support.damaged_files import FORMATS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
HERE = [f for f in FORMATS if f != "safetensors" or importlib.util.find_spec("safetensors") is not None]


def test_some_altered_files_of_every_format_are_refused():
    status, said = damaged_files.run(HERE, 200, seed=43)
    assert status == 0, said
    assert said.count('"files": 200') == len(HERE)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_many_altered_files_are_refused(name):
    status, said = damaged_files.run([name], 10_000, seed=44)
    assert status == 0, said


def test_a_fault_of_a_reader_is_found(monkeypatch, capsys):
    def read(rng, n):
        if n == 3:
            raise ValueError("not a StateError")
        return "loaded"

    monkeypatch.setitem(damaged_files.READ, "pt", lambda: read)
    monkeypatch.setattr(damaged_files, "MEMORY", 8 << 30)
    assert damaged_files.work(["pt"], 5, seed=0) == 1
    assert "pt, file 3 of seed 0" in capsys.readouterr().out
