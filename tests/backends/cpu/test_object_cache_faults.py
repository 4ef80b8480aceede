"""Whatever is wrong with the object cache, with threads or with memory, code is compiled and the sync is right."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import object_cache
from lazyt.backends.cpu import address_space, engine, parallel_compile
from lazyt.backends.cpu.library import sorting
from lazyt.backends.cuda import engine as cuda_engine
from lazyt.config import general

KEYS = ["ab" * 32, "cd" * 32]

# A program with two modules of its own at least; prints its value, and what the cache did.
PROGRAM = """
import warnings, sys
import numpy as np
import lazyt as lt
from lazyt.backends import object_cache
from lazyt.backends.cpu import engine
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    x = lt.asarray(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
    print(float((x * 0.75).sum()), float((x * x).max()))
print(engine.counters.compiles, engine.counters.disk_hits, object_cache.default_cache().damaged, len(told))
for w in told:
    print(w.category.__name__, w.message)
"""


def run(directory: Path | str, before: str = "", **more: str) -> tuple[str, list[int], list[str]]:
    """What PROGRAM says with this cache: its value, (compiles, hits, files refused, warnings), the warnings."""
    environment = {**os.environ, "LAZYT_CACHE_DIR": str(directory), "LAZYT_DEBUG": "no-tiers,no-first", **more}
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    value, counts, *told = done.stdout.splitlines()
    return value, [int(n) for n in counts.split()], told


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache with the code of PROGRAM, and its value."""
    directory = tmp_path_factory.mktemp("filled") / "c"
    value, (compiles, hits, damaged, told), _ = run(directory)
    assert compiles > 1 and not hits and not damaged and not told
    assert run(directory)[:2] == (value, [0, compiles, 0, 0])
    return directory, value


def copied(filled: tuple[Path, str], to: Path) -> tuple[Path, list[Path]]:
    shutil.copytree(filled[0], to / "c")
    return to / "c", sorted((to / "c").glob("*.o"))


def _spoilt(contents: list[bytes], i: int) -> bytes:
    """What another program's file has, a part, one byte more."""
    content = contents[i]
    return [contents[i - 1], content[: len(content) // 2], content + b"\0"][i % 3]


@pytest.mark.slow
def test_files_that_do_not_match_are_misses_and_are_replaced(filled, tmp_path) -> None:
    directory, files = copied(filled, tmp_path)
    contents = [p.read_bytes() for p in files]
    for i, path in enumerate(files):
        path.write_bytes(_spoilt(contents, i))
    n = len(files)
    assert run(directory) == (filled[1], [n, 0, n, 0], [])
    assert run(directory) == (filled[1], [0, n, 0, 0], [])
    assert [p.read_bytes() for p in sorted(directory.glob("*.o"))] == contents


@pytest.mark.parametrize("size", [0, 5, 8, 30, 40, 41, 43])
def test_a_part_of_a_file_is_a_miss(tmp_path, size) -> None:
    cache = object_cache.ObjectCache(tmp_path / "c")
    for data in (b"code", b""):
        cache.store(KEYS[0], data)
        path = tmp_path / "c" / f"{KEYS[0]}.o"
        path.write_bytes(path.read_bytes()[: min(size, 39 + len(data))])
        assert cache.load(KEYS[0]) is None
    assert cache.damaged == 2


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(object_cache, "LARGEST", 100)
    cache = object_cache.ObjectCache(tmp_path / "c")
    cache.store(KEYS[0], bytes(100))
    cache.store(KEYS[1], bytes(101))
    assert cache.load(KEYS[0]) == bytes(100) and KEYS[1] not in cache and cache.writes
    with open(tmp_path / "c" / f"{KEYS[0]}.o", "r+b") as f:
        f.truncate(1 << 40)  # takes no disk
    assert cache.load(KEYS[0]) is None and cache.damaged == 1 and KEYS[0] not in cache


def test_a_whole_file_under_another_name_is_a_miss(tmp_path) -> None:
    """The CUDA backend keeps its objects in the same cache."""
    assert cuda_engine.object_cache is object_cache
    cache = object_cache.ObjectCache(tmp_path / "c")
    for key in KEYS:
        cache.store(key, b"code of " + key.encode())
    (tmp_path / "c" / f"{KEYS[0]}.o").replace(tmp_path / "c" / f"{KEYS[1]}.o")
    assert cache.load(KEYS[1]) is None and cache.damaged == 1
    cache.store(KEYS[1], b"again")
    assert cache.load(KEYS[1]) == b"again"


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_files_that_others_may_write_are_not_loaded(filled, tmp_path) -> None:
    directory, files = copied(filled, tmp_path)
    for path, mode in zip(files, [0o620, 0o602, 0o666] * len(files), strict=False):
        path.chmod(mode)
    n = len(files)
    value, counts, told = run(directory)
    assert (value, counts) == (filled[1], [n, 0, n, 1])
    assert "LazytCacheWarning" in told[0] and "of the object cache is not used: others may write to it" in told[0]
    assert all(p.stat().st_mode & 0o022 == 0 for p in directory.glob("*.o"))
    assert run(directory) == (filled[1], [0, n, 0, 0], [])


@pytest.mark.skipif(os.name != "posix", reason="POSIX files")
def test_what_is_no_file_of_its_own_is_not_read(tmp_path) -> None:
    """A link, a pipe (which would be waited for), a directory."""
    cache = object_cache.ObjectCache(tmp_path / "c")
    for key in KEYS:
        cache.store(key, b"code")
    elsewhere = tmp_path / "elsewhere"
    places = [tmp_path / "c" / f"{key}.o" for key in (*KEYS, "ef" * 32)]
    places[0].rename(elsewhere)
    places[0].symlink_to(elsewhere)
    places[1].unlink()
    os.mkfifo(places[1])
    places[2].mkdir()
    with pytest.warns(object_cache.LazytCacheWarning) as told:
        assert [cache.load(p.stem) for p in places] == [None] * 3
    assert len(told) == 1 and cache.damaged == 3
    cache.store(KEYS[0], b"again")
    assert cache.load(KEYS[0]) == b"again" and elsewhere.read_bytes().endswith(b"code")


def test_a_file_that_cannot_be_read_is_a_miss(tmp_path, monkeypatch) -> None:
    cache = object_cache.ObjectCache(tmp_path / "c")
    cache.store(KEYS[0], b"code")
    real = os.open

    def refuses(path: Any, *rest: Any) -> int:
        if str(path).endswith(".o"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuses)
    with pytest.warns(object_cache.LazytCacheWarning, match="Input/output error"):
        assert cache.load(KEYS[0]) is None
    monkeypatch.undo()
    cache.store(KEYS[0], b"code")
    assert cache.load(KEYS[0]) == b"code"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_where_nothing_can_be_written_what_is_there_is_read(tmp_path, monkeypatch, number) -> None:
    """A full disk, a read-only one, a directory without permission, a quota."""
    cache = object_cache.ObjectCache(tmp_path / "c")
    cache.store(KEYS[0], b"code")

    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    if number == errno.ENOSPC:
        monkeypatch.setattr(os, "replace", refuses)
    else:
        monkeypatch.setattr(tempfile, "mkstemp", refuses)
    with pytest.warns(object_cache.LazytCacheWarning, match="nothing more is written to the object cache"):
        cache.store(KEYS[1], b"more")
    cache.store(KEYS[1], b"more")  # without another warning
    assert cache.load(KEYS[0]) == b"code" and cache.load(KEYS[1]) is None
    assert [p.name for p in (tmp_path / "c").iterdir()] == [f"{KEYS[0]}.o"], "no temporary file is left"


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE")
def test_a_disk_that_fills_up_while_a_file_is_written(filled, tmp_path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    value, (compiles, hits, damaged, told), text = run(tmp_path / "c", before)
    assert (value, hits, damaged, told) == (filled[1], 0, 0, 1) and compiles > 1
    assert "nothing more is written" in text[0] and "File too large" in text[0]
    assert {p.name for p in (tmp_path / "c").iterdir()} <= {"plugins.txt"}  # a few bytes, see plugin_names


def test_the_directory_is_made_again_when_it_was_deleted(tmp_path) -> None:
    cache = object_cache.ObjectCache(tmp_path / "gone")
    assert cache.load(KEYS[0]) is None
    for key in KEYS:
        shutil.rmtree(tmp_path / "gone")
        cache.prune()
        assert key not in cache and cache.load(key) is None
        cache.store(key, b"code")
        assert cache.load(key) == b"code"
    assert (tmp_path / "gone").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_directory_that_cannot_be_made_again_turns_it_off(tmp_path) -> None:
    cache = object_cache.ObjectCache(tmp_path / "gone")
    cache.store(KEYS[0], b"code")
    shutil.rmtree(tmp_path / "gone")
    (tmp_path / "gone").write_text("a file")
    with pytest.warns(object_cache.LazytCacheWarning):
        cache.store(KEYS[0], b"code")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store(KEYS[0], b"code")
        assert cache.load(KEYS[0]) is None


def test_no_place_for_temporary_files_and_no_home(filled, tmp_path) -> None:
    before = (
        "import tempfile\n"
        "def none(): raise FileNotFoundError('No usable temporary directory found')\n"
        "tempfile.gettempdir = tempfile._get_default_tempdir = none\n"
    )
    value, (compiles, *_), told = run(tmp_path / "c", before, TMPDIR="/nonexistent")
    assert value == filled[1] and not told
    assert run(tmp_path / "c", before, TMPDIR="/nonexistent")[1] == [0, compiles, 0, 0]


WRITER = """
import sys
from lazyt.backends import object_cache
cache = object_cache.ObjectCache(sys.argv[1], limit=40_000)
keys = [f"{k % 2:08x}".ljust(64, str(k)) for k in range(8)]  # every second one prunes
for turn in range(60):
    for k, key in enumerate(keys):
        found = cache.load(key)
        assert found in (None, bytes([k]) * 9000), key
        cache.store(key, bytes([k]) * 9000)
assert not cache.damaged and cache.writes
"""


def test_two_processes_that_write_read_and_prune(tmp_path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path / "c")]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, text = process.communicate(timeout=120)
        assert process.returncode == 0, text
    assert not list((tmp_path / "c").glob("*.tmp"))


# Without threads


class _Refused(threading.Thread):
    """A system that has no more threads: after so many, none."""

    left = 0

    def start(self) -> None:
        if type(self).left <= 0:
            raise RuntimeError("can't start new thread")
        type(self).left -= 1
        super().start()


@pytest.mark.parametrize("left", [0, 1])
def test_without_threads_the_compile_goes_on_with_fewer(monkeypatch, tmp_path, left) -> None:
    monkeypatch.setattr(_Refused, "left", left)
    monkeypatch.setattr(parallel_compile, "Helper", _Refused)
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
    # Step by step it would run by plans of one operation each, which other tests may have left behind.
    monkeypatch.setitem(general, "tiers", False)
    lt.set_num_threads(3)
    compiles = engine.counters.compiles
    x = lt.asarray(np.linspace(0, 1, 60_000, dtype=np.float32).reshape(200, 300))
    y = lt.sin(x * (0.5 + left)) @ lt.cos(x).T + (lt.arctan, lt.arcsinh)[left](lt.log1p(x)).sum(1)
    want = np.sin(x.numpy() * np.float32(0.5 + left)) @ np.cos(x.numpy()).T + (np.arctan, np.arcsinh)[left](
        np.log1p(x.numpy())
    ).sum(1)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4)
    assert engine.counters.compiles > compiles
    rows = np.random.default_rng(0).normal(size=(8, 50_000))
    np.testing.assert_array_equal(lt.sort(lt.asarray(rows), axis=1).numpy(), np.sort(rows, axis=1))


def test_rows_are_sorted_by_whoever_is_there(monkeypatch) -> None:
    monkeypatch.setattr(_Refused, "left", 1)
    monkeypatch.setattr(sorting, "Helper", _Refused)
    done: list[slice] = []
    sorting._together([slice(i, i + 1) for i in range(5)], done.append)
    assert sorted(s.start for s in done) == [0, 1, 2, 3, 4]


# Without memory

TIGHT = """
import os, re, resource, sys, traceback
import numpy as np
import lazyt as lt
lt.set_num_threads(2)
x = lt.asarray(np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64))
if sys.argv[1] == "warm":
    float((x + 1).sum())

def size():
    return int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

def compute(extra):
    y = lt.softmax(x @ x, axis=-1) * lt.tanh(x)
    resource.setrlimit(resource.RLIMIT_AS, (size() + int(extra * (1 << 20)), resource.RLIM_INFINITY))
    said = "computed"
    try:
        y.numpy()
    except MemoryError:  # lt.OutOfMemory, or Python's own where none is left to make that one
        said = "refused"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    v = x.numpy()
    s = np.exp(v @ v - (v @ v).max(-1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), s / s.sum(-1, keepdims=True) * np.tanh(v), rtol=1e-4)
    print(said, flush=True)

# NOTE: an import without a megabyte meets faults of Python's own (SystemError: error return without exception set), and
# a cold process imports what it plans with.
for extra in (0.5, 4, 12, 20, 400) if sys.argv[1] == "warm" else (8, 12, 20, 100, 400):
    child = os.fork()
    if not child:
        try:
            compute(extra)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, extra
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc")
@pytest.mark.parametrize("warm", ["warm", "cold"])
def test_little_address_space_is_an_error_that_can_be_tried_again(warm) -> None:
    """Each in a process of its own, because LLVM ends one in which it gets no memory."""
    environment = {**os.environ, "LAZYT_CACHE_DIR": "", "LAZYT_DEBUG": "no-tiers,no-first"}
    done = subprocess.run([sys.executable, "-c", TIGHT, warm], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said[0] == "refused" and said[-1] == "computed" and len(said) == 5, said


def test_address_space_is_reserved_and_released() -> None:
    assert address_space.available(1 << 20)
    assert not address_space.available(1 << 60)
    with pytest.raises(lt.OutOfMemory, match=r"compiling f: the system has no 1099511627776 MB"):
        address_space.require(1 << 60, "compiling f")
