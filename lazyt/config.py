"""The flags of `LAZYT_DEBUG`: each is declared once, in `FLAGS`, with its default and what its word does.

From a declaration come the parsing, the words that an error lists, the dictionaries that modules read their flags from,
and the table in docs/architecture.md (`table`, which a test compares; `python -m tests.docs.test_flags` writes it).

`general` the recording, the graph and the plan, on every backend
`cpu`     the code generator and the executor of the CPU; `ahead`, `adopt` and `graphs` are a GPU's too
`cuda`    the emission for GPUs; `wide`, `tile` and `split` turn off what has that name in `cpu` as well
`registers` numbers: how many float32 a register is taken to hold, and how many threads there are (0: all)
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from lazyt.errors import SettingError


class Flag(NamedTuple):
    """A flag: its word is `no-NAME` where it is on by default, `NAME` where it is off, `NAME-N` for a number."""

    name: str
    of: str  # the dictionaries that have it
    does: str  # what its word does
    default: bool | int = True
    values: tuple[int, ...] = ()  # of a number: those that there are; none for any number from 1 on

    @property
    def word(self) -> str:
        """Its word, with N for any number.

        >>> [f.word for f in FLAGS if f.name in ("tile", "verify", "threads")]
        ['no-tile', 'verify', 'threads-N']
        """
        if self.is_number:
            return f"{self.name}-N"
        return f"no-{self.name}" if self.default else self.name

    @property
    def words(self) -> list[str]:
        """Its words, one for each of its values where those are listed."""
        return [f"{self.name}-{n}" for n in self.values] or [self.word]

    @property
    def is_number(self) -> bool:
        return type(self.default) is int

    def value(self, word: str) -> bool | int | None:
        """What a word sets it to; None for a word that is not its own."""
        if not self.is_number:
            return (not self.default) if word == self.word else None
        n = word.removeprefix(f"{self.name}-")
        right = n != word and n.isascii() and n.isdigit() and not n.startswith("0")
        return int(n) if right and (not self.values or int(n) in self.values) else None


FLAGS = (
    # Plans.
    Flag("fuse", "general", "each operation has a kernel of its own"),
    Flag("tiers", "general", "new and small programs are planned like others"),
    Flag("first", "general", "a tiny program's steps are compiled the first time too; the tests have it on"),
    Flag("partition", "general", "a long trace is planned as one program"),
    Flag("reuse", "general", "costly values of a row are computed again in each stage"),
    Flag("slices", "general", "a convolution of which a part is read is computed whole"),
    Flag("cover", "general", "a write into most of an array is a copy that is written over"),
    Flag("vectors", "general", "a matrix by a vector is a product like others"),
    Flag("turn", "general", "a transposed product is computed as it is, and transposed"),
    Flag("epilogues", "general", "nothing runs on a product's blocks"),
    Flag("attention", "general", "attention is a product, a softmax and a product, its weights in memory"),
    Flag("gemm", "general", "products are BLAS's where they can be"),
    Flag("blas", "general", "products are generated code where they can be"),
    Flag("native", "general", "scatters, running sums and sorts are plain calls of NumPy"),
    # Recording.
    Flag("shapes", "general", "shapes are inferred over ints at each call"),
    Flag("calls", "general", "what a call means is asked each time"),
    Flag("repeat", "general", "no sync is done again in short"),
    # Kernels and runs.
    Flag("split", "cpu cuda", "a reduction of few long rows stays with one thread, on a GPU with one block"),
    Flag("tile", "cpu cuda", "strided lanes are gathered; on a GPU, nothing is read through shared memory"),
    Flag("wide", "cpu cuda", "maps have 16 lanes everywhere; on a GPU, one element is read at a time"),
    Flag("widen", "cpu", "lanes run along the last axis, however short"),
    Flag("alternate", "cpu", "every other element is gathered and scattered"),
    Flag("together", "cpu", "columns are reduced a row at a time"),
    Flag("early", "cpu", "`any` and `all` read a row to its end"),
    Flag("pairs", "cpu", "short rows have lanes along themselves"),
    Flag("donate", "cpu", "results always go to fresh memory"),
    Flag("adopt", "cpu", "NumPy's results are copied"),
    Flag("rebind", "cpu", "what a plan takes at new extents is always worked out anew"),
    Flag("place", "cpu", "worker threads run where the system puts them"),
    Flag("ahead", "cpu", "kernels are compiled one after another"),
    Flag("graphs", "cpu", "a GPU's launches go one by one"),
    Flag("keep", "cuda", "a GPU's rows are read anew in each stage"),
    Flag("native-math", "cuda", "exp, tanh and quotients on a GPU by the rules of the CPU"),
    Flag("many", "cuda", "a GPU's equal kernels are launches of their own"),
    Flag("cudnn", "cuda", "a GPU's convolutions are products over windows, its attention lazyt's kernels"),
    # Asked for.
    Flag("autotune", "cpu", "times products to choose", False),
    Flag("interpret", "general", "the NumPy interpreter runs in place of kernels", False),
    Flag("verify", "general", "the program is checked after each pass", False),
    Flag("strict", "general",
         "a mistake of lazyt's own in what is done again is raised, not covered by the general way; tests have it on",
         False),
    Flag("width", "registers", "code for registers of so many float32", 0, (8, 4, 1)),
    Flag("threads", "registers", "N threads from the start, as by `set_num_threads(N)`", 0),
)  # fmt: skip


def _switches(of: str) -> dict[str, bool]:
    return {f.name: bool(f.default) for f in FLAGS if of in f.of.split()}


general, cpu, cuda = _switches("general"), _switches("cpu"), _switches("cuda")
registers: dict[str, int] = {f.name: int(f.default) for f in FLAGS if f.of == "registers"}
_DICTIONARIES: dict[str, dict[str, Any]] = {
    "general": general, "cpu": cpu, "cuda": cuda, "registers": registers,
}  # fmt: skip


def known() -> list[str]:
    """Every word, in order.

    >>> [w for w in known() if w.startswith("no-c")]
    ['no-calls', 'no-cover', 'no-cudnn']
    """
    return sorted(w for f in FLAGS for w in f.words)


def table() -> str:
    """The table of the docs: a row for each flag."""
    rows = [f"| {', '.join(f'`{w}`' for w in f.words)} | {f.does} |" for f in FLAGS]
    return "\n".join(["| word | what it does |", "| --- | --- |", *rows])


def read(text: str) -> None:
    """Set the flags of a comma-separated list of words. SettingError, and none is set, for an unknown word."""
    found: list[tuple[Flag, bool | int]] = []
    for word in filter(None, map(str.strip, text.split(","))):
        named = [(f, value) for f in FLAGS if (value := f.value(word)) is not None]
        if not named:
            raise SettingError(f"LAZYT_DEBUG: unknown word {word!r}; there are {', '.join(known())}")
        found += named
    for f, value in found:
        for of in f.of.split():
            _DICTIONARIES[of][f.name] = value


read(os.environ.get("LAZYT_DEBUG", ""))
