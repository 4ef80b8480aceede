"""Sizes, times, places and tables: what the other packages print with."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

_IPYTHON_CELL = re.compile(r"<ipython-input-(\d+)-\w*>")


def plural(n: int, word: str, words: str = "") -> str:
    """`1 kernel`, `2 kernels`.

    >>> plural(1, "launch"), plural(2, "launch"), plural(2, "axis", "axes")
    ('1 launch', '2 launches', '2 axes')
    """
    return f"{n:,} {word if n == 1 else words or word + ('es' if word.endswith(('ch', 's', 'x')) else 's')}"


def bytes_text(n: int) -> str:
    """
    >>> bytes_text(40), bytes_text(25600), bytes_text(3 << 30)
    ('40 B', '25.0 KiB', '3.0 GiB')
    """
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{n} B" if unit == "B" else f"{size:.1f} {unit}"


def count_text(n: int, unit: str) -> str:
    """
    >>> count_text(40, "flop"), count_text(51200, "flop")
    ('40 flop', '51.2 kflop')
    """
    size, prefix = float(n), ""
    for larger in ("k", "M", "G", "T"):
        if size < 1000:
            break
        size, prefix = size / 1000, larger
    return f"{n} {unit}" if not prefix else f"{size:.1f} {prefix}{unit}"


def time_text(seconds: float) -> str:
    """
    >>> time_text(1.25e-05), time_text(0.0031), time_text(2.5)
    ('12 us', '3.1 ms', '2.50 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def site_text(site: Any) -> str:
    """A user's line for reading: relative to the working directory, `<stdin>:1` where a person types."""
    if site is None:
        return "?"
    name, line = site.code.co_filename, site.line
    if name.startswith("<doctest"):
        return f"<stdin>:{line}"
    cell = _IPYTHON_CELL.fullmatch(name)
    if cell:
        return f"In[{cell[1]}]:{line}"
    root = os.getcwd() + os.sep
    return f"{name.removeprefix(root)}:{line}"


def aligned(rows: Sequence[Sequence[str]], indent: str = "", gap: str = "  ") -> list[str]:
    """The rows as lines whose columns stand under each other; a column wider than 72 moves only its own row.

    >>> aligned([("a", "1"), ("bcd", "2")])
    ['a    1', 'bcd  2']
    """
    widths = [max((len(r[i]) for r in rows if i < len(r) and len(r[i]) <= 72), default=0) for i in _columns(rows)]
    return [indent + gap.join(c.ljust(w) for c, w in zip(r, widths, strict=False)).rstrip() for r in rows]


def _columns(rows: Sequence[Sequence[str]]) -> range:
    return range(max((len(r) for r in rows), default=0))


def _escaped(text: str) -> str:
    import html  # its tables of names take longer to import than this package, for notebooks alone

    return html.escape(text)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; every cell is text and is escaped."""
    head = "".join(f"<th>{_escaped(c)}</th>" for c in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'><code>{_escaped(c)}</code></td>" for c in r) + "</tr>"
        for r in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_text(text: str) -> str:
    """Text as it stands."""
    return f"<pre>{_escaped(text)}</pre>"
