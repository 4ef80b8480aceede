"""The machine-facing part of the CPU backend: engines, object cache, threads, programs."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from lazyt.backends import object_cache
from lazyt.backends.cpu import engine, memory, thread_pool, thread_pool_ir
from lazyt.errors import LazytInternalError
from tests.support.small_programs import ADD, NO_CACHE, add_program, compiled

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "objects"))


def constant(value: int) -> str:
    return f"define i64 @NAME() nounwind {{\n  ret i64 {value}\n}}\n"


def call(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)()


class TestEngine:
    def test_compiles_and_runs(self):
        module, address = compiled(constant(41))
        assert call(address) == 41
        assert "ret i64 41" in module.ir
        assert "41" in module.assembly() and "ret" in module.assembly()
        assert engine.host_features() and all(" " not in name for name in engine.host_features())

    def test_same_text_is_the_same_module(self):
        first, _ = compiled(constant(42))
        compiles, hits = engine.counters.compiles, engine.counters.memory_hits
        second, _ = compiled(constant(42))
        assert first is second
        assert (engine.counters.compiles, engine.counters.memory_hits) == (compiles, hits + 1)

    def test_code_of_a_dropped_module_is_used_again(self):
        # Loading it twice into one engine would define its symbols twice.
        compiled(constant(43))
        compiles = engine.counters.compiles
        assert call(compiled(constant(43))[1]) == 43
        assert engine.counters.compiles == compiles

    def test_generation_goes_with_its_last_module(self, monkeypatch):
        monkeypatch.setattr(engine, "GENERATION_OBJECTS", 2)
        monkeypatch.setattr(engine._loader, "_current", None)
        modules = [compiled(constant(100 + i))[0] for i in range(5)]
        generations = [weakref.ref(module._generation) for module in modules]
        assert [*map(generations.index, generations)] == [0, 0, 2, 2, 4]
        del modules
        gc.collect()
        # The last one is not full, and takes the next object.
        assert [ref() is not None for ref in generations] == [False] * 4 + [True]
        assert call(compiled(constant(100))[1]) == 100

    @pytest.mark.parametrize(
        ("text", "names", "message"),
        [
            ("define void @bad() { ret i32 0 }", ["bad"], "LLVM rejects the IR of bad"),
            (constant(1), ["other"], "the module defines no function other"),
            (
                ("declare void @no_such()\ndefine void @calls() {\n  call void @no_such()\n  ret void\n}\n"),
                ["calls"],
                "the code of calls calls what this process does not have: no_such",
            ),
        ],
    )
    def test_what_llvm_would_die_of_is_an_error(self, text, names, message):
        with pytest.raises(LazytInternalError, match=message):
            engine.compile_module(text, names, cache=NO_CACHE)

    def test_one_name_two_texts(self):
        texts = [f"define i64 @clash() nounwind {{\n  ret i64 {i}\n}}\n" for i in range(2)]
        kept = engine.compile_module(texts[0], ["clash"], cache=NO_CACHE)
        with pytest.raises(LazytInternalError, match="two modules define clash"):
            engine.compile_module(texts[1], ["clash"], cache=NO_CACHE)
        assert call(kept.address("clash")) == 0

    def test_elf_symbols_of_other_formats(self):
        assert engine.elf_symbols(b"\xcf\xfa\xed\xfe") is None


KEY = "ab" * 32


class TestObjectCache:
    def test_round_trip_and_privacy(self, tmp_path):
        cache = object_cache.ObjectCache(tmp_path / "a" / "b")
        assert cache.load(KEY) is None
        cache.store(KEY, b"code")
        assert cache.load(KEY) == b"code"
        assert object_cache.ObjectCache(tmp_path / "a" / "b").load(KEY) == b"code"
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
        assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [f"{KEY}.o"]

    @pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
    def test_damaged_file_is_a_miss(self, tmp_path, damage):
        cache = object_cache.ObjectCache(tmp_path / "c")
        cache.store(KEY, b"code" * 100)
        path = tmp_path / "c" / f"{KEY}.o"
        blob = path.read_bytes()
        flipped = blob[:-1] + bytes([blob[-1] ^ 1])
        path.write_bytes({"flip": flipped, "cut": blob[:60], "empty": b"", "other": b"x" * 99}[damage])
        assert cache.load(KEY) is None
        assert cache.damaged == 1
        assert not path.exists()
        cache.store(KEY, b"again")
        assert cache.load(KEY) == b"again"

    def test_damaged_object_is_compiled_again(self, tmp_path):
        cache = object_cache.ObjectCache(tmp_path / "c")
        host = engine.host()
        module, _ = compiled(constant(7001), cache)
        (path,) = (tmp_path / "c").iterdir()
        assert path.name == f"{object_cache.make_key(module.ir, *host.fingerprint)}.o"
        good = path.read_bytes()
        path.write_bytes(good[:-8] + b"\0" * 8)
        compiles = engine.counters.compiles
        engine._object_code(path.stem, module.ir, ["f"], cache)
        assert engine.counters.compiles == compiles + 1
        assert path.read_bytes() == good
        hits = engine.counters.disk_hits
        engine._object_code(path.stem, module.ir, ["f"], cache)
        assert engine.counters.disk_hits == hits + 1

    @pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
    def test_directory_that_others_may_write(self, tmp_path, mode):
        directory = tmp_path / "open"
        directory.mkdir()
        directory.chmod(mode)
        (directory / f"{KEY}.o").write_bytes(b"evil")
        cache = object_cache.ObjectCache(directory)
        with pytest.warns(object_cache.LazytCacheWarning, match="others may write to it") as caught:
            assert cache.load(KEY) is None
        cache.store(KEY, b"code")
        assert cache.load(KEY) is None and cache.directory is None
        assert len(caught) == 1
        assert (directory / f"{KEY}.o").read_bytes() == b"evil"

    @pytest.mark.skipif(not hasattr(os, "getuid"), reason="user ids")
    def test_directory_and_file_of_another_user(self, tmp_path, monkeypatch):
        used = object_cache.ObjectCache(tmp_path / "mine")
        used.store(KEY, b"code")
        mine = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        with pytest.warns(object_cache.LazytCacheWarning, match=f"it belongs to user {mine}"):
            assert object_cache.ObjectCache(tmp_path / "mine").load(KEY) is None
        # The directory was checked before; the file's owner is checked on every load.
        with pytest.warns(object_cache.LazytCacheWarning, match=f"{KEY}.o of the object cache is not used: it belongs"):
            assert used.load(KEY) is None
        assert used.damaged == 1

    def test_not_a_directory(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        for path in (tmp_path / "file", tmp_path / "file" / "below"):
            cache = object_cache.ObjectCache(path)
            with pytest.warns(object_cache.LazytCacheWarning, match="is not used: .*compiled anew"):
                cache.store(KEY, b"code")
            assert cache.load(KEY) is None

    def test_default_directory(self, monkeypatch, tmp_path):
        monkeypatch.setenv("LAZYT_CACHE_DIR", "")
        assert object_cache.default_directory() is None
        assert object_cache.default_cache().directory is None
        monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
        assert object_cache.default_directory() == tmp_path
        assert object_cache.default_cache() is object_cache.default_cache()
        monkeypatch.delenv("LAZYT_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert object_cache.default_directory() == tmp_path / "xdg" / "lazyt"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert object_cache.default_directory() == tmp_path / ".cache" / "lazyt"

    def test_key_separates_its_parts(self):
        assert object_cache.make_key("ab", "c") != object_cache.make_key("a", "bc")

    def test_prune_keeps_the_recently_used(self, tmp_path):
        cache = object_cache.ObjectCache(tmp_path / "p", limit=5000)
        keys = [f"{i:08x}".ljust(64, "0") for i in range(1, 11)]  # none of them prunes when stored
        for age, key in enumerate(keys):
            cache.store(key, b"x" * 960)
            then = time.time() - 100_000 + age
            os.utime(tmp_path / "p" / f"{key}.o", (then, then))
        stale = tmp_path / "p" / ".old.tmp"
        stale.write_bytes(b"")
        os.utime(stale, (1, 1))
        assert cache.load(keys[0]) is not None  # used again just now
        cache.prune()
        left = {path.stem for path in (tmp_path / "p").iterdir()}
        assert left == {keys[0], keys[8], keys[9]}

    def test_concurrent_writers_and_readers(self, tmp_path):
        seen: list[bytes | None] = []

        def work() -> None:
            cache = object_cache.ObjectCache(tmp_path / "many")
            for _ in range(50):
                cache.store(KEY, b"code" * 5000)
                seen.append(cache.load(KEY))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(seen) == 200 and set(seen) == {b"code" * 5000}
        assert [path.name for path in (tmp_path / "many").iterdir()] == [f"{KEY}.o"]

    def test_second_process_hits(self, tmp_path):
        script = (
            "from lazyt.backends.cpu import engine, thread_pool\n"
            "thread_pool.Program([], [], [], 0).run()\n"
            "print(engine.counters.compiles, engine.counters.disk_hits)\n"
        )
        env = os.environ | {"LAZYT_CACHE_DIR": str(tmp_path / "shared"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script]
        # Two that start at once and may both compile, then one that finds what they left.
        both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        counts = [tuple(map(int, process.communicate(timeout=60)[0].split())) for process in both]
        assert [sum(count) for count in counts] == [1, 1]
        assert any(count == (1, 0) for count in counts)
        third = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert third.stdout.split() == ["0", "1"]


KEPT = compiled(ADD)[0]  # programs hold addresses only


@pytest.fixture
def _threads_restored():
    before = thread_pool.get_num_threads()
    yield
    thread_pool.set_num_threads(before)


@pytest.mark.usefixtures("_threads_restored")
class TestPrograms:
    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_units_run_once_each(self, count):
        thread_pool.set_num_threads(count)
        x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
        program, bases = add_program(x, y)
        for _ in range(50):
            program.launch(bases)
        np.testing.assert_array_equal(x, 150)
        np.testing.assert_array_equal(y, 1500)
        assert thread_pool.get_num_threads() == count
        assert thread_pool.runtime().workers() == count - 1

    def test_patches_and_bases(self):
        x = np.zeros(8, np.int64)
        _, add = compiled(ADD)
        program = thread_pool.Program([(add, 1, 4, 0, 0)], [5, 0, 3], [(1, 1, 16)], 2)
        program.bases[1] = x.ctypes.data
        program.run()
        np.testing.assert_array_equal(x, [0, 0, 3, 3, 3, 3, 0, 0])
        assert program.table.tolist() == [5, x.ctypes.data + 16, 3]
        program.rows[0, 2] = 1  # another extent
        program.table[2] = 100  # another scalar
        thread_pool.run(program.address)
        np.testing.assert_array_equal(x, [0, 0, 103, 3, 3, 3, 0, 0])
        twin = program.copy()
        twin.run()
        assert x[2] == 203 and twin.address != program.address

    def test_bound_run_outlives_the_program(self):
        x = np.zeros(4, np.int64)
        run = thread_pool.Program([(compiled(ADD)[1], 0, 4, 0, 0)], [x.ctypes.data, 1]).run
        gc.collect()
        run()
        np.testing.assert_array_equal(x, 1)

    @pytest.mark.parametrize("count", [1, 2])
    def test_long_program_in_order(self, count):
        thread_pool.set_num_threads(count)
        x = np.zeros(16, np.int64)
        _, add = compiled(ADD)
        thread_pool.Program([(add, 0, 16, 8, 0)] * 2000, [x.ctypes.data, 1]).run()
        thread_pool.Program([(add, 0, 16, 0, 0)] * 2000, [x.ctypes.data, 1]).run()
        np.testing.assert_array_equal(x, 4000)

    def test_wide_region_of_many_rows(self):
        thread_pool.set_num_threads(2)
        x = np.zeros((100, 50), np.int64)
        _, add = compiled(ADD)
        rows = [(add, 2 * i, i % 51, 7, 1) for i in range(100)]
        table = [word for i in range(100) for word in (x[i].ctypes.data, i)]
        thread_pool.Program(rows, table).run()
        expected = [[i if j < i % 51 else 0 for j in range(50)] for i in range(100)]
        np.testing.assert_array_equal(x, expected)

    def test_concurrent_callers(self):
        thread_pool.set_num_threads(2)
        results = []

        def work() -> None:
            x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
            program, bases = add_program(x, y)
            for _ in range(100):
                program.launch(bases)
            results.append((set(x.tolist()), set(y.tolist())))

        callers = [threading.Thread(target=work) for _ in range(4)]
        for caller in callers:
            caller.start()
        thread_pool.set_num_threads(3)  # resizing waits for whoever has the pool
        for caller in callers:
            caller.join()
        assert results == [({300}, {3000})] * 4

    def test_one_program_in_two_threads_is_refused(self):
        x = np.zeros(400_000, np.int64)
        _, add = compiled(ADD)
        program = thread_pool.Program([(add, 0, x.size, 1000, 0)] * 200, [x.ctypes.data, 1])
        caller = threading.Thread(target=program.run)
        caller.start()
        refused = ""
        while caller.is_alive() and not refused:
            try:
                program.run()
            except RuntimeError as error:
                refused = str(error)
        caller.join()
        assert refused == "run: this program runs in another thread"
        program.run()

    def test_idle_workers_sleep(self):
        thread_pool.set_num_threads(2)
        x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
        program, bases = add_program(x, y)
        program.launch(bases)
        time.sleep(0.02)

        def used() -> float:
            before = time.process_time()
            time.sleep(0.2)
            return time.process_time() - before

        # A worker that spins does so every time; another library's threads of an earlier test come to rest.
        assert min(used() for _ in range(3)) < 0.05
        program.launch(bases)  # and they wake
        np.testing.assert_array_equal(x, 6)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_forked_child(self):
        thread_pool.set_num_threads(2)
        x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
        program, bases = add_program(x, y)
        program.launch(bases)
        held = memory.allocate(4096)
        ctypes.memset(held.address, 1, 4096)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                fresh = thread_pool.runtime().workers() == 0
                program.launch(bases)
                memory.set_limit(None)
                ctypes.memset(held.address, 2, 4096)
                ctypes.memset(memory.allocate(1 << 20).address, 2, 1 << 20)
                value = call(compiled(constant(9090))[1])
                grown = thread_pool.runtime().workers() == 1
                if fresh and grown and value == 9090 and set(x.tolist()) == {6}:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert set(x.tolist()) == {3}
        assert ctypes.string_at(held.address, 1) == b"\1", "the child wrote into its parent's memory"

    def test_workers_are_gone_at_exit(self):
        script = (
            "import atexit, numpy as np\n"
            "from lazyt.backends.cpu import thread_pool\n"
            "seen = []\n"
            "atexit.register(lambda: print(seen[0], thread_pool.runtime().workers()))\n"
            "from tests.support import small_programs as t\n"
            "x, y = np.zeros(20000, np.int64), np.zeros(300, np.int64)\n"
            "thread_pool.set_num_threads(3)\n"
            "program, bases = t.add_program(x, y)\n"
            "program.launch(bases)\n"
            "seen.append(thread_pool.runtime().workers())\n"
        )
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["2", "0"], done.stderr

    def test_flush_to_zero_of_the_caller_changes_nothing(self):
        if thread_pool.current_platform().architecture != "x86_64":
            pytest.skip("sets MXCSR")
        halve = """
define void @NAME(ptr %args, i64 %begin, i64 %end) nounwind {
  %at = load ptr, ptr %args
  %x = load double, ptr %at
  %y = fmul double %x, 5.0e-1
  store double %y, ptr %at
  ret void
}
"""
        set_modes = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i64 @NAME(i64 %new) nounwind {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %old = load i32, ptr %slot
  %low = trunc i64 %new to i32
  store i32 %low, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  %wide = zext i32 %old to i64
  ret i64 %wide
}
"""
        kernel, address = compiled(halve)
        setter, setter_address = compiled(set_modes)
        modes = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(setter_address)
        x = np.array([2.2250738585072014e-308])
        program = thread_pool.Program([(address, 0, 1, 0, 0)], [x.ctypes.data])
        usual = modes(0x9FC0)  # flush to zero, denormals are zero
        program.run()
        after = modes(usual)
        assert after & 0xFFC0 == 0x9FC0, "the caller's modes come back"
        assert x.view(np.int64)[0] == 1 << 51
        assert kernel and setter

    @pytest.mark.parametrize(
        ("rows", "table", "patches", "nbases", "message"),
        [
            ([(1, 0, 1, 1)], [], [], 0, "rows has 5 columns"),
            ([(0, 0, 1, 1, 0)], [], [], 0, "a row has no kernel"),
            ([(1, 3, 1, 1, 0)], [0, 0], [], 0, "args lie outside the table of 2 entries"),
            ([], [0], [(1, 0, 0)], 1, "writes outside the table of 1 entries"),
            ([], [0], [(0, 2, 0)], 2, "reads outside the 2 bases"),
        ],
    )
    def test_wrong_programs(self, rows, table, patches, nbases, message):
        with pytest.raises(ValueError, match=message):
            thread_pool.Program(rows, table, patches, nbases)

    def test_wrong_launches(self):
        program = thread_pool.Program([], [0], [], 2)
        for given in ([1], (1, 2), None):
            with pytest.raises(ValueError, match="launch: a list of 2 base addresses is required"):
                program.launch(given)
        with pytest.raises(TypeError, match="integer"):
            program.launch([1, "2"])
        with pytest.raises(ValueError, match="-1 is no address"):
            thread_pool.run(-1)
        with pytest.raises(OverflowError):
            program.launch([1, 1 << 64])
        program.launch([1, -1])  # a base may be any number: scalar arguments travel as bases too
        assert program.bases.tolist() == [1, -1]

    def test_wrong_thread_counts(self):
        with pytest.raises(ValueError, match="at least 1 thread is required, not 0"):
            thread_pool.set_num_threads(0)
        with pytest.raises(TypeError):
            thread_pool.set_num_threads(1.5)


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two CPUs of Linux")
class TestPlaces:
    """Where workers may run: their affinity after each of some launches."""

    def masks(self, monkeypatch, threads_wanted: int, affinity: bool) -> list[set[frozenset[int]]]:
        platform = dataclasses.replace(thread_pool.current_platform(), affinity=affinity)
        before = set(os.listdir("/proc/self/task"))
        other = thread_pool.Runtime(platform, threads_wanted)
        monkeypatch.setattr(thread_pool, "runtime", lambda: other)
        x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
        program, bases = add_program(x, y)
        found = []
        for _ in range(50):
            program.launch(bases)
            workers = set(os.listdir("/proc/self/task")) - before
            assert len(workers) == other.workers() == threads_wanted - 1
            found.append({frozenset(os.sched_getaffinity(int(w))) for w in workers})
        other.shut_down()
        np.testing.assert_array_equal(x, 150)
        np.testing.assert_array_equal(y, 1500)
        return found

    def test_workers_are_kept_off_the_cpu_of_their_caller(self, monkeypatch):
        usable = frozenset(os.sched_getaffinity(0))
        found = self.masks(monkeypatch, 2, True)
        # All of them again where the caller had to sleep.
        assert all(mask <= usable and len(mask) >= len(usable) - 1 for seen in found for mask in seen)
        assert any(len(mask) == len(usable) - 1 for seen in found for mask in seen)
        assert frozenset(os.sched_getaffinity(0)) == usable, "the caller's own is left alone"

    def test_and_may_run_anywhere_without(self, monkeypatch):
        usable = frozenset(os.sched_getaffinity(0))
        assert self.masks(monkeypatch, 2, False) == [{usable}] * 50
        # Or where there are more threads than CPUs.
        assert self.masks(monkeypatch, len(usable) + 1, True) == [{usable}] * 50


class TestOtherPlatforms:
    def test_condition_variable_instead_of_futex(self, monkeypatch):
        platform = dataclasses.replace(thread_pool.current_platform(), futex=None)
        other = thread_pool.Runtime(platform, 3)
        monkeypatch.setattr(thread_pool, "runtime", lambda: other)
        x, y = np.zeros(20_000, np.int64), np.zeros(300, np.int64)
        program, bases = add_program(x, y)
        for i in range(60):
            program.launch(bases)
            if i % 20 == 0:
                time.sleep(0.005)  # workers fall asleep
        assert other.workers() == 2
        other.shut_down()
        assert other.workers() == 0
        np.testing.assert_array_equal(x, 180)
        np.testing.assert_array_equal(y, 1800)

    @pytest.mark.parametrize("architecture", ["aarch64", "riscv64"])
    def test_ir_of_other_architectures_is_valid(self, architecture):
        platform = dataclasses.replace(thread_pool.current_platform(), architecture=architecture)
        text, prefix = thread_pool_ir.render(platform)
        engine.host().parse(text, [prefix])
