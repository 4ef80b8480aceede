"""The first mention of a plugin may be an attribute of a tensor, whatever its distribution is called."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lazyt.backends import plugin_names
from tests.support.plugin_folders import distribution

TOP = Path(__file__).parents[2]
# Which entry points an import reads, and what tensors have then.
PROGRAM = """
import sys
read = []

def look(event, args):
    if event == "open" and "entry_points" in str(args[0]):
        read.append(args[0])

sys.addaudithook(look)
sys.path.insert(0, {folder!r})
import {module} as _  # so that Python has listed the folder
del sys.modules[{module!r}]
import lazyt as lt
assert "importlib.metadata" not in sys.modules
print(len(read), hasattr(lt.Tensor, "npu"), {module!r} in sys.modules)
{then}
"""
USE = """
x = lt.ones(2)
print(x.is_npu, x.npu().device, x.npu().is_npu)
try:
    x.tpu()
except AttributeError as e:
    print(e)
"""


@pytest.fixture
def run(tmp_path):
    """Run a program beside a distribution `acme` with the plugin `npu`, and a cache of its own."""
    folder = distribution(tmp_path / "site", "npu", dist="acme")

    def program(then: str = "", **environment: str) -> list[str]:
        text = PROGRAM.format(folder=str(folder), module="plugin_acme", then=then)
        env = {**os.environ, "LAZYT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(TOP), **environment}
        done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return program


def test_a_tensor_has_its_name_at_the_first_mention(run):
    shown = run(USE)
    assert shown[1:] == ["False npu True", "'Tensor' object has no attribute 'tpu'"]
    read, *rest = shown[0].split()
    assert int(read) > 1 and rest == ["True", "False"]
    # The second process reads no entry points.
    assert run(USE)[0] == "0 True False"


def test_it_is_not_looked_for_where_plugins_are_switched_off(run):
    assert run(LAZYT_BACKEND_AUTOLOAD="0") == ["0 False False"]


def test_without_a_place_to_keep_names_only_those_of_lazyt_are_read(run):
    for directory in ("", str(Path(__file__) / "no-directory")):
        _, has, _ = run(LAZYT_CACHE_DIR=directory)[0].split()
        assert has == "False"


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """A folder that Python has listed, and the file where names are kept."""
    folder = distribution(tmp_path / "site", "npu", dist="acme")
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path / "cache"))

    def look() -> list[str]:
        monkeypatch.setattr(sys, "path_importer_cache", {})
        finder = sys.path_hooks[-1](str(folder))
        finder.find_spec("nothing")
        monkeypatch.setitem(sys.path_importer_cache, str(folder), finder)
        return plugin_names.expected()

    return folder, tmp_path / "cache" / plugin_names.FILE, look


def test_a_folder_that_has_changed_is_read_again(listed):
    folder, file, look = listed
    assert look() == ["npu"]
    kept = file.read_text()
    distribution(folder, "tpu", dist="other")
    os.utime(folder, (1, 1))
    assert look() == ["npu", "tpu"]
    assert file.read_text() != kept


@pytest.mark.parametrize("text", [b"\xff\xfe", b"nonsense\n", b"a\tb\n\n\t\t\t\t\n", b""])
def test_a_file_that_is_damaged_is_replaced(listed, text):
    _, file, look = listed
    file.parent.mkdir()
    file.write_bytes(text)
    assert look() == ["npu"]
    assert file.read_text().endswith("npu\n")
    assert look() == ["npu"]


def test_names_that_are_no_names_or_taken_add_nothing(listed, monkeypatch):
    import lazyt as lt
    from lazyt.runtime import device_names

    _, file, look = listed
    look()
    file.write_text(file.read_text().replace("npu\n", "sum not-a-name\n"))
    assert look() == ["sum", "not-a-name"]
    before = lt.Tensor.sum
    for name in look():
        device_names.announce(name)
    assert lt.Tensor.sum is before
    assert not hasattr(lt.Tensor, "not-a-name")
