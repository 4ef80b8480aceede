"""A failing program as a script of a few lines, which shows NumPy's result and lazyt's."""

from __future__ import annotations

from collections.abc import Sequence

from lazyt.testing.modes import Mode
from lazyt.testing.statements import MODES, Failure, Stopped, check

_NEW = """
def new(x):  # a value of its own, with the same order of elements
    return np.array(x, order="C") if isinstance(x, np.ndarray | np.generic) else x

"""


def script(title: str, lines: Sequence[str], failure: Failure) -> str:
    """A script that runs a program in NumPy and in lazyt, prints both results, and fails while they differ."""
    in_mode = next((m for m in MODES if str(m) == failure.kind), None)
    if not any(_writes(line) for line in lines):
        lines = [_without_new(line) for line in lines]
    text, name = "\n".join(lines), _result(lines, failure)
    names = [n for n in ("EAGER", "Mode") if n in _constructor(in_mode)]
    rows = [
        f'"""{title}: {failure.kind}. {" ".join(failure.message.split())}"""',
        "import numpy as np",
        "",
        "import lazyt as lt",
        "from lazyt.testing import assert_close, reference",
        *["from lazyt.testing.array_programs import leaf"] * ("leaf(" in text),
        f"from lazyt.testing.modes import {', '.join([*names, 'mode'])}",
        *["", "sync = lt.sync"] * ("sync()" in text),
        _NEW if "new(" in text else "\n",
        "def program(xp):",
        *(f"    {line}" for line in lines),
        "    return locals()  # what is held is computed: so all of it",
        "",
        "",
        f"expected = np.asarray(program(reference)[{name!r}])",
        f"with mode({_constructor(in_mode)}):",
    ]
    indent = "    "
    if in_mode is not None and in_mode.repeat > 1:
        rows.append(f"    for _ in range({in_mode.repeat}):")
        indent *= 2
    rows += [f"{indent}made = program(lt)", f"{indent}actual = made[{name!r}].numpy()"]
    return "\n".join([*rows, 'print("NumPy:", expected)', 'print("lazyt:", actual)', "assert_close(actual, expected)"])


def check_program(lines: Sequence[str]) -> None:
    """Check a program of statements against NumPy and in every mode; `lazyt.testing.strategies.programs` draws them.

    AssertionError with what differs and a script that shows it. A program that NumPy refuses passes.

    >>> check_program(["v0 = xp.asarray(np.arange(6.0))", "v1 = v0[::2]", "v1 += 2", "v2 = new(xp.exp(v0))"])
    """
    try:
        failure = check(lines)
    except Stopped:
        return
    if failure is not None:
        raise AssertionError(f"{failure.message}\n\n{script('A program', lines, failure)}")


def _constructor(m: Mode | None) -> str:
    if m is None:
        return "EAGER"
    plain = Mode("")
    fields = ("sync", "seed", "fuse", "tiers", "threads", "repeat")
    words = [f"{k}={getattr(m, k)!r}" for k in fields if getattr(m, k) != getattr(plain, k)]
    return f"Mode({', '.join([repr(m.name), *words])})"


def _writes(line: str) -> bool:
    name, equals, _ = line.partition(" = ")
    return not (equals and name.isidentifier()) and line != "sync()"


def _without_new(line: str) -> str:
    name, _, body = line.partition(" = ")
    return f"{name} = {body[4:-1]}" if body.startswith("new(") and body.endswith(")") else line


def _result(lines: Sequence[str], failure: Failure) -> str:
    """What is looked at: the value that was wrong, else what the last statement made or wrote."""
    return failure.name if failure.name.isidentifier() else lines[-1].split(" ")[0].split("[")[0]
