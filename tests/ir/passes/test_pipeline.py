"""The pipeline of passes: one list for plans, first runs and inspection; checks in between; programs planned once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.errors import LazytInternalError
from lazyt.ir import graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.passes import pipeline
from lazyt.ir.passes.pipeline import PASSES, Pass, compile_graph, register
from lazyt.ir.passes.program import Options, Program
from lazyt.ir.symbolic import Scope
from lazyt.ir.target import Target
from lazyt.runtime import first_run as stepwise, plan_cache as planning
from lazyt.tracing.trace import local

UNFUSED = Options(fused=False)


@pytest.fixture(autouse=True)
def _new_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan and no step of another test's is found."""
    lt.sync()
    planning._programs.clear()
    local.trace.reset_trie()
    monkeypatch.setattr(stepwise, "_kinds", {})


@contextmanager
def registered(new: Pass, after: str) -> Iterator[None]:
    take_out = register(new, after)
    try:
        yield
    finally:
        take_out()


def leaves(*shapes: tuple[int, ...]) -> tuple[Builder, list[g.Node]]:
    b = Builder()
    return b, [b.input(i, s, np.dtype("f4")) for i, s in enumerate(shapes)]


def test_a_new_pass_runs_in_plans_in_first_runs_and_in_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(general, "first", False)
    seen: list[tuple[bool, list[str]]] = []

    def looks(p: Program, options: Options) -> Program:
        seen.append((options.fused, [n.op for n in p.graph.nodes]))
        return p

    with registered(Pass("looks", looks), after="canonicalize"):
        x = lt.asarray(np.linspace(0, 1, 7, dtype="f4"))
        y = lt.exp(x) + lt.sin(x)
        lt.sync()
        assert [fused for fused, _ in seen] == [False] * 3, "an operation a time in the first run"
        seen.clear()
        del y
        y = lt.exp(x) + lt.sin(x)
        lt.explain(y)
        assert seen, "explain() looks at what would run"
        seen.clear()
        lt.sync()
        assert [fused for fused, _ in seen] == [True]
        assert {"exp", "sin", "add"} <= set(seen[0][1])


def test_a_pass_whose_flag_is_off_does_not_run() -> None:
    b, (x,) = leaves((3,))
    calls: list[str] = []

    def note(p: Program, options: Options) -> Program:
        calls.append("ran")
        return p

    with registered(Pass("note", note, "cover"), after="fuse"):
        compile_graph([b.elementwise("exp", x)], Scope(), Options(off=frozenset({"cover"})))
        assert not calls
        compile_graph([b.elementwise("exp", x)], Scope(), Options())
        assert calls == ["ran"]
    assert all(p.name != "note" for p in PASSES)


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    b, (x,) = leaves((3,))

    def wrong(p: Program, options: Options) -> Program:
        nodes = list(p.graph.nodes)
        nodes[-1] = g.Node("exp", nodes[-1].operands, None, (4,), nodes[-1].dtype, nodes[-1].serial, None)
        return replace(p, graph=g.Graph(nodes, [nodes[-1]]))

    with registered(Pass("wrong", wrong), after="canonicalize"):
        with pytest.raises(LazytInternalError, match="pass wrong: invalid graph"):
            compile_graph([b.elementwise("exp", x)], Scope(), Options(verify=True))
        compile_graph([b.elementwise("exp", x)], Scope(), Options(), until="wrong")


def test_a_pass_has_one_name_and_stands_behind_a_known_one() -> None:
    def nothing(p: Program, options: Options) -> Program:
        return p

    with pytest.raises(ValueError, match="there is a pass 'fuse' already"):
        register(Pass("fuse", nothing), after="canonicalize")
    with pytest.raises(ValueError, match="no pass 'none'; the passes are canonicalize, "):
        register(Pass("new", nothing), after="none")


def test_the_lists_of_passes_are_those_of_the_pipeline() -> None:
    names = [p.name for p in PASSES]
    drawn = (pipeline.__doc__ or "").partition("outputs -> ")[2].partition("-> Program.schedule")[0]
    assert re.split(r"\s*->\s*", drawn.strip()) == names
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    assert page.partition("`pipeline` lists them: ")[2].partition(";")[0].split(", ") == names


def test_compiling_up_to_a_pass_stops_there() -> None:
    b, (x, y) = leaves((3, 4), (3, 4))
    p = compile_graph([b.add(b.elementwise("exp", x), y)], Scope(), Options(), until="canonicalize")
    assert [n.op for n in p.graph.nodes] == ["input", "input", "exp", "add"]
    assert p.division is None
    assert p.schedule is None
    whole = compile_graph(p.graph.outputs, Scope(), Options())
    assert whole.schedule is not None
    assert len(whole.schedule.launches) == 1
    apart = compile_graph(p.graph.outputs, Scope(), UNFUSED)
    assert apart.schedule is not None
    assert len(apart.schedule.launches) == 2


# --- planned once -----------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of each compilation."""
    made: list[Options] = []
    compile_ = pipeline.compile_graph

    def counted(outputs: list[g.Node], scope: Scope, options: Options, until: str = "") -> Program:
        made.append(options)
        return compile_(outputs, scope, options, until)

    monkeypatch.setattr(pipeline, "compile_graph", counted)
    return made


@pytest.mark.parametrize("size", [5, 40_000])
@pytest.mark.parametrize("name", ["add", "exp", "sum"])
def test_a_program_that_fusion_does_not_change_is_planned_once(
    name: str, size: int, compiled: list[Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(general, "first", False)
    x, y = (lt.asarray(np.full(size, v, "f4")) for v in (2, 3))
    for _ in range(4):
        z = x + y if name == "add" else getattr(lt, name)(x)
        lt.sync()
        del z
    assert len(compiled) == 1


def test_a_program_that_fusion_changes_is_planned_fused_when_it_comes_again(compiled: list[Options]) -> None:
    x = lt.asarray(np.full(40_000, 2, "f4"))
    for _ in range(4):
        z = lt.exp(x) * 2.0
        lt.sync()
        del z
    assert [o.fused for o in compiled] == [False, True]


@pytest.mark.parametrize("light", [False, True])
def test_a_program_is_planned_once_only_where_its_device_would_fuse_nothing(light: bool) -> None:
    b, (x,) = leaves((64, 64))
    e = b.elementwise("exp", x)  # which a device with light functions computes again for each of its readers
    parts = [b.slice(e, start, shape, (1, 1)) for start, shape in (((0, 0), (20, 20)), ((30, 1), (20, 30)))]
    outputs = [b.reduce("sum", part, (1,)) for part in parts]
    target = Target(light_functions=light)
    settled, whole = (
        compile_graph(outputs, Scope(), Options(target, fused=fused, settle=not fused)) for fused in (False, True)
    )
    assert len(whole.launches) == 3 - light
    assert settled.fused is not light
    assert len(settled.launches) == 3


def test_an_operation_that_was_planned_by_itself_is_not_planned_for_a_first_run(
    compiled: list[Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(general, "first", False)
    x = lt.asarray(np.full(5, 2, "f4"))
    y = lt.sin(lt.cos(x))
    lt.sync()
    assert len(compiled) == 2, "sin and cos"
    del y
    y = lt.cos(x)
    lt.sync()
    assert len(compiled) == 2
    np.testing.assert_allclose(y.numpy(), np.cos(np.full(5, 2, "f4")), rtol=1e-6)
