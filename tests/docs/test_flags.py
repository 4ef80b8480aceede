"""The flags of LAZYT_DEBUG: what a declaration gives; `python -m tests.docs.test_flags` writes the docs' table anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lazyt import config
from lazyt.config import FLAGS, Flag, cpu, cuda, general, known, read, registers, table
from lazyt.errors import SettingError

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "architecture.md"
TABLE = re.compile(r"^\| word \| what it does \|\n(?:\|.*\n)+", re.M)


def test_the_page_has_the_table_of_the_declarations():
    assert TABLE.findall(PAGE.read_text()) == [table() + "\n"], "write it anew: python -m tests.docs.test_flags"


def test_a_flag_is_declared_once_and_each_word_is_one_flags():
    assert len({f.name for f in FLAGS}) == len(FLAGS)
    assert len(set(known())) == len(known())
    assert {f.name for f in FLAGS} == {*general, *cpu, *cuda, *registers}
    for f in FLAGS:
        assert [f.value(w) for w in f.words if w != "threads-N"] == [
            *(f.values or ([not f.default] if f.name != "threads" else []))
        ]
    for word in ("no-verify", "tile", "width-3", "width-08", "threads-0", "threads-x", "threads-", "no-width"):
        assert all(f.value(word) is None for f in FLAGS), word


def test_a_flag_that_is_declared_is_read_and_listed(monkeypatch):
    more = Flag("new", "general cpu", "nothing new happens")
    monkeypatch.setattr(config, "FLAGS", (*FLAGS, more))
    monkeypatch.setitem(general, "new", True)
    monkeypatch.setitem(cpu, "new", True)
    read("no-new")
    assert not general["new"] and not cpu["new"]
    assert table().endswith("| `no-new` | nothing new happens |")
    with pytest.raises(SettingError, match=r"unknown word 'new'; .* no-new,"):
        read("new")


def test_unknown_switches_are_refused_by_name():
    before = (dict(general), dict(cpu), dict(cuda), dict(registers))
    with pytest.raises(
        SettingError, match=r"unknown word 'no-fus'; there are autotune, guards, interpret, no-adopt, .*width-8"
    ):
        read("no-fuse, no-fus")
    assert before == (general, cpu, cuda, registers)
    environment = {**os.environ, "PYTHONPATH": str(TOP), "LAZYT_DEBUG": "no-interpret"}
    done = subprocess.run(
        [sys.executable, "-c", "import lazyt"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "SettingError: LAZYT_DEBUG: unknown word 'no-interpret'" in done.stderr


def test_a_word_turns_every_switch_of_its_name(monkeypatch):
    for flags in (general, cpu, cuda, registers):
        for name, value in flags.items():
            monkeypatch.setitem(flags, name, value)
    read("no-tile, verify,autotune,width-4,threads-3,")
    assert registers["threads"] == 3
    assert not cpu["tile"] and not cuda["tile"] and general["verify"] and cpu["autotune"] and registers["width"] == 4


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table() + "\n", PAGE.read_text()))
