"""Effects: functions of the host in a recorded program run once each, in order, at the sync, however it is planned."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.errors import IndexOutOfRange, LazytInternalError
from lazyt.ir import dtypes, graph as g
from lazyt.ir.builder import Builder
from lazyt.ir.graph_interpreter import interpret
from lazyt.ir.passes.pipeline import compile_graph
from lazyt.ir.passes.program import Options
from lazyt.ir.passes.verify import is_effect, verify
from lazyt.ir.symbolic import Scope
from lazyt.ops.numpy_calls import Call, Place
from lazyt.runtime import division

TOKEN = [((), dtypes.bool_)]


def ramp(n: int = 5) -> lt.Tensor:
    return lt.asarray(np.arange(n, dtype="f4"))


# --- the graph IR ---------------------------------------------------------------------------------------------------


def chain(b: Builder, x: g.Node, calls: list[Call]) -> g.Node:
    """Effects on x, one after another; the last token."""
    token: tuple[g.Node, ...] = ()
    for call in calls:
        token = b.opaque("effect", (x, *token), (call, 1), TOKEN)
    return token[0]


def noting(seen: list[Any], name: str) -> Call:
    return Call(name, lambda x: seen.append((name, x.tolist())), (Place(0),), ())


@pytest.mark.parametrize("fused", [True, False])
def test_equal_effects_are_neither_merged_nor_dropped_nor_reordered(fused: bool, seen: list[Any]) -> None:
    b = Builder()
    x = b.input(0, (2,), dtypes.float32)
    a, c = noting(seen, "a"), noting(seen, "c")
    y = b.elementwise("exp", x)
    out = [y, chain(b, y, [a, a, c, a])]
    for _ in range(2):  # the pipeline does not change what it has made
        p = compile_graph(out, Scope(), Options(fused=fused, verify=True))
        out = p.graph.outputs
        assert [n.attrs.statics[0].name for n in p.graph.nodes if is_effect(n)] == ["a", "a", "c", "a"]  # type: ignore[union-attr]
        assert p.schedule is not None
        nodes = [c.node for c in p.schedule.launches if hasattr(c, "node")]
        assert [n.attrs.statics[0].name for n in nodes if is_effect(n)] == ["a", "a", "c", "a"]  # type: ignore[union-attr]
    interpret(p.graph, p.graph.outputs, [np.zeros(2, "f4")])
    assert seen == [(name, [1, 1]) for name in "aaca"]


def test_an_effect_that_does_not_take_the_token_before_it_is_invalid(seen: list[Any]) -> None:
    b = Builder()
    x = b.input(0, (2,), dtypes.float32)
    one = b.opaque("effect", (x,), (noting(seen, "a"), 1), TOKEN)[0]
    other = b.opaque("effect", (x,), (noting(seen, "c"), 1), TOKEN)[0]
    with pytest.raises(LazytInternalError, match="an effect takes the token of the one before it"):
        verify(g.Graph(g.reachable([one, other]), [one, other]))


def test_an_effect_whose_token_nobody_wants_is_invalid(seen: list[Any]) -> None:
    b = Builder()
    x = b.input(0, (2,), dtypes.float32)
    token = chain(b, x, [noting(seen, "a"), noting(seen, "c")])
    with pytest.raises(LazytInternalError, match="the token of the last effect is an output"):
        verify(g.Graph(g.reachable([token, x]), [x]))
    verify(g.Graph(g.reachable([token, x]), [x, token]))


# --- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"fuse": False}, {"first": False}, {"interpret": True}, {"verify": True},
                                 {"repeat": False}, {"tiers": False}])  # fmt: skip
def test_each_recorded_call_runs_once_in_order(
    how: dict[str, bool], seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag, value in how.items():
        monkeypatch.setitem(general, flag, value)
    x = ramp()
    for i in range(6):
        y = x * i
        lt.debug.callback(seen.append, y.sum())
        lt.debug.callback(seen.append, i)
        lt.debug.callback(seen.append, i)
        y = y + 1
        assert len(seen) == 3 * i, "recorded, and not run"
        lt.sync()
    assert seen == [v for i in range(6) for v in (10 * i, i, i)]


def test_effects_of_a_loop_that_nobody_reads_run_in_order(seen: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "MIN_WEIGHT", 256)
    y = ramp()
    for i in range(200):
        y = lt.tanh(y) * 0.5 + i
        lt.debug.callback(seen.append, i)
        lt.debug.callback(seen.append, y[0])
    lt.sync()
    assert lt.last_sync().parts > 1, "divided"
    assert seen[::2] == list(range(200))
    np.testing.assert_allclose(seen[1::2][:3], [0, 1, 0.5 * np.tanh(1) + 2], rtol=1e-6)


def test_a_steady_loop_plans_no_more(seen: list[Any]) -> None:
    x = ramp()
    for i in range(8):
        lt.debug.callback(seen.append, x * float(i))
        lt.sync()
        assert i < 3 or lt.last_sync().plan_hit
    assert [v[1] for v in seen] == list(range(8))


def test_what_arrives_are_arrays_of_their_own(seen: list[Any]) -> None:
    def keep(*args: Any, **kwargs: Any) -> None:
        seen.extend((args, kwargs))

    x = ramp(3)
    lt.debug.callback(keep, x, [x.sum(), (2, "word")], None, b=x.astype("bfloat16"), t=True)
    lt.sync()
    (a, (total, pair), none), kwargs = seen
    a[:] = 7
    np.testing.assert_array_equal(x.numpy(), [0, 1, 2])
    assert (type(total), total, pair, none) == (np.float32, 3, (2, "word"), None)
    assert kwargs["b"].dtype == np.float32
    assert kwargs["t"] is np.True_


def test_no_gradient_passes_and_no_gradient_is_lost(seen: list[Any]) -> None:
    for _ in range(3):
        seen.clear()
        w = ramp(3).requires_grad_()
        y = w * w
        lt.debug.callback(seen.append, y)
        y.sum().backward()
        lt.debug.callback(seen.append, w.grad)
        lt.sync()
        np.testing.assert_array_equal(w.grad.numpy(), [0, 2, 4])
        assert [v.tolist() for v in seen] == [[0, 1, 4], [0, 2, 4]]


def test_a_backward_after_a_sync_does_not_run_them_again(seen: list[Any]) -> None:
    w = ramp(3).requires_grad_()
    y = (w * w).sum()
    lt.debug.callback(seen.append, y)
    lt.sync()
    y.backward()
    np.testing.assert_array_equal(w.grad.numpy(), [0, 2, 4])
    assert seen == [5]


def test_a_wrong_index_elsewhere_leaves_effects_done(seen: list[Any]) -> None:
    x = ramp(3)
    y = lt.take(x, lt.asarray(np.array([7])))
    lt.debug.callback(seen.append, x.sum())
    with pytest.raises(IndexOutOfRange):
        lt.sync()
    assert seen == [3]
    del y
    lt.sync()
    assert seen == [3]


def test_a_read_of_another_thread_runs_no_effect(seen: list[Any]) -> None:
    x = ramp(3)
    y = x + 1
    lt.debug.callback(seen.append, y)
    read: list[Any] = []
    t = threading.Thread(target=lambda: read.append(y.numpy().tolist()))
    t.start()
    t.join()
    assert read == [[1, 2, 3]]
    assert not seen
    lt.sync()
    assert len(seen) == 1


def test_a_callback_may_use_lazyt(seen: list[Any]) -> None:
    def computes(v: Any) -> None:
        seen.append((lt.asarray(v) * 2).numpy().tolist())

    lt.debug.callback(computes, ramp(3))
    lt.sync()
    assert seen == [[0, 2, 4]]


def test_pending_shows_what_will_run() -> None:
    lt.debug.callback(print, 1)
    assert "%0 = debug.callback 1" in str(lt.pending())
    assert "held by the order of effects" in str(lt.pending())
    lt.sync()
    assert str(lt.pending()) == "nothing is pending"


def test_print_formats_what_was_computed(capsys: pytest.CaptureFixture[str]) -> None:
    x = ramp(3)
    for i in range(4):
        lt.debug.print("{1:>4} {0} {mean:.2f} {{}} {mean!r:.3}", x, i, mean=x.mean() + i)
        assert capsys.readouterr().out == ""
        lt.sync()
        assert capsys.readouterr().out == f"{i:>4} [0. 1. 2.] {1 + i:.2f} {{}} np.\n"
    lt.debug.print("no argument")
    lt.debug.print("no argument")
    lt.sync()
    assert capsys.readouterr().out == "no argument\nno argument\n"


def test_mistakes_are_found_when_recorded() -> None:
    x = ramp(3)
    with pytest.raises(IndexError, match=r"debug\.print: the format takes argument 1, and there are 1"):
        lt.debug.print("{} {}", x)
    with pytest.raises(KeyError, match=r"debug\.print: the format takes 'y'"):
        lt.debug.print("{y.shape}", x=x)
    with pytest.raises(ValueError, match="Single '}'"):
        lt.debug.print("}")
    with pytest.raises(TypeError, match=r"debug\.print: a format string is required, not 'Tensor'"):
        lt.debug.print(x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"debug\.callback: a function is required, not 'Tensor'"):
        lt.debug.callback(x)  # type: ignore[arg-type]
    assert str(lt.pending()) == "nothing is pending"
