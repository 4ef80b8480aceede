"""Faults planted in lazyt, one at a time: the search of pairs finds each in its first programs that concern it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pytest

from lazyt.autograd import engine, parts, saved_segment
from lazyt.autograd.rules.elementwise import UNARY
from lazyt.autograd.rules.registry import VJP
from lazyt.autograd.tangents import JVP
from lazyt.config import general
from lazyt.ir.adjoints import place as placed
from lazyt.ir.passes import fuse, kernelize
from lazyt.runtime import first_run
from lazyt.testing.kinds import Kind
from lazyt.testing.seeds import Coverage
from lazyt.testing.statements import Stopped
from lazyt.tracing import inplace
from tests.support.fuzz.checked_lines import place
from tests.support.fuzz.feature_pairs import FeaturePairs, programs
from tests.support.fuzz.operation_pairs import OperationPairs, pairs

pytestmark = pytest.mark.slow

# So many programs of the search, in its order, are tried until one fails.
MOST = 40

Patch = pytest.MonkeyPatch


def wrong_slope(patch: Patch) -> None:
    """The derivative of tanh lacks a square."""
    patch.setitem(UNARY, "tanh", lambda x, y: 1 - y)


def lost_sum(patch: Patch) -> None:
    """The gradient of what is broadcast is that of its first copy."""

    def rule(b: Any, n: Any, ct: Any) -> Any:
        x = n.operands[0]
        return (b.slice(ct, (0,) * x.ndim, x.shape, (1,) * x.ndim),)

    patch.setitem(VJP, "expand", rule)


def swapped_parts(patch: Patch) -> None:
    """The gradients of what is joined are read from the other end."""

    def rule(b: Any, n: Any, ct: Any) -> Any:
        axis, end, found = n.attrs.axis, n.shape[n.attrs.axis], []
        for x in n.operands:
            end = end - x.shape[axis]
            found.append(b.slice(ct, tuple(end if i == axis else 0 for i in range(n.ndim)), x.shape, (1,) * n.ndim))
        return tuple(found)

    patch.setitem(VJP, "concat", rule)


def partly_covered(patch: Patch) -> None:
    """Fusion takes a slice that starts at 0 for the whole value."""
    right = fuse._Fuser._axes_over
    patch.setattr(fuse._Fuser, "_axes_over", lambda self, n, p, whole: right(self, n, p, whole=False))


def missing_store(patch: Patch) -> None:
    """A kernel of several results leaves out the last one."""
    right = kernelize._Kernelizer.stages
    patch.setattr(kernelize._Kernelizer, "stages", lambda self, found: right(self, found[: max(1, len(found) - 1)]))


def lost_view_write(patch: Patch) -> None:
    """A write through a view leaves what it views as it was."""
    patch.setattr(inplace, "put_back", lambda tr, v, base, value: base)


def lost_hook(patch: Patch) -> None:
    """A hook is forgotten by the sync that computes its value."""
    right = saved_segment.Segment.__init__

    def init(self: Any, *args: Any) -> None:
        right(self, *args)
        self.hooks = {}

    patch.setattr(saved_segment.Segment, "__init__", init)


def lost_gradient(patch: Patch) -> None:
    """A value that was computed before `backward()` does not keep its gradient."""
    for module in (engine, parts):
        patch.setattr(module, "retained", lambda tr, passed: {})


def kept_tangent(patch: Patch) -> None:
    """What is written over keeps its tangent."""

    def rule(b: Any, n: Any, ts: Any) -> Any:
        s, t = ts
        if t is None:
            return s
        x = n.operands[0]
        added = placed(b, t, x.shape, n.attrs.starts, n.attrs.steps)
        return added if s is None else b.add(s, added)

    patch.setitem(JVP, "update", rule)


def lost_parameter(patch: Patch) -> None:
    """A checkpoint gives no gradient to parameters that its function refers to."""
    right = parts.Parts._discover

    def discover(self: Any, sources: Any) -> None:
        before = self.is_wanted
        if self.through:  # found on the way
            self.is_wanted = lambda m: m in self.groups and before(m)
        right(self, sources)
        self.is_wanted = before

    patch.setattr(parts.Parts, "_discover", discover)


def of_operations(names: Sequence[str]) -> Iterator[int]:
    """The seeds of pairs of which one operation is among these."""
    return (s for s in range(pairs().total) if any(u.name in names for u in pairs().of(s)))


def of_features(texts: Sequence[str]) -> Iterator[int]:
    """The seeds of programs with all of these in their line."""
    every = programs()
    return (s for s in range(len(every)) if all(text in every[place(s, len(every))] for text in texts))


class Fault(NamedTuple):
    """A fault, and the programs of the search that concern it."""

    plant: Callable[[Patch], None]
    kind: Kind
    seeds: Callable[[], Iterator[int]]


def operations(plant: Callable[[Patch], None], *names: str) -> Fault:
    return Fault(plant, OperationPairs(), partial(of_operations, names))


def features(plant: Callable[[Patch], None], *names: str) -> Fault:
    return Fault(plant, FeaturePairs(), partial(of_features, names))


FAULTS = (
    operations(wrong_slope, "tanh"),
    operations(lost_sum, "broadcast_to", "add", "multiply"),
    operations(swapped_parts, "concat"),
    operations(partly_covered, "roll"),
    operations(missing_store, "add", "multiply"),
    operations(lost_view_write, "exp"),
    features(lost_hook, "hooked(", "read("),
    features(lost_gradient, "retained(", "synced("),
    features(kept_tangent, "forward(chain(written("),
    features(lost_parameter, "checkpointed("),
)


def run(fault: Fault, seeds: Sequence[int]) -> tuple[list[int], str]:
    """Run these programs up to the first that fails: the seeds that were run, and the kind of the failure."""
    done = []
    for seed in seeds:
        done.append(seed)
        try:
            failure = fault.kind.run(seed, fault.kind.write(seed, lambda lines: None), Coverage())
        except Stopped:
            continue
        # NOTE: a refusal by name is none of these faults.
        if failure is not None and not failure.kind.endswith(": refused"):
            return done, failure.kind
    return done, ""


@pytest.mark.parametrize("fault", FAULTS, ids=[f.plant.__name__ for f in FAULTS])
def test_the_search_of_pairs_finds_a_planted_fault(fault: Fault, monkeypatch: Patch) -> None:
    # As the search runs. Plans with a fault are not kept: neither on disk, nor those of one operation.
    monkeypatch.setitem(general, "stored", False)
    monkeypatch.setitem(general, "verify", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_run, "_kinds", {})
        fault.plant(patch)
        tried, found = run(fault, [*islice(fault.seeds(), MOST)])
    print(f"{fault.plant.__name__}: program {len(tried)} (seed {tried[-1]}): {found}")
    assert found, f"{len(tried)} programs found nothing"
    assert run(fault, tried) == (tried, "")
