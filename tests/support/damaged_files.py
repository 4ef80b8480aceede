"""`python -m tests.support.damaged_files [FORMAT ...] [--count N] [--seed S]`: load altered files of each format.

Each format has a process with 400 MiB of memory over what it begins with. A file that `lt.load` reads is loaded, or
raises StateError that names it; a file of the object cache with any other byte is a miss. File number n of a seed is
always the same.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickletools
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends import object_cache
from lazyt.config import general
from tests.support.plans import forget

GOLDEN = Path(__file__).parents[1] / "golden" / "pt"
MEMORY = 400 << 20
_MODULE, _PROGRESS = "tests.support.damaged_files", "DAMAGED_FILES_PROGRESS"
SECONDS = 20  # that one file may take
FORMATS = ("pt", "legacy", "npz", "safetensors", "plan", "object")
_SPECIAL = [0, 1, 2, 3, 127, 128, 255, 256, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1]  # fmt: skip
_HEADERS = {b"PK\1\2": 46, b"PK\3\4": 30, b"PK\5\6": 22, b"PK\6\6": 56, b"PK\6\7": 20}
_TEXTS = [b"torch FloatStorage", b"torch._utils\n_rebuild_tensor_v2", b"collections\nOrderedDict", b"builtins\nset",
          b"os\nsystem", b"builtins\neval", b"_codecs\nencode", b"9" * 50, b"-1", b"1e999", b"\xff\xfe"]  # fmt: skip
_JSON = [b"null", b"[]", b"{}", b'"tensor"', b'["list"]', b"-1", b"1e999", b'"\\ud800"', b"9" * 30, b"[" * 3000,
         b'["is",', b'"F64"', b'"__metadata__"', b"NaN", b'["dict",["a",["is",1]]]']  # fmt: skip


def number(rng: random.Random, n: int) -> bytes:
    """A special number, or one beside it, in n bytes."""
    value = rng.choice(_SPECIAL) + rng.choice((0, 0, -1, 1))
    return (value % (1 << 8 * n)).to_bytes(n, rng.choice(("little", "little", "big")))


def damaged(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Bytes with one to three of: bits flipped, numbers written over, a cut, an insertion, a repetition, a splice."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, n = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 16, 64, 500))
        act = rng.randrange(7)
        if act <= 1:
            raw = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                if raw:
                    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            data = bytes(raw)
        elif act == 2:
            n = rng.choice((1, 2, 4, 8))
            data = data[:at] + number(rng, n) + data[at + n :]
        elif act == 3:
            data = data[:at] + (b"" if rng.random() < 0.5 else data[at + n :])
        elif act == 4:
            data = data[:at] + rng.choice((rng.randbytes(n), bytes(n), rng.choice(_TEXTS))) + data[at:]
        elif act == 5:
            data = data[:at] + data[at : at + n] * rng.choice((2, 2, 50)) + data[at + n :]
        else:
            other = rng.choice(others)
            data = data[:at] + other[rng.randrange(len(other) + 1) :]
    return data


# --- pickles ------------------------------------------------------------------------------------------------------


def starts(program: bytes) -> list[int]:
    """Where the opcodes of all pickles at the beginning begin, and the end of the last."""
    f, found = io.BytesIO(program), []
    while f.tell() < len(program):
        begin = f.tell()
        try:
            found += [at for _, _, at in pickletools.genops(f)]
        except ValueError:  # storages stand here
            return [*(at for at in found if at < begin), begin]
    return [*found, f.tell()]


def opcode(rng: random.Random) -> bytes:
    """Any opcode with an argument of its kind."""
    code = rng.choice(pickletools.opcodes)
    if code.arg is None:
        return code.code.encode("latin1")
    n = code.arg.n
    if n >= 0:
        argument = bytes([rng.randrange(8)]) + bytes(n - 1) if rng.random() < 0.7 else number(rng, n)
    elif n == pickletools.UP_TO_NEWLINE:
        argument = rng.choice(_TEXTS) + b"\n" * (2 if "pair" in code.arg.name else 1)
    else:
        size = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT8U: 8}.get(n, 4)
        content = rng.choice((b"", b"latin1", b"storage", b"0", rng.randbytes(9)))
        length = len(content).to_bytes(size, "little") if rng.random() < 0.8 else number(rng, size)
        argument = length + content
    return code.code.encode("latin1") + argument


def damaged_pickle(rng: random.Random, program: bytes, places: list[int]) -> bytes:
    """A program with opcodes inserted, left out, moved, repeated, or with another argument."""
    edges = places
    for _ in range(rng.choice((1, 1, 2, 4))):
        if len(edges) < 2:
            break
        i = rng.randrange(len(edges) - 1)
        a, b = edges[i], edges[i + 1]
        act = rng.randrange(6)
        if act <= 1:
            new = b"".join(opcode(rng) for _ in range(rng.choice((1, 1, 2, 5))))
            program = program[:a] + new + program[a:]
        elif act == 2:
            program = program[:a] + program[b:]
        elif act == 3:
            j = rng.randrange(len(edges) - 1)
            program = program[:a] + program[edges[j] : edges[j + 1]] + program[a:]
        elif act == 4:
            program = program[:a] + opcode(rng) + program[b:]
        elif b - a > 1:
            program = program[: a + 1] + number(rng, min(b - a - 1, 8)) + program[min(b, a + 9) :]
        edges = [at for at in edges if at <= a]  # the others have moved
    return program


# --- archives -----------------------------------------------------------------------------------------------------


def entries_of(data: bytes) -> dict[str, bytes]:
    """The entries of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {name: z.read(name) for name in z.namelist()}


def archive(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive of these entries."""
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", method) as z:
        for name, raw in entries.items():
            z.writestr(name, raw)
    return f.getvalue()


def damaged_header(rng: random.Random, data: bytes) -> bytes:
    """An archive with one to three numbers of its headers replaced."""
    found = [(at, n) for magic, n in _HEADERS.items() for at in _all(data, magic)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, n = rng.choice(found)
        size = rng.choice((1, 2, 2, 4, 4, 8))
        at += 4 + 2 * rng.randrange((n - 4) // 2)
        data = data[:at] + number(rng, size) + data[at + size :]
    return data


def _all(data: bytes, magic: bytes) -> list[int]:
    found, at = [], data.find(magic)
    while at >= 0:
        found.append(at)
        at = data.find(magic, at + 1)
    return found


class Archives:
    """Altered archives: whole, their headers, one entry with a right sum, and entries that decompress to 300 MB."""

    def __init__(self, samples: list[bytes], bombed: list[str], entry: Callable[..., bytes]) -> None:
        self.samples, self.entry = samples, entry
        self.parts = [entries_of(data) for data in samples]
        zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
        head = self.parts[0].get("a.npy", b"")[:128]
        packed = zeros.compress(head) + b"".join(zeros.compress(bytes(1 << 20)) for _ in range(300)) + zeros.flush()
        self.bombs = [self._bomb(name, packed) for name in bombed]

    @staticmethod
    def _bomb(name: str, packed: bytes) -> bytes:
        data = archive({"archive/data/0": b"", name: packed})
        for magic, at in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
            at += _all(data, magic)[-1]
            size = at + 14  # of what the entry decompresses to
            large = struct.pack("<I", 300 << 20)
            data = data[:at] + struct.pack("<H", 8) + data[at + 2 : size] + large + data[size + 4 :]
        return data

    def __call__(self, rng: random.Random) -> bytes:
        i = rng.randrange(len(self.samples))
        act = rng.random()
        if act < 0.2:
            return damaged(rng, self.samples[i], self.samples)
        if act < 0.4:
            return damaged_header(rng, self.samples[i])
        if act < 0.41:
            return damaged_header(rng, rng.choice(self.bombs)) if rng.random() < 0.5 else rng.choice(self.bombs)
        entries = dict(self.parts[i])
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice([*entries])
            entries[name] = self.entry(rng, name, entries[name], [*entries.values()])
        if rng.random() < 0.05:
            names = [*entries]
            rng.shuffle(names)
            entries = dict(zip(names, entries.values(), strict=True))
        return archive(entries, zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED)


def pt_entry(rng: random.Random, name: str, raw: bytes, others: list[bytes]) -> bytes:
    """An altered entry of a `.pt` file, mostly its program."""
    if name.endswith("data.pkl") and rng.random() < 0.8:
        return damaged_pickle(rng, raw, starts(raw)[:-1])
    return damaged(rng, raw, others)


def npz_entry(rng: random.Random, name: str, raw: bytes, others: list[bytes]) -> bytes:
    """An altered entry of an `.npz` file: of its tree, its header, or any bytes."""
    if name.startswith("__lazyt__") and rng.random() < 0.8:
        text = damaged_text(rng, raw[128:])
        f = io.BytesIO()
        np.save(f, np.frombuffer(text, np.uint8))
        return f.getvalue()
    if rng.random() < 0.5:
        return damaged(rng, raw[:128], others)[:128].ljust(128) + raw[128:]
    return damaged(rng, raw, others)


def damaged_text(rng: random.Random, text: bytes) -> bytes:
    """JSON with a word replaced by another, or altered as any bytes."""
    if rng.random() < 0.3 or not text.strip():
        return damaged(rng, text, [text])
    words = text.replace(b",", b" , ").replace(b"[", b" [ ").replace(b"]", b" ] ").replace(b":", b" : ").split()
    for _ in range(rng.choice((1, 1, 2))):
        words[rng.randrange(len(words))] = rng.choice((rng.choice(_JSON), rng.choice(words)))
    return b" ".join(words)


# --- what is altered, and how it is read --------------------------------------------------------------------------


def saved(tree: Any, name: str) -> bytes:
    """The bytes that `lt.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        lt.save(tree, os.path.join(folder, name))
        return Path(folder, name).read_bytes()


def trees() -> list[Any]:
    """What is saved in lazyt's own formats."""
    x = lt.arange(12).reshape(3, 4)
    return [
        {"w": x * 0.5, "b": lt.ones(3, dtype=lt.bfloat16), "on": x > 3, "n": [1, (2.5, None, "t"), {"k": b"\xff"}]},
        {"model": {"0.weight": lt.ones((4, 3)), "0.bias": lt.zeros(4)}, "epoch": 3, 5: 1 + 2j, "lr": 0.1},
    ]


def pt_files() -> Callable[[random.Random], bytes]:
    """Altered files of today's PyTorch."""
    samples = [(GOLDEN / f"{name}.pt").read_bytes() for name in ("checkpoint", "dtypes", "views", "parameters")]
    return Archives(samples, ["archive/data.pkl", "archive/byteorder"], pt_entry)


def legacy_files() -> Callable[[random.Random], bytes]:
    """Altered files of PyTorch before version 1.6."""
    samples = [(GOLDEN / f"{name}.pt").read_bytes() for name in ("legacy", "legacy_dtypes", "legacy_views")]
    places = [starts(data) for data in samples]

    def make(rng: random.Random) -> bytes:
        i = rng.randrange(len(samples))
        if rng.random() < 0.4:
            return damaged(rng, samples[i], samples)
        if rng.random() < 0.2:  # a number of elements
            at = places[i][-1]
            return samples[i][:at] + number(rng, 8) + samples[i][at + 8 :]
        return damaged_pickle(rng, samples[i], places[i])

    return make


def npz_files() -> Callable[[random.Random], bytes]:
    """Altered files of `lt.save`, and of NumPy."""
    plain = io.BytesIO()
    np.savez(plain, a=np.arange(6).reshape(2, 3), b=np.zeros((), ">f4"), c=np.asfortranarray(np.ones((3, 2), complex)))
    packed = io.BytesIO()
    np.savez_compressed(packed, a=np.zeros(5000), b=np.ones(3, bool))
    samples = [plain.getvalue(), packed.getvalue(), *(saved(t, "a.npz") for t in trees())]
    return Archives(samples, ["a.npy", "__lazyt__.npy"], npz_entry)


def safetensors_files() -> Callable[[random.Random], bytes]:
    """Altered safetensors files."""
    samples = [saved(t, "a.safetensors") for t in trees()]

    def make(rng: random.Random) -> bytes:
        data = rng.choice(samples)
        if rng.random() < 0.3:
            return damaged(rng, data, samples)
        if rng.random() < 0.1:
            return number(rng, 8) + data[8:]
        end = 8 + int.from_bytes(data[:8], "little")
        header = damaged_text(rng, data[8:end])
        return (len(header) if rng.random() < 0.9 else end - 8).to_bytes(8, "little") + header + data[end:]

    return make


def examined(tree: Any) -> None:
    """Read all tensors, which have values of their dtypes and take no more memory than there was."""
    todo, seen, total = [tree], set(), 0
    while todo:
        x = todo.pop()
        if id(x) not in seen:
            seen.add(id(x))
            if isinstance(x, lt.Tensor):
                a = (x.detach() if x.requires_grad else x).numpy()
                total += a.nbytes
                assert a.dtype != bool or set(a.tobytes()) <= {0, 1}
                assert len(a.tobytes()) == a.nbytes
            elif isinstance(x, dict | list | tuple):
                todo += x.values() if isinstance(x, dict) else x
    assert total < MEMORY
    lt.sync()  # each `detach` is a pending step


class Loading:
    """Altered files, given to `lt.load` by name and as file objects in turns."""

    def __init__(self, files: Callable[[random.Random], bytes]) -> None:
        self.files = files
        self.folder = tempfile.TemporaryDirectory()

    def __call__(self, rng: random.Random, n: int) -> str:
        data = self.files(rng)
        path = os.path.join(self.folder.name, "a")
        if n % 2:
            Path(path).write_bytes(data)
        try:
            found = lt.load(path if n % 2 else io.BytesIO(data))
        except lt.StateError as e:
            text = str(e)
        else:
            examined(found)
            return "loaded"
        file = repr(path) if n % 2 else "this file"
        assert text.startswith(f"load: {file}: ") and len(text) < 1000, text
        return "StateError"


class Cached:
    """Altered files of the object cache, of these kinds: each is a miss unless no byte has changed."""

    def __init__(self, *kinds: str) -> None:
        self.value = program()
        self.cache = object_cache.default_cache()
        assert self.cache.directory is not None, "LAZYT_CACHE_DIR names a directory of this run"
        self.files = {p: p.read_bytes() for p in sorted(self.cache.directory.iterdir()) if p.suffix[1:] in kinds}
        assert self.files

    def __call__(self, rng: random.Random, n: int) -> str:
        path = rng.choice([*self.files])
        data = self.files[path]
        new = damaged(rng, data, [*self.files.values()])
        if rng.random() < 0.1:
            new = rng.choice([*self.files.values()])
        path.write_bytes(new)
        if n % 1000 == 0:
            forget()
            assert program() == self.value
            path.write_bytes(new)
        found = self.cache.load(path.stem, path.suffix[1:])
        assert (found is not None) == (new == data), path
        assert found is None or data.endswith(found)
        path.write_bytes(data)
        return "miss" if found is None else "found"


def program() -> bytes:
    """The value of a program with plans and object code of its own."""
    x = lt.asarray(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
    y = lt.softmax(x @ x.T, axis=-1).sum(axis=0)
    return np.asarray(y).tobytes() + np.asarray((x * 0.75).max(axis=0)).tobytes()


READ: dict[str, Callable[[], Callable[[random.Random, int], str]]] = {
    "pt": lambda: Loading(pt_files()),
    "legacy": lambda: Loading(legacy_files()),
    "npz": lambda: Loading(npz_files()),
    "safetensors": lambda: Loading(safetensors_files()),
    "plan": lambda: Cached("plan"),
    "object": lambda: Cached("o", "name"),
}


def work(names: list[str], count: int, seed: int) -> int:
    """Read `count` altered files of each of these formats with bounded memory; the number of failures."""
    readers = {name: READ[name]() for name in names}
    failures, progress = 0, os.open(os.environ.get(_PROGRESS, os.devnull), os.O_WRONLY)
    for name, read in readers.items():
        program()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        outcomes: Counter[str] = Counter()
        slowest, begin = (0.0, 0), time.monotonic()
        for n in range(count):
            os.pwrite(progress, f"{name}, file {n:<9}".encode(), 0)
            start = time.monotonic()
            try:
                outcomes[read(random.Random(f"{name}:{seed}:{n}"), n)] += 1
            except Exception:  # noqa: BLE001 - each is reported
                outcomes["failed"] += 1
                print(f"{name}, file {n} of seed {seed}:\n{traceback.format_exc()[-3000:]}", flush=True)
            slowest = max(slowest, (time.monotonic() - start, n))
        resource.setrlimit(resource.RLIMIT_AS, before)
        failures += outcomes["failed"] + (slowest[0] > SECONDS)
        said = {"format": name, "files": count, **outcomes, "slowest": [round(slowest[0], 2), slowest[1]],
                "seconds": round(time.monotonic() - begin, 1)}  # fmt: skip
        print(json.dumps(said), flush=True)
    return failures


def run(names: list[str], count: int, seed: int) -> tuple[int, str]:
    """`work` in a process of its own, with an object cache of its own: its exit status, and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder, "progress")
        progress.touch()
        environment = {**os.environ, "LAZYT_CACHE_DIR": os.path.join(folder, "c"), _PROGRESS: str(progress)}
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-m", _MODULE, *names, f"--count={count}", f"--seed={seed}",
             "--here"],
            env=environment, cwd=Path(__file__).parents[2], text=True, capture_output=True, check=False,
        )  # fmt: skip
        said = done.stdout if not done.returncode else f"{done.stdout}{done.stderr[-3000:]}{progress.read_text()}"
    return done.returncode, said


def main() -> int:
    """Each format in a process of its own; 1 if one failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[*FORMATS, []], help="default: all")
    parser.add_argument("--count", type=int, default=100_000, help="files of each format (default: 100,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process")
    a = parser.parse_args()
    names = a.formats or [*FORMATS]
    if a.here:
        general.update(stored=True, tiers=False)
        return 1 if work(names, a.count, a.seed) else 0
    failed = 0
    for name in names:
        status, said = run([name], a.count, a.seed)
        print(said, end="", flush=True)
        failed |= status != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
