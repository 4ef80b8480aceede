"""Small programs with state that `jit` must not freeze: `PROGRAMS`, filled by the modules here."""

from tests.support.jit_programs import (
    arguments,
    disguises,
    effects,
    iterators,
    modules,
    others,
    randomness,
    reads,
    recursion,
    results,
)
from tests.support.jit_programs.table import PROGRAMS, outcome

__all__ = [
    "PROGRAMS", "arguments", "disguises", "effects", "iterators", "modules", "others", "outcome", "randomness", "reads",
    "recursion", "results",
]  # fmt: skip
