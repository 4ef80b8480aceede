"""What a device can do is described in one record, which passes are given as it is; a flag acts on it once."""

from __future__ import annotations

import ast
from dataclasses import fields

import pytest

import lazyt as lt
from lazyt.backends.registry import host
from lazyt.config import general
from lazyt.ir.passes.pipeline import PASSES
from lazyt.ir.target import OF_FLAG, Target
from lazyt.runtime.first_run import options_for
from tests.test_structure import SOURCES, same

ABILITIES = {f.name for f in fields(Target)}
EVERY = Target(**dict.fromkeys(ABILITIES, True))
# Fields of other records that have the name of an ability, and what they say.
NO_ABILITIES = {("Convolution", "winograd"): "what the program allows"}


def named_as_abilities(tree: ast.Module) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The fields of classes, and the parameters of functions, that have the name of an ability."""
    own, given = set(), set()
    for n in ast.walk(tree):
        if isinstance(n, ast.ClassDef):
            names = [b.target.id for b in n.body if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)]
            own |= {(n.name, name) for name in names if name in ABILITIES}
        elif isinstance(n, ast.FunctionDef):
            names = [a.arg for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs)]
            given |= {(n.name, name) for name in names if name in ABILITIES}
    return own, given


def test_an_ability_is_declared_in_one_place() -> None:
    """A record or a pass that needs one has the `Target`, no copy of its field."""
    found = {m: named_as_abilities(s.tree) for m, s in SOURCES.items()}
    own = {("Target", name): "" for name in ABILITIES} | NO_ABILITIES
    same({pair for fields_, _ in found.values() for pair in fields_}, own, "fields with the name of an ability")
    passed = {pair for m, (_, given) in found.items() if m.startswith("lazyt.ir.passes.") for pair in given}
    same(passed, (), "parameters of passes with the name of an ability")


def test_passes_need_abilities_that_there_are() -> None:
    assert {p.needs for p in PASSES} - {""} <= ABILITIES


@pytest.mark.parametrize("flag", OF_FLAG)
def test_a_flag_takes_its_abilities_from_a_device_and_no_others(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host(), "capabilities", lambda device: EVERY, raising=False)
    monkeypatch.setitem(general, flag, False)
    for fused in (True, False):
        found = options_for("cpu", fused).target
        lost = {name for name in ABILITIES if getattr(found, name) != getattr(EVERY, name)}
        assert lost == set(OF_FLAG[flag])
        assert all(getattr(found, name) == getattr(Target(), name) for name in lost)


def test_plugins_import_the_record_by_its_public_name() -> None:
    assert lt.backends.Capabilities is Target
