"""Further kinds of random programs: how a search writes, runs, reduces and prints one.

`seeds.py` writes programs of statements, which run beside NumPy. A module that defines another kind registers it; the
processes of a search import that module too.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazyt.testing.statements import Failure


class Kind(abc.ABC):
    """A kind of program, by its name; failures of such a program have kinds that begin with that name."""

    name: str
    agrees: str  # what lazyt agrees with where no failure is found

    @abc.abstractmethod
    def write(self, seed: int, tell: Callable[[list[str]], None]) -> Any:
        """The writer of the program of a seed, done: an object with `lines`."""

    @abc.abstractmethod
    def run(self, seed: int, writer: Any, covered: Any) -> Failure | None:
        """Run what `writer` has written in the modes of the seed, and count it in `covered` (`seeds.Coverage`)."""

    @abc.abstractmethod
    def check(self, lines: Sequence[str]) -> Failure | None:
        """Run a program in every mode."""

    @abc.abstractmethod
    def again(self, lines: Sequence[str], failure: Failure) -> Failure | None:
        """Run a program as far as it takes to see whether it fails in the same way."""

    @abc.abstractmethod
    def shrink(self, lines: Sequence[str], fails: Callable[[list[str]], bool], seconds: float) -> list[str]:
        """A smaller program that still fails."""

    @abc.abstractmethod
    def script(self, title: str, lines: Sequence[str]) -> str:
        """A script that runs a program, and fails while the program does."""

    @abc.abstractmethod
    def includes(self, lines: Sequence[str]) -> bool:
        """Whether a program is of this kind."""

    def is_known(self, failure: Failure, lines: Sequence[str]) -> bool:
        """Whether a failure is known, and so is counted and not reported."""
        return False


KINDS: dict[str, Kind] = {}
# Of so many seeds one is planned, fused and compiled; one is interpreted; one is differentiated.
EVERY = 300
# The kinds of seeds, modulo EVERY, that are seldom and costly.
SELDOM = {62: "compiled", 141: "interpreted", 220: "gradients"}


def register(kind: Kind, *places: int) -> None:
    """Searches of all programs write this kind for the seeds that are `places` modulo EVERY."""
    KINDS[kind.name] = kind
    SELDOM.update(dict.fromkeys(places, kind.name))


def modules() -> list[str]:
    """What a process imports to know the same kinds."""
    return sorted({type(kind).__module__ for kind in KINDS.values()})


def kind_of_lines(lines: Sequence[str]) -> Kind | None:
    """The registered kind that a program is of; None for one of statements."""
    return next((kind for kind in KINDS.values() if kind.includes(lines)), None)


def is_known(failure: Failure, lines: Sequence[str]) -> bool:
    """Whether any kind knows the failure."""
    return any(kind.is_known(failure, lines) for kind in KINDS.values())
