"""One seed: generates its program, runs it beside NumPy and in the modes of the seed, and reduces it if it fails.

Most programs run as a user's small program does the first time: each operation through a plan that all programs share,
which costs milliseconds. Some are planned, fused and compiled, some interpreted, and some differentiated.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lazyt.testing import array_programs, mixed_programs, view_programs
from lazyt.testing.choices import choices_of
from lazyt.testing.composed import COMPOSED
from lazyt.testing.gradient_programs import SMOOTH, GradientWriter, check_gradients
from lazyt.testing.kinds import EVERY, KINDS, SELDOM as SELDOM_KINDS, Kind, is_known, kind_of_lines
from lazyt.testing.mixed_programs import CALLED, Unwritten, table
from lazyt.testing.modes import FIRST_BY_NUMPY, FIRST_RUN, FIRST_RUN_EACH, RANDOM, Mode
from lazyt.testing.scripts import script
from lazyt.testing.shrink import shrink
from lazyt.testing.statements import (  # fmt: skip
    CHECKED,
    INTERPRETED,
    LIGHT,
    MODES,
    SELDOM,
    Array,
    Failure,
    Stopped,
    beside,
    beside_numpy,
    check,
    in_modes,
    raises,
    written,
)

LENGTH = 8
GRADIENT = (
    FIRST_RUN,
    Mode("synced at random (seed 5)", RANDOM, 5, tiers=True),
    Mode("run again", repeat=3, tiers=True, fine=True, threads=2),
)


_GRADIENT = '''"""Seed {seed}: a gradient that the slope in NumPy does not confirm."""
from lazyt.testing.gradient_programs import check_gradients
from lazyt.testing.seeds import GRADIENT

failure = check_gradients([
    {lines},
], GRADIENT)
assert failure is None, failure.message
'''


@dataclass(frozen=True)
class Found:
    """A failing program: as it was written, as it was made small, and how it fails."""

    seed: int
    lines: list[str]
    small: list[str]
    failure: Failure

    def signature(self) -> tuple[str, ...]:
        """What is like another finding."""
        return signature_of(self.failure, self.small[-1] if self.small else "")

    def script(self) -> str:
        """The small program as a script that shows NumPy's result and lazyt's, and exits with 1 while they differ."""
        if self.failure.kind.startswith("gradient"):
            return _GRADIENT.format(seed=self.seed, lines=",\n    ".join(map(repr, self.small)))
        named = [kind for name, kind in KINDS.items() if self.failure.kind.startswith(name)]
        kind = named[0] if named else kind_of_lines(self.lines)
        if kind is not None:
            return kind.script(f"Seed {self.seed}", self.small)
        return script(f"Seed {self.seed}", self.small, self.failure)


@dataclass
class Coverage:
    """What the programs of a search were made of, and how they ran."""

    programs: Counter[str] = field(default_factory=Counter)  # by kind; 'refused' by NumPy, at a 'kink'
    modes: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)  # all, views, writes in place
    families: Counter[str] = field(default_factory=Counter)  # of kinds that have them

    def add(self, other: Coverage) -> None:
        """Add what another search covered."""
        for name in ("programs", "modes", "functions", "dtypes", "statements", "families"):
            getattr(self, name).update(getattr(other, name))

    def of(self, lines: Sequence[str], history: Sequence[dict[str, Array]] = ()) -> None:
        """Count a program."""
        for line in lines:
            self.statements["statements"] += 1
            if _WRITE.match(line):
                self.statements["writes in place"] += 1
            elif " = new(" not in line and "leaf(" not in line and not line.startswith(("sync", "del")):
                self.statements["views"] += 1
            self.functions.update(a or b.strip() for a, b in CALLED.findall(line))
        for made in history:
            self.dtypes.update(str(v.dtype) for v in made.values())

    def __str__(self) -> str:
        called = {n.removeprefix("nn.functional.") for n in self.functions}
        missing = sorted(everything() - called)
        text = [
            "programs: " + _counts(self.programs),
            "modes: " + _counts(self.modes),
            "statements: " + _counts(self.statements),
            "results: " + _counts(self.dtypes),
            *(["families: " + _counts(self.families)] if self.families else []),
            f"functions: {len(everything() & called)} of {len(everything())}"
            + (f"; never drawn: {', '.join(missing)}" if missing else "")
            + "; seldomest: " + _counts(Counter({n: self.functions[n] for n in everything() & called}), seldom=5),
        ]  # fmt: skip
        return "\n".join(text)


_WRITE = re.compile(r"v\d+(\[.*?\] =| [-+*&|^]=|\[.*?\] [-+*&|^]=) ")


def _counts(c: Counter[str], seldom: int = 0) -> str:
    rows = c.most_common()[: -seldom - 1 : -1] if seldom else c.most_common()
    return ", ".join(f"{n} {k:,}" for n, k in rows)


def everything() -> set[str]:
    """The functions that programs may call."""
    composed = {m[0] for t in COMPOSED if (m := re.match(r"[\w.]+", t))}
    smooth = {m for t in SMOOTH for m in re.findall(r"xp\.([\w.]+)\(", t)}
    return {*table(), *composed, *smooth, *array_programs.FLOAT_UNARY, *array_programs.ANY_UNARY}


def kind_of(seed: int) -> str:
    """What the program of a seed is: 'mixed', 'arrays', 'views', or one of the seldom and costly kinds."""
    if seed % EVERY in SELDOM_KINDS:
        return SELDOM_KINDS[seed % EVERY]
    return {4: "arrays", 5: "views"}.get(seed % 6, "mixed")


def _nobody(lines: list[str]) -> None:
    """Nobody is told."""


Writer = array_programs.Writer | view_programs.Writer


def written_program(
    seed: int, length: int = LENGTH, tell: Callable[[list[str]], None] = _nobody, kind: str = ""
) -> Any:
    """The writer of the program of a seed, done. Raises `Unwritten` where lazyt fails while it is being written.

    `tell` is called with the statements so far before each one is run. `kind`: another one than the seed's.
    """
    rng = random.Random(seed)

    def pick(n: int) -> int:
        return rng.randrange(n)

    kind = kind or kind_of(seed)
    if kind in KINDS:
        return KINDS[kind].write(seed, tell)
    if kind == "views":
        views = view_programs.Writer(pick)
        with np.errstate(all="ignore"):
            views.program(length, syncs=True)
        return views
    made = {"arrays": array_programs.Writer, "gradients": GradientWriter}.get(kind, mixed_programs.MixedWriter)
    w: array_programs.Writer = made(pick, choices=choices_of(seed))
    w.tell = tell
    mixed_programs.write_at_once(w, length)
    return w


def write(seed: int, length: int = LENGTH) -> list[str]:
    """The statements of the program of a seed. Raises `Unwritten` where lazyt fails while it is being written."""
    lines: list[str] = written_program(seed, length).lines
    return lines


def try_seed(
    seed: int,
    seconds: float = 60.0,
    tell: Callable[[list[str]], None] = _nobody,
    covered: Coverage | None = None,
    known: set[tuple[str, ...]] | None = None,
    kind: str = "",
) -> Found | None:
    """Write the program of a seed, run it, and make it small if it fails; `tell` hears of what is run.

    A failure of a kind in `known` is not made small; any other is put there.
    """
    covered = Coverage() if covered is None else covered
    kind = kind or kind_of(seed)
    covered.programs[kind] += 1
    w: Any = None
    try:
        w = written_program(seed, tell=tell, kind=kind)
        lines = w.lines
        covered.of(lines, getattr(w, "history", ()))
    except Unwritten as e:
        lines = e.lines
    tell(lines)
    try:
        failure = _fails(seed, kind, lines, w, covered)
    except Stopped as e:
        covered.programs["at a kink" if str(e) == "a kink" else "refused"] += 1
        return None
    if failure is None:
        return None
    if is_known(failure, lines):
        return Found(seed, lines, lines, failure)
    if known is not None and (signature := signature_of(failure, lines[min(failure.line, len(lines) - 1)])) in known:
        return Found(seed, lines, up_to(lines, failure), failure)
    if known is not None:
        known.add(signature)
    if kind in KINDS:
        return small_of(KINDS[kind], seed, lines, failure, lambda x: KINDS[kind].again(x, failure), seconds)
    again = recheck_gradients if kind == "gradients" and failure.kind.startswith("gradient") else recheck
    return small(seed, lines, failure, lambda x: again(x, failure), seconds)


def _fails(seed: int, kind: str, lines: list[str], w: Any, covered: Coverage) -> Failure | None:
    if w is None:
        return check(lines, (*LIGHT, *CHECKED))
    modes: tuple[Mode, ...]
    if kind in KINDS:
        return KINDS[kind].run(seed, w, covered)
    if kind == "gradients":
        modes = (GRADIENT[0], GRADIENT[1 + seed // EVERY % 2])
        covered.modes.update(f"backward(), {m}" for m in modes)
        return check_gradients(lines, modes)
    if kind == "interpreted":
        covered.modes[str(INTERPRETED)] += 1
        return beside_numpy(lines, INTERPRETED)[1]
    if kind == "compiled":
        modes = tuple(random.Random(seed).sample(MODES, 2))
    else:
        modes = ((FIRST_RUN, SELDOM, FIRST_BY_NUMPY)[seed // 7 % 3],)
    covered.modes.update(map(str, modes))
    if isinstance(w, view_programs.Writer):
        fine = in_modes(lines, {n: np.array(w.array(n)) for n in w.names}, set(), modes) is None
    else:
        covered.modes[str(FIRST_RUN_EACH)] += 1
        fine = written(lines, w.history) and in_modes(lines, w.values, w.tainted, modes) is None
    return None if fine else check(lines, (*LIGHT, *modes)) or _unlike(lines, w)


def _unlike(lines: list[str], w: Writer) -> Failure | None:
    """A failure that another run of the program does not show: while it was written lazyt gave something else."""
    if isinstance(w, view_programs.Writer):
        return None
    each = beside_numpy(lines, FIRST_RUN_EACH)[1]
    return each or Failure("once", lines[-1].split(" ")[0], "wrong while it was written, and not again")


def signature_of(failure: Failure, line: str) -> tuple[str, ...]:
    """What is like another failure: how it fails, and the functions of the line that does."""
    return (failure.kind, *sorted({a or b for a, b in CALLED.findall(line)}))


def small(
    seed: int, lines: list[str], failure: Failure, again: Callable[[list[str]], Failure | None], seconds: float
) -> Found:
    """The failing program, shrunk for as long as `again` gives a failure of the same kind."""
    best = shrink(up_to(lines, failure), lambda x: failure.same(again(x)), seconds)
    return Found(seed, lines, best, again(best) or failure)


def small_of(
    kind: Kind,
    seed: int,
    lines: list[str],
    failure: Failure,
    again: Callable[[list[str]], Failure | None],
    seconds: float,
) -> Found:
    """The same for a program of a registered kind."""
    best = kind.shrink(lines, lambda x: failure.same(again(x)), seconds)
    return Found(seed, lines, best, again(best) or failure)


def up_to(lines: list[str], failure: Failure) -> list[str]:
    """The program without what follows the statement that failed, where one did."""
    return lines[: failure.line + 1] if failure.kind.startswith(("numpy", "raises")) else lines


def recheck(lines: Sequence[str], failure: Failure) -> Failure | None:
    """Run a program as far as it takes to see whether it fails in the same way."""
    for each in (INTERPRETED, FIRST_RUN_EACH):
        if failure.kind in (raises(each), beside(each)):
            try:
                return beside_numpy(lines, each)[1]
            except (Stopped, SyntaxError):
                return None
    try:
        values, first, tainted = beside_numpy(lines)
    except (Stopped, SyntaxError):
        return None
    if first is not None:
        return first
    return in_modes(lines, values, tainted, [m for m in (*LIGHT, *MODES) if str(m) == failure.kind])


def recheck_gradients(lines: Sequence[str], failure: Failure) -> Failure | None:
    """Whether a program's gradients are wrong in the same way."""
    try:
        return check_gradients(lines, [m for m in GRADIENT if f"gradient, {m}" == failure.kind or m is GRADIENT[0]])
    except (Stopped, SyntaxError, KeyError):
        return None
