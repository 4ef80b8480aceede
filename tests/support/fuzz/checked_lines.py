"""Kinds of programs of one statement a line, which one function runs in every way and checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from lazyt.testing.kinds import Kind
from lazyt.testing.statements import Failure, Stopped
from tests.support.fuzz.shrink_source import shrink_lines

_SCRIPT = '''"""{title}: {fault}."""
from {module} import {check}

failure = {check}("""
{lines}
""")
assert failure is None, failure.message
'''


def place(seed: int, total: int) -> int:
    """A place in a list of `total`: that many seeds in a row visit each once, fewer are a sample of all of it.

    >>> sorted(place(seed, 6) for seed in range(7, 13))
    [0, 1, 2, 3, 4, 5]
    """
    stride = next(k for k in itertools.count(max(int(total * 0.618), 1)) if math.gcd(k, total) == 1)
    return seed * stride % total


class CheckedLines(Kind):
    """A kind whose programs begin with a line of their own; a subclass stands in the module of its check."""

    start: str  # what that line begins with
    fault: str  # what a program that fails is, for its script
    checked: Callable[[Sequence[str] | str], Failure | None]  # SyntaxError for what is no program
    written: Callable[[int], Any]  # the writer of a seed, done

    def write(self, seed: int, tell: Callable[[list[str]], None]) -> Any:
        """The writer of the program of a seed, done."""
        w = type(self).written(seed)
        tell(w.lines)
        return w

    def run(self, seed: int, writer: Any, covered: Any) -> Failure | None:
        """Run it in each way."""
        covered.modes[self.name] += 1
        return self.check(writer.lines)

    def check(self, lines: Sequence[str]) -> Failure | None:
        """Run a program in each way."""
        return type(self).checked(lines)

    def again(self, lines: Sequence[str], failure: Failure) -> Failure | None:
        """Run a program as far as it takes to see whether it fails in the same way."""
        try:
            return self.check(lines)
        except (SyntaxError, Stopped):
            return None

    def script(self, title: str, lines: Sequence[str]) -> str:
        """A script that runs a program in each way, and fails while they differ."""
        module, check = type(self).__module__, type(self).checked.__name__
        return _SCRIPT.format(title=title, fault=self.fault, module=module, check=check, lines="\n".join(lines))

    def includes(self, lines: Sequence[str]) -> bool:
        """Whether a program is one of these."""
        return any(line.startswith(self.start) for line in lines)

    shrink = staticmethod(shrink_lines)
