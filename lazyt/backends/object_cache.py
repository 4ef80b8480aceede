"""The disk cache of object code and plans: private to the user, checked before use, bounded, nothing pickled.

Loading an object means running it, so nothing is read from a directory or file that another user
could have written. Every file carries a checksum of its key and content, and appears whole or not
at all (`os.replace`). Problems of the cache only cost compile time: a file that is
damaged, or another key's, is a miss and is replaced; a directory that cannot be written is
still read; an unusable directory means memory only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lazyt import on_demand
from lazyt.backends.cache_directory import cache_directory
from lazyt.errors import LazytWarning
from lazyt.tracing.call_site import warn

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = on_demand.module("tempfile")

MAGIC = b"LAZYTOB2"  # the format of a file; part of every key, so versions do not replace each other's files
KINDS = (".o", ".plan", ".name")  # how the names of files end: object code, plans, which object has a function
DIGEST_SIZE = hashlib.sha256().digest_size
DEFAULT_LIMIT = 512 << 20
LARGEST = 128 << 20  # bytes of object code or a plan; a larger file is not written, and none is read
TOUCH_AFTER_SECONDS = 3600
STALE_TEMPORARY_SECONDS = 3600
_PLAINLY = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


class LazytCacheWarning(LazytWarning, RuntimeWarning):
    """The object cache cannot be used; kernels are compiled anew in this process."""


def make_key(*parts: str) -> str:
    """The cache key of everything that object code depends on (text, versions, CPU features)."""
    digest = hashlib.sha256(MAGIC)
    for part in parts:
        encoded = part.encode()
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def default_directory() -> Path | None:
    """The directory of the process (`cache_directory`)."""
    found = cache_directory()
    return None if found is None else Path(found)


def _header(key: str, data: bytes) -> bytes:
    """The beginning of a file. NOTE: it contains the key, so a file under another key's name does not match."""
    digest = hashlib.sha256(key.encode())
    digest.update(data)
    return MAGIC + digest.digest()


def _distrust(status: os.stat_result) -> str | None:
    """Why other users could have written it, or None (also where the system has no user ids)."""
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _prepare(directory: Path) -> str | None:
    """Create the directory if need be; the reason why it must not be used, or None."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory)
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    return _distrust(status)


class ObjectCache:
    """Object code by key in one directory; `ObjectCache(None)` stores nothing.

    Checked on first use. Several processes may share a directory: writers of one key write equal
    bytes.
    """

    def __init__(self, directory: Path | str | None, *, limit: int = DEFAULT_LIMIT) -> None:
        # Absolute, so that a later chdir does not make it mean another place.
        self._directory = None if directory is None else Path(directory).absolute()
        self._checked = directory is None
        self._limit = limit
        self._warned: set[str] = set()  # each kind of problem is reported once
        self.writes = True  # until one fails: a full disk, a read-only directory
        self.damaged = 0  # files that were refused, for any reason

    @property
    def directory(self) -> Path | None:
        """The directory of the objects, or None without one."""
        if not self._checked:
            self._checked = True
            self._check()
        return self._directory

    def _check(self) -> None:
        """Make the directory if need be; the cache is off if it must not be used."""
        directory = self._directory
        assert directory is not None, "only a cache with a directory is unchecked"
        problem = _prepare(directory)
        if problem is not None:
            self._directory = None
            self._warn(
                "off", f"the object cache {directory} is not used: {problem} (it has to be yours, with mode 0700)"
            )

    def __contains__(self, key: str) -> bool:
        """Whether there is a file under `key`; whether it is whole is found out when it is loaded."""
        return self.directory is not None and (self.directory / f"{key}.o").exists()

    def load(self, key: str, kind: str = "o") -> bytes | None:
        """The object stored under `key`, or None; kind: how the names of such files end.

        A file that is damaged, another key's, unreadable or not this user's alone is a miss, and is deleted.
        """
        directory = self.directory
        if directory is None:
            return None
        path = directory / f"{key}.{kind}"
        problem, touched = None, 0.0
        try:
            # NOTE: does not follow links or wait for pipes.
            with open(os.open(path, os.O_RDONLY | _PLAINLY), "rb") as file:
                status = os.fstat(file.fileno())
                problem = _distrust(status) if stat.S_ISREG(status.st_mode) else "it is not a regular file"
                large = status.st_size > LARGEST + len(MAGIC) + DIGEST_SIZE
                blob = b"" if problem or large else file.read()
                touched = status.st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            blob, problem = b"", str(error)
        payload = blob[len(MAGIC) + DIGEST_SIZE :]
        if not blob.startswith(_header(key, payload)):
            self._refuse(path, problem)
            return None
        # The access time that pruning goes by: `noatime` mounts do not keep one.
        if time.time() - touched > TOUCH_AFTER_SECONDS:
            with contextlib.suppress(OSError):  # deleted meanwhile, or on a read-only disk
                os.utime(path)
        return payload

    def _refuse(self, path: Path, problem: str | None) -> None:
        """Delete a file that cannot be used, so that it is replaced; with a `problem`, warn once."""
        self.damaged += 1
        with contextlib.suppress(OSError):  # where it cannot be deleted it is refused again
            os.unlink(path)
        if problem is not None:
            self._warn("refused", f"the file {path} of the object cache is not used: {problem}")

    def store(self, key: str, data: bytes, kind: str = "o") -> None:
        """Keep `data` under `key`; after a failure nothing more is written, with one warning."""
        if self.directory is None or not self.writes or len(data) > LARGEST:
            return
        try:
            try:
                self._write(key, data, kind)
            except (FileNotFoundError, NotADirectoryError):
                # The directory, or the temporary file in it, was deleted.
                self._check()
                self._write(key, data, kind)
            # Keys are uniform, so this is one store in 64, however short-lived the processes are.
            if int(key[:8], 16) % 64 == 0:
                self.prune()
        except OSError as error:
            self.writes = False
            self._warn("read-only", f"nothing more is written to the object cache {self._directory}: {error}")

    def _write(self, key: str, data: bytes, kind: str) -> None:
        directory = self._directory
        if directory is None:
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
        try:
            with open(descriptor, "wb") as file:
                file.write(_header(key, data) + data)
            os.replace(temporary, directory / f"{key}.{kind}")
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def prune(self) -> None:
        """Delete the least recently used objects until three quarters of the limit are left."""
        directory = self.directory
        if directory is None:
            return
        entries: list[tuple[float, int, str]] = []
        stale = time.time() - STALE_TEMPORARY_SECONDS
        try:
            found = list(os.scandir(directory))
        except FileNotFoundError:
            return
        for entry in found:
            # Another process may delete the entry at any time.
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(KINDS):
                    entries.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.endswith(".tmp") and status.st_mtime < stale:
                    os.unlink(entry.path)
        total = sum(size for _, size, _ in entries)
        if total <= self._limit:
            return
        for _, size, path in sorted(entries):
            if total <= self._limit * 3 // 4:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    def _warn(self, kind: str, what: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn(
                f"lazyt: {what}; kernels are compiled anew in this process (LAZYT_CACHE_DIR= turns the cache off)",
                LazytCacheWarning,
            )


@cache
def source_identity() -> str:
    """What tells this lazyt from any other: the sizes and times of change of its files, and the interpreter."""
    root = str(Path(__file__).resolve().parent.parent)
    found: list[tuple[str, int, int]] = []
    todo = [root]
    while todo:
        for entry in os.scandir(todo.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    todo.append(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                found.append((entry.path[len(root) :], status.st_size, status.st_mtime_ns))
    return repr((sys.implementation.cache_tag, sys.version_info[:3], sorted(found)))


_by_directory: dict[Path | None, ObjectCache] = {}


def default_cache() -> ObjectCache:
    """The cache of the default directory: one object a directory, so that it warns once."""
    directory = default_directory()
    return _by_directory.setdefault(directory, ObjectCache(directory))
