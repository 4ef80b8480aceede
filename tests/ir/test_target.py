"""One record describes the abilities of a device; passes get it as it is, and a flag acts on it once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest

import lazyt as lt
from lazyt.backends.registry import host
from lazyt.config import general
from lazyt.ir.passes.pipeline import PASSES
from lazyt.ir.target import OF_FLAG, Target
from lazyt.runtime.plan import options_for

ABILITIES = {f.name for f in fields(Target)}
ANNOTATED = re.compile(rf"\b({'|'.join(ABILITIES)}): ")
EVERY = Target(**dict.fromkeys(ABILITIES, True))
# Fields of other records that have the name of an ability, and what they say.
NO_ABILITIES = {("Convolution", "winograd"): "what the program allows"}


def named_as_abilities(files: Iterable[Path]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The fields of classes, and the parameters of functions, that have the name of an ability."""
    own, given = set(), set()
    texts = [text for path in files if ANNOTATED.search(text := path.read_text())]
    for n in (n for text in texts for n in ast.walk(ast.parse(text))):
        if isinstance(n, ast.ClassDef):
            names = [b.target.id for b in n.body if isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name)]
            own |= {(n.name, name) for name in names if name in ABILITIES}
        elif isinstance(n, ast.FunctionDef):
            names = [a.arg for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs)]
            given |= {(n.name, name) for name in names if name in ABILITIES}
    return own, given


def test_an_ability_is_declared_in_one_place() -> None:
    """A record or a pass that needs one has the `Target`, no copy of its field."""
    package = Path(lt.__file__).parent
    own, _ = named_as_abilities(package.rglob("*.py"))
    assert own == {("Target", name) for name in ABILITIES} | NO_ABILITIES.keys()
    assert named_as_abilities([package / "ir" / "builder.py"])[1] == {("__init__", "share")}, "they are found"
    _, given = named_as_abilities((package / "ir" / "passes").glob("*.py"))
    assert not given, "these have a parameter with the name of an ability"


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
