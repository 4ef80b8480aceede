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
from typing import Any, Final, NamedTuple

from lazyt.errors import SettingError

# The device where none is asked for. Its buffers lie in the host's memory, so NumPy reads them without a copy.
HOST: Final = "cpu"
# The kind of device that PyTorch's names of GPUs mean.
NVIDIA: Final = "cuda"


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
    Flag("fuse", "general", "a kernel for each operation"),
    Flag("tiers", "general", "new and small programs are planned as others"),
    Flag("first", "general", "a tiny program's steps are compiled the first time too; set in the tests"),
    Flag("partition", "general", "a long program is planned as one"),
    Flag("stored", "general", "plans are neither kept on disk nor looked for there; set in the tests"),
    Flag("reuse", "general", "each stage of a row kernel computes all that it needs"),
    Flag("slices", "general", "a convolution of which a part is read is computed whole"),
    Flag("views", "general", "convolutions read copies of parts of images, and of filters that are flipped"),
    Flag("winograd", "general", "convolutions go by the window, also where Winograd's algorithm is allowed"),
    Flag("cover", "general", "a write into most of an array copies the array first"),
    Flag("vectors", "general", "products with a vector, and of many tiny matrices, are computed as others"),
    Flag("halves", "general", "products read float32 copies of float16 and bfloat16 operands"),
    Flag("merge", "general", "an elementwise value is stored before a reduction merges its axes"),
    Flag("join", "general", "a value whose axes cannot be merged is stored before a reduction merges them"),
    Flag("turn", "general", "a transposed product is computed, then transposed"),
    Flag("pack", "general", "a matrix that many products read transposed is transposed by each of them"),
    Flag("inplace", "general", "no temporary takes the memory of another one that dies where it is made"),
    Flag("epilogues", "general", "products have no epilogues"),
    Flag("attention", "general", "attention is a product, a softmax and a product, with its weights in memory"),
    Flag("gemm", "general", "products are BLAS's where possible"),
    Flag("blas", "general", "products are generated code where possible"),
    Flag("native", "general", "scatters, running sums, sorts and small matrices are calls of NumPy"),
    # Recording.
    Flag("shapes", "general", "shapes are inferred at each call"),
    Flag("calls", "general", "no cached calls"),
    Flag("repeat", "general", "no replay of syncs"),
    Flag("jit", "general", "functions under `jit` are called each time"),
    # Kernels and runs.
    Flag("split", "cpu cuda", "a reduction of few long rows stays with one thread, on a GPU with one block"),
    Flag("tile", "cpu cuda", "strided lanes are gathered; on a GPU, nothing is read through shared memory"),
    Flag("wide", "cpu cuda", "maps have 16 lanes everywhere; on a GPU, one element is read at a time"),
    Flag("widen", "cpu", "lanes run along the last axis, even if it is short"),
    Flag("interior", "cpu", "conditions on places are masks everywhere, not only where they divide a vector"),
    Flag("peel", "cpu", "rows and maps have masks everywhere, not only in their last vector"),
    Flag("alternate", "cpu", "every other element is gathered and scattered"),
    Flag("interleave", "cpu", "every other element is stored by itself, and those between them in a later iteration"),
    Flag("together", "cpu", "columns are reduced one row at a time"),
    Flag("early", "cpu", "`any` and `all` read a row to its end"),
    Flag("stream", "cpu", "large results are written through the caches"),
    Flag("amx", "cpu", "where there is AMX, products and convolutions of bfloat16 multiply their elements as float32"),
    Flag("gemv", "cpu", "products of few rows by a transposed matrix are computed as larger ones"),
    Flag("skew", "cpu", "each step of a stencil is a pass over memory"),
    Flag("pairs", "cpu", "short rows have lanes along themselves"),
    Flag("donate", "cpu", "results never take the memory of inputs"),
    Flag("panels", "cpu", "operands of products are packed by each run"),
    Flag("adopt", "general cpu", "NumPy's results are copied"),
    Flag("rebind", "cpu", "bindings for new extents are always computed in full"),
    Flag("place", "cpu", "the system places worker threads"),
    Flag("optimize", "cpu", "machine code is generated as fast as LLVM can: compiling takes half as long"),
    Flag("ahead", "cpu", "kernels are compiled one after another"),
    Flag("graphs", "cpu", "no CUDA graphs"),
    Flag("keep", "cuda", "a GPU's rows are read again in each stage"),
    Flag("native-math", "cuda", "exp, tanh and quotients on a GPU by the rules of the CPU"),
    Flag("tensor-cores", "cuda", "attention on a GPU by fused multiply-adds, of halves and where tf32 is allowed too"),
    Flag("many", "cuda", "equal kernels on a GPU are separate launches"),
    Flag("cudnn", "cuda", "convolutions on a GPU are products over windows, attention is lazyt's kernels"),
    # Asked for.
    Flag("autotune", "cpu", "products are timed to choose a strategy", False),
    Flag("interpret", "general", "the NumPy interpreter in place of kernels", False),
    Flag("verify", "general", "the program is checked after each pass", False),
    Flag("guards", "general", "users' kernels run between guard zones: a write outside of their results is an error",
         False),
    Flag("poison", "cpu", "memory of results and temporaries has NaN in it before a run writes there", False),
    Flag("strict", "general",
         "schedules are checked, and an error of lazyt's own in a replay is raised, not replaced by the general path; "
         "set in the tests",
         False),
    Flag("traceback", "general", "errors keep the frames of lazyt in their tracebacks", False),
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
