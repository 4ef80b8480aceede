"""The names of the plugins that are installed, for what cannot ask at the first mention: tensors do not look names up.

Reading what every distribution says of itself takes milliseconds. So it is read once for each folder of distributions,
and kept in the cache directory with the folder's time of change: an import reads one small file. Python has listed the
folders by then.
"""

from __future__ import annotations

import os
import sys

from lazyt.backends.cache_directory import cache_directory

GROUP = "lazyt.backends"
FILE = "plugins.txt"
MOST_FOLDERS = 64

# By folder: its time of change, and the names of the plugins in it.
Known = dict[str, tuple[str, list[str]]]


def expected() -> list[str]:
    """The names of plugins in the folders that Python has listed by now. None of them is loaded.

    Where nothing can be kept, only distributions called `lazyt-something` are read: they need no look at the others.
    """
    directory = cache_directory()
    path = None if directory is None else os.path.join(directory, FILE)
    known, folders = _read(path), _folders()
    others = [(folder, time, listed) for folder, time, listed in folders if known.get(folder, ("",))[0] != time]
    if others:
        kept = path is not None and _can_be_written(path)
        for folder, time, listed in others:
            read = listed if kept else [name for name in listed if "lazyt" in name]
            known[folder] = time, [n for name in read for n in _entries_of(os.path.join(folder, name))]
        if kept and path is not None:
            _write(path, known)
    return list(dict.fromkeys(name for folder, _, _ in folders for name in known[folder][1]))


def _can_be_written(path: str) -> bool:
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _folders() -> list[tuple[str, str, list[str]]]:
    """The folders on the path that have distributions: (folder, its time of change, the distributions' folders)."""
    found = []
    for folder, finder in list(sys.path_importer_cache.items()):
        listed = [n for n in getattr(finder, "_path_cache", ()) if n.endswith(".dist-info")]
        if listed:
            found.append((folder, repr(getattr(finder, "_path_mtime", None)), sorted(listed)))
    return found


def _read(path: str | None) -> Known:
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line.rstrip("\n").split("\t") for line in f]
    except (OSError, UnicodeDecodeError):
        return {}
    return {line[0]: (line[1], line[2].split()) for line in lines if len(line) == 3}


def _write(path: str, known: Known) -> None:
    """Replace the file; one that cannot be written is read anew by the next process."""
    lines = [f"{folder}\t{time}\t{' '.join(names)}\n" for folder, (time, names) in known.items()]
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as f:
            f.writelines(lines[-MOST_FOLDERS:])
        os.replace(temporary, path)
    except (OSError, UnicodeEncodeError):
        return


def _entries_of(distribution: str) -> list[str]:
    """The names of plugins that a distribution's folder lists."""
    try:
        with open(os.path.join(distribution, "entry_points.txt"), encoding="utf-8") as f:
            lines = f.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    section, found = "", []
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line
        elif section == f"[{GROUP}]" and "=" in line:
            found.append(line.partition("=")[0].strip())
    return found
