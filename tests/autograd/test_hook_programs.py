"""Random programs with hooks: gradients, and what hooks see, do not depend on syncs (see docs/testing.md)."""

from __future__ import annotations

import pytest

import lazyt as lt
from lazyt.autograd import parts
from tests.support.fuzz.hook_programs import Hooks, Program, check_hooks


@pytest.mark.parametrize("seed", range(24))
def test_hooks_do_not_depend_on_syncs(seed: int) -> None:
    lines = Program(seed).lines
    assert Hooks().includes(lines) and lines == Program(seed).lines
    failure = check_hooks(lines)
    assert failure is None, failure.message


TWICE = """
x0 = asked(0.4, 0.7)
v1 = xp.tanh(x0)
v1.register_hook(look)
v1.register_hook(lambda g: g * g)
v2 = slope((v1 * v1).sum(), x0)
v3 = slope(v2.sum(), x0)
backward(v3.sum())
""".strip()


def test_a_hook_that_sees_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_hooks(TWICE) is None
    through = parts.through_hooks
    synced = []

    def scaled(hooks, ct):
        return through(hooks, ct * 2 if synced else ct)

    monkeypatch.setattr(parts, "through_hooks", scaled)
    sync = lt.sync
    monkeypatch.setattr(lt, "sync", lambda: synced.append(sync()))
    failure = check_hooks(TWICE)
    assert failure is not None and failure.kind.startswith("hooks, synced after each statement")
