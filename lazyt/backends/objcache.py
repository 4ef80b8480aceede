"""The disk cache of object code: private to the user, checked before use, bounded, nothing pickled.

Loading an object means running it, so nothing is read from a directory or file that another user
could have written. Every file carries a checksum of its content and appears whole or not at all
(`os.replace`). Whatever is wrong with the cache only costs compile time: a damaged file is a miss,
an unusable directory means memory only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
import warnings
from pathlib import Path

from lazyt.errors import LazytWarning

MAGIC = b"LAZYTOB1"
DIGEST_SIZE = hashlib.sha256().digest_size
DEFAULT_LIMIT = 512 << 20
TOUCH_AFTER_SECONDS = 3600
STALE_TEMPORARY_SECONDS = 3600


class LazytCacheWarning(LazytWarning, RuntimeWarning):
    """The object cache cannot be used; kernels are compiled anew in this process."""


def make_key(*parts: str) -> str:
    """The cache key of everything that object code depends on (text, versions, CPU features)."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def default_directory() -> Path | None:
    """`LAZYT_CACHE_DIR` (empty: none), else `$XDG_CACHE_HOME/lazyt`, else `~/.cache/lazyt`."""
    chosen = os.environ.get("LAZYT_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home directory `expanduser` leaves the tilde in.
    return None if base.startswith("~") else Path(base) / "lazyt"


def _foreign(status: os.stat_result) -> bool:
    """Whether another user owns it (never so where the system has no user ids)."""
    return hasattr(os, "getuid") and status.st_uid != os.getuid()


def _prepare(directory: Path) -> str | None:
    """Create the directory if need be; the reason why it must not be used, or None."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory)
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if _foreign(status):
        return f"it belongs to user {status.st_uid}"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o}; chmod it to 0700)"
    return None


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
        self.damaged = 0

    @property
    def directory(self) -> Path | None:
        """Where objects are kept, or None if they are not."""
        if not self._checked:
            self._checked = True
            assert self._directory is not None, "only a cache with a directory is unchecked"
            problem = _prepare(self._directory)
            if problem is not None:
                self._disable(problem)
        return self._directory

    def __contains__(self, key: str) -> bool:
        """Whether there is a file under `key`; whether it is whole is found out when it is loaded."""
        return self.directory is not None and (self.directory / f"{key}.o").exists()

    def load(self, key: str) -> bytes | None:
        """The object stored under `key`, or None; a damaged or foreign file is deleted: a miss."""
        directory = self.directory
        if directory is None:
            return None
        path = directory / f"{key}.o"
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                blob = file.read()
            header = len(MAGIC) + DIGEST_SIZE
            payload = blob[header:]
            whole = MAGIC + hashlib.sha256(payload).digest() == blob[:header]
            if _foreign(status) or not whole:
                self.damaged += 1
                path.unlink(missing_ok=True)
                return None
            # The access time that pruning goes by: `noatime` mounts do not keep one.
            if time.time() - status.st_mtime > TOUCH_AFTER_SECONDS:
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._disable(str(error))
            return None
        return payload

    def store(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; a failure turns the cache off, with one warning."""
        directory = self.directory
        if directory is None:
            return
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
            try:
                with open(descriptor, "wb") as file:
                    file.write(MAGIC + hashlib.sha256(data).digest() + data)
                os.replace(temporary, directory / f"{key}.o")
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
            # Keys are uniform, so this is one store in 64, however short-lived the processes are.
            if int(key[:8], 16) % 64 == 0:
                self.prune()
        except OSError as error:
            self._disable(str(error))

    def prune(self) -> None:
        """Delete the least recently used objects until three quarters of the limit are left."""
        directory = self.directory
        if directory is None:
            return
        entries: list[tuple[float, int, Path]] = []
        stale = time.time() - STALE_TEMPORARY_SECONDS
        for entry in os.scandir(directory):
            # Another process may delete the entry at any time.
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if entry.name.endswith(".o"):
                    entries.append((status.st_mtime, status.st_size, Path(entry.path)))
                elif entry.name.endswith(".tmp") and status.st_mtime < stale:
                    os.unlink(entry.path)
        total = sum(size for _, size, _ in entries)
        if total <= self._limit:
            return
        for _, size, path in sorted(entries):
            if total <= self._limit * 3 // 4:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _disable(self, reason: str) -> None:
        directory, self._directory = self._directory, None
        if directory is not None:
            warnings.warn(
                f"lazyt: the object cache {directory} is not used: {reason}; "
                "kernels are compiled anew in this process (LAZYT_CACHE_DIR= turns the cache off)",
                LazytCacheWarning,
                stacklevel=3,
            )


_by_directory: dict[Path | None, ObjectCache] = {}


def default_cache() -> ObjectCache:
    """The cache of the default directory: one object a directory, so that it warns once."""
    directory = default_directory()
    return _by_directory.setdefault(directory, ObjectCache(directory))
