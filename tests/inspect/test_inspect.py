"""Looking: what is printed, and that looking neither runs, compiles, records nor keeps anything."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import threading

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import code_cache as code, engine
from lazyt.backends.cpu.flags import variant
from lazyt.inspect import names
from lazyt.inspect.explain import Explanation
from lazyt.inspect.kernels import WHY
from lazyt.ir.passes import fuse
from lazyt.runtime import memory, plan_cache
from lazyt.runtime.sync import counters
from lazyt.tracing.call_site import Site
from lazyt.tracing.printer import aligned, html_table, site_text
from lazyt.tracing.trace import local

pytestmark = pytest.mark.usefixtures("new_trace")


def done() -> tuple[int, int, int, int, int]:
    """What looking must leave as it is: syncs, plans, kernels run, code made, and what is recorded."""
    return counters.syncs, counters.plans, counters.kernels, engine.counters.compiles, local.trace.pos.index


def ramp(*shape: int) -> lt.Tensor:
    return lt.asarray(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))


# --- a tensor --------------------------------------------------------------------------------------------------------


def test_repr_of_a_pending_tensor():
    y = lt.softmax(ramp(3, 4))
    assert repr(y) == "<lazyt.Tensor shape=(3, 4) dtype=float32 device=cpu pending: softmax>"
    w = lt.tensor([1.0], requires_grad=True)
    assert repr(w * 2) == "<lazyt.Tensor shape=(1,) dtype=float32 device=cpu requires_grad pending: multiply>"


def test_repr_shows_values_when_they_are_there():
    assert repr(lt.asarray(5)) == "<lazyt.Tensor shape=() dtype=int64 device=cpu 5>"
    assert repr(lt.asarray([True])) == "<lazyt.Tensor shape=(1,) dtype=bool device=cpu [ True]>"
    w = lt.tensor([1.0, 2.5], requires_grad=True)
    assert repr(w) == "<lazyt.Tensor shape=(2,) dtype=float32 device=cpu requires_grad [1. , 2.5]>"
    assert repr(lt.asarray([[1, 2], [3, 4]])).endswith("device=cpu\n[[1, 2],\n [3, 4]]>")
    assert repr(lt.asarray(np.zeros((0, 3)))) == "<lazyt.Tensor shape=(0, 3) dtype=float64 device=cpu []>"
    assert "..." in repr(lt.asarray(np.zeros(5000)))
    assert "1.5" in repr(lt.asarray(np.asarray([1.5], lt.asarray(1.0).astype("bfloat16").dtype)))


def test_repr_respects_printoptions():
    x = lt.asarray([1.23456789, 2.0])
    with np.printoptions(precision=2):
        assert repr(x).endswith("[1.23, 2.  ]>")


def test_repr_of_views():
    x = ramp(4, 6)
    v = x.T[1:, ::-1]
    before = local.trace.pos.index
    assert "pending" not in repr(v)
    np.testing.assert_array_equal(v.numpy(), x.numpy().T[1:, ::-1])
    y = x * 2
    u = y[0]
    assert repr(u).endswith("pending: getitem>")
    y += 1
    assert repr(u).endswith("pending: getitem of assign>")
    assert local.trace.pos.index > before


def test_html_of_a_tensor():
    y = lt.exp(ramp(2, 2))
    pending = y._repr_html_()
    assert "<table>" in pending and "exp at " in pending and "test_inspect.py:" in pending
    lt.sync()
    assert "<pre>[[" in y._repr_html_()


# --- pending ---------------------------------------------------------------------------------------------------------


def without_lines(text: str) -> str:
    return re.sub(r"\S*test_inspect\.py:\d+", "LINE", text)


def test_pending_program():
    assert repr(lt.pending()) == "nothing is pending"
    assert not len(lt.pending()) and lt.pending()._repr_html_() == "<p>nothing is pending</p>"
    x = ramp(3, 4)
    y = (x + 2.0).sum(axis=1)
    v = x[1:3, 2]
    assert re.sub("  +", "  ", without_lines(str(lt.pending()))).splitlines() == [
        "pending: 4 steps, 1 input (48 B), 1 value held",
        "%0 = input : float32 (3, 4)  # LINE, x, view v",
        "%1 = add %0, 2.0 : float32 (3, 4)  # LINE",
        "%2 = sum %1 axis=1 : float32 (3,)  # LINE, held by y",
        "%3 = getitem %0 [1:3, 2] : float32 (2,)  # LINE, view v",
    ]
    assert len({line.index("#") for line in str(lt.pending()).splitlines()[1:]}) == 1, "the lines are in a column"
    del y, v


def test_pending_shows_scalars_as_they_are_now():
    x = ramp(2)
    for rate in (0.5, 0.25):
        y = x * rate
        assert any(line.call == f"multiply %0, {rate}" for line in lt.pending().lines)
        y.numpy()


def test_pending_shows_writes_modes_gradients_and_several_results():
    w = lt.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    with lt.no_grad():
        w -= 0.5 * w.grad
    q, r = lt.divmod(ramp(3), 0.5)
    calls = {line.call: line for line in lt.pending().lines}
    assert "input requires_grad" in calls
    assert calls["backward %2 to %0"].held == "held by the gradient of w"
    assert "grad mode off" in calls and "grad mode on" in calls
    assert calls["assign %6 in place of %0"].held == "held by w"
    text = str(lt.pending())
    assert "held by q" in text and "held by r" in text
    assert loss.is_pending and q.is_pending and r.is_pending


def test_pending_says_who_holds_what_in_functions_too():
    kept = ramp(2) + 1

    def inner() -> str:
        local_name = kept * 2
        text = str(lt.pending())
        del local_name
        return text

    text = inner()
    assert "held by local_name" in text and "held by kept" in text
    assert "local_name" not in str(lt.pending())
    lt.sync()
    assert lt.last_sync().outputs == 1, "looking at a function's variables keeps nothing alive"


def test_a_long_program_is_shortened():
    x = ramp(2)
    for _ in range(1000):
        x = x + 1
    p = lt.pending()
    assert len(p) == 1001
    assert len(str(p).splitlines()) == 402 and "... 601 more ..." in str(p)
    assert len(repr(p).splitlines()) == 42
    assert p._repr_html_().count("<tr>") == 401


def test_a_snapshot_stays_as_it_was():
    y = lt.exp(ramp(2) * 3.0)
    p = lt.pending()
    text, graph = str(p), str(p.graph())
    y.numpy()
    z = lt.exp(ramp(5) * 4.0)
    assert str(p) == text and str(p.graph()) == graph
    assert "(3.0)" in graph and "float32 (2,)" in graph
    assert z.is_pending


def test_graph():
    x = ramp(2, 3)
    y = lt.tanh(x) + x
    other = lt.exp(x)
    text = without_lines(y.graph())
    assert "tanh %0 : float32 (2, 3)" in text and "# tanh, LINE" in text
    assert "exp" not in text and "exp" in lt.pending().graph()
    assert text.splitlines()[-1].startswith("return %")
    lt.sync()
    assert repr(y.graph()) == "nothing is pending"
    assert other.graph() == "nothing is pending"


def test_pending_is_this_threads():
    y = ramp(2) + 1
    seen = []
    t = threading.Thread(target=lambda: seen.extend((repr(lt.pending()), repr(y.explain()))))
    t.start()
    t.join()
    assert seen == ["nothing is pending", "nothing would run: it is pending in another thread"]


# --- explain ---------------------------------------------------------------------------------------------------------


def test_looking_runs_compiles_and_records_nothing():
    w = lt.tensor(np.linspace(0, 1, 64, dtype=np.float32).reshape(2, 32), requires_grad=True)
    y = lt.softmax(w * 0.123, axis=-1)
    loss = lt.log1p(y @ y.T).sum()
    loss.backward()
    v = y.detach()[1:]
    before, programs = done(), len(plan_cache._programs)
    with lt.no_sync():
        e = loss.explain()
        for thing in (e, lt.explain(), lt.pending(), y, v, loss.explain(fused=False)):
            repr(thing), thing._repr_html_(), str(thing) if not isinstance(thing, lt.Tensor) else ""
        str(loss.graph()), str(lt.pending().graph())
        for k in e.kernels:
            k.source(), k.ir, k.code, k.intensity
    assert done() == before and len(plan_cache._programs) == programs
    assert loss.is_pending and w.grad.is_pending


def test_explain_does_not_change_what_the_sync_reports():
    def program() -> lt.Tensor:
        return lt.erf(lt.sinh(ramp(40, 50)) * 0.77).sum(axis=0)

    y = program()
    assert not y.explain().known
    y.numpy()
    assert lt.last_sync().plans == 1 and lt.last_sync().kernels > 1, "new and small: one operation a kernel"
    y = program()
    e = y.explain()
    assert not e.known and e.reason == "seen again: fused kernels take over"
    with lt.expect(plans=1):
        y.numpy()
    assert lt.last_sync().reason == e.reason
    assert lt.last_sync().kernels == e.plan.kernels
    y = program()
    assert y.explain().known and "known already" in str(y.explain())
    with lt.expect(plans=0, compiles=0):
        y.numpy()


def test_explain_says_what_each_kernel_is(monkeypatch):
    monkeypatch.setitem(plan_cache.settings, "gemm", False)  # the product is a library's
    x = ramp(64, 100)
    y = lt.softmax(x * 2.0, axis=-1)
    z = y @ y.T
    e = z.explain()
    assert isinstance(e, Explanation)
    softmax, product = e.kernels
    assert softmax.title == "multiply + softmax"
    assert [name for name, _ in softmax.fuses] == ["multiply", "softmax"]
    assert all("test_inspect.py:" in line for _, line in softmax.fuses)
    assert softmax.domain == "64 rows of 100, 3 passes over each"
    assert softmax.stores == [("%2 float32 (64, 100)", WHY["output"])]
    assert (softmax.read, softmax.written) == (25600, 25600)
    # mul, sub, exp, div and two reductions, an element each.
    assert softmax.flops == 6 * 6400
    assert softmax.intensity == pytest.approx(0.75)
    assert product.library.startswith(("OpenBLAS sgemm", "NumPy matmul")) and product.code == "library"
    assert product.flops == 2 * 64 * 64 * 100
    assert product.source().startswith("; ") and product.assembly().startswith("# ") and product.ir == ""
    assert e.peak == e.inputs + e.results + e.temporaries == 25600 + 25600 + 64 * 64 * 4
    text = str(e)
    assert text.startswith("would run: 2 kernels in 2 launches\n")
    assert "would be made: a new program" in text and "66.0 KiB at the peak" in text


def test_explain_says_whether_code_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    y = lt.exp2(lt.atan(ramp(9) - 0.0625))
    (kernel,) = y.explain().kernels
    assert kernel.code == "" and "not compiled yet" in str(kernel)
    y.numpy()
    assert lt.last_sync().compiles == 1
    (ran,) = lt.last_sync().plan_kernels
    assert ran.code == "memory" and ran.source() == kernel.source()
    monkeypatch.delitem(code._kernels, ran.kernel.key + variant())
    del kernel
    y = lt.exp2(lt.atan(ramp(9) - 0.0625))
    (kernel,) = y.explain().kernels
    assert kernel.code == "disk" and "on disk" in str(kernel)


def test_explain_marks_what_a_tensor_does_not_need():
    x = ramp(32, 32)
    y, z = x @ x, lt.cumulative_sum(x, axis=0)
    text = str(y.explain())
    assert text.count("not for this tensor") == len(y.explain().kernels) - 1
    assert "not for this tensor" not in str(lt.explain(y, z))
    assert "not for this tensor" not in str(lt.explain())


def test_explain_knows_what_nothing_is():
    x = ramp(3)
    assert repr(x.explain()) == "nothing would run: the value is there"
    assert repr(lt.explain()) == "nothing would run: nothing is pending"
    x + 1
    assert repr(lt.explain()) == "nothing would run: nobody holds what is pending"
    with pytest.raises(TypeError, match="explain: tensors are required, not 'int'"):
        lt.explain(3)


def test_every_reason_of_fusion_has_words():
    source = inspect.getsource(fuse)
    named = set(re.findall(r'(?:_store|_root|_new_group)\([^"\n]*"(\w[\w ]*)"\)', source))
    named |= set(re.findall(r'return "([\w ]+)"', inspect.getsource(fuse._Fuser._why_store)))
    named |= set(re.findall(r'stored(?:\[n\] = |\.setdefault\([^"\n]*)"(\w+)"', source)) - {"outer"}
    assert named - WHY.keys() == set(), "give them words in lazyt/inspect/kernels.py"


def test_the_planned_peak_is_what_is_allocated():
    x = ramp(256, 256)
    y = lt.softmax(x @ x, axis=-1) @ x
    peak = y.explain().peak
    memory.reset_peak()
    start = memory.allocated()
    y.numpy()
    assert memory.peak() - start <= peak - x.nbytes + 65536


# --- last_sync -------------------------------------------------------------------------------------------------------


def test_report():
    x = ramp(64, 32)
    for _ in range(3):
        y = lt.softmax(x - 0.25, axis=-1)
        y.numpy()
    r = lt.last_sync()
    assert r.plan_hit and r.plans == 0 and r.compiles == 0 and r.kernels == r.launches == 1 and r.outputs == 1
    assert r.record_time > 0 and r.run_time > 0 and r.plan_time > 0 and r.compile_time == 0
    assert re.fullmatch(
        r"last sync: numpy\(\) at LINE, 1 value computed\n"
        r"  recorded  3 steps in \S+ \w+, your code between them included\n"
        r"  plan      known, found in \S+ us\n"
        r"  compiled  nothing\n"
        r"  ran       1 kernel in 1 launch, \S+ \w+\n"
        r"  \[1\] subtract \+ softmax: 64 rows of 32, 3 passes over each",
        without_lines(str(r)),
    )
    assert without_lines(repr(r)) == "<SyncReport numpy() at LINE: 3 steps, plan known, 1 kernel, 0 compiles>"
    assert r._repr_html_().startswith("<pre>last sync")
    (k,) = r.plan_kernels
    assert k.title == "subtract + softmax" and k.ir.startswith("kernel outer=1 rows=1")
    assert f"define void @{code.symbol_of(k.kernel)}" in k.source()
    assert code.symbol_of(k.kernel) in k.assembly()
    assert k._repr_html_().startswith("<pre>[1]")


def test_a_sync_that_nobody_wanted_says_so():
    ramp(2) + 1
    lt.sync()
    assert "nobody held a result" in str(lt.last_sync())
    assert "nothing ran" in repr(lt.last_sync()) and lt.last_sync().plan_kernels == []


def test_a_superset_plan_is_counted():
    def program(keep: bool) -> None:
        x = ramp(64, 64)
        small, big = x.sum() * 0.3, lt.atan(x) * 0.7
        if not keep:
            del small
        big.numpy()

    for _ in range(3):
        program(True)
    before = counters.superset_plans
    assert not lt.last_sync().superset
    with lt.expect(plans=0):
        program(False)
    assert lt.last_sync().superset and counters.superset_plans == before + 1
    assert "nobody holds any more" in str(lt.last_sync())


# --- why a plan was made ---------------------------------------------------------------------------------------------


def reason() -> str:
    return without_lines(lt.last_sync().reason)


def line_of(r: str, which: int) -> int:
    return int(re.findall(r"test_inspect\.py:(\d+)", r)[which])


def test_a_new_program_names_the_first_divergence_with_both_lines():
    def program(x: lt.Tensor, flag: bool) -> lt.Tensor:
        y = lt.cosh(x)
        if flag:
            y = y + 1.5
        else:
            y = y - 1.5
        return lt.atanh(y * 0.1).sum()

    x = ramp(6)
    program(x, True).numpy()
    program(x, False).numpy()
    assert reason() == (
        "a new program: step 2 is `subtract %1, float` at LINE, "
        "where the closest known program has `add %1, float` at LINE"
    )
    r = lt.last_sync().reason
    assert line_of(r, 0) == line_of(r, 1) + 2


def test_the_first_divergence_is_named_not_the_last():
    def program(x: lt.Tensor, a: bool, b: bool) -> lt.Tensor:
        y = lt.sinh(x) if a else lt.tan(x)
        y = y * 3.0
        return lt.sign(y) if b else lt.floor(y)

    x = ramp(7)
    program(x, True, True).numpy()
    program(x, False, False).numpy()
    assert "step 1 is `tan %0` at LINE, where the closest known program has `sinh %0` at LINE" in reason()


def test_a_divergence_in_an_argument():
    def program(x: lt.Tensor, axis: int) -> lt.Tensor:
        return lt.logsumexp(x * 0.9, axis=axis)

    x = ramp(5, 6)
    program(x, 0).numpy()
    program(x, 1).numpy()
    assert "step 2 is `logsumexp %1 axis=1` at LINE" in reason()
    assert "the closest known program has `logsumexp %1 axis=0` at LINE" in reason()


def test_a_divergence_in_a_leaf():
    def program(x: lt.Tensor) -> lt.Tensor:
        return lt.asinh(x) * 0.9

    program(ramp(5)).numpy()
    program(lt.asarray(np.ones(5))).numpy()
    assert "step 0 is `input float64 of 1 axis` at LINE" in reason()
    assert "the closest known program has `input float32 of 1 axis` at LINE" in reason()
    program(lt.tensor(np.ones(5), requires_grad=True)).detach().numpy()
    assert "`input requires_grad float64 of 1 axis`" in reason()


def test_a_program_that_goes_on_or_ends_earlier():
    def program(x: lt.Tensor, stop: bool) -> lt.Tensor:
        y = lt.acosh(x * 5.5)
        return y if stop else lt.floor(y)

    x = ramp(3)
    program(x, True).numpy()
    program(x, False).numpy()
    assert "it goes on with `floor %2` at LINE, where the closest known program ends" in reason()

    def longer(x: lt.Tensor, stop: bool) -> lt.Tensor:
        y = lt.acos(x * 0.55)
        return y if stop else lt.floor(y)

    longer(x, False).numpy()
    longer(x, True).numpy()
    assert "it ends after step 2, where the closest known program goes on with `floor %2` at LINE" in reason()


def test_the_same_program_from_another_line_is_known():
    x = ramp(3)
    for _ in range(2):
        lt.expm1(x * 0.123).numpy()
    with lt.expect(plans=0):
        lt.expm1(x * 0.321).numpy()


def test_a_guard_that_fails_is_named():
    def program(a: lt.Tensor, b: lt.Tensor) -> lt.Tensor:
        return lt.hypot(a, b) * 0.4

    a, b = ramp(4, 4), ramp(4, 4)
    for _ in range(2):
        program(a, b).numpy()
    program(a, ramp(4, 1)).numpy()
    assert reason().startswith("no plan's guards hold for these extents: the known plan needs ")
    assert "axis 1 of %" in reason() and "(input at LINE)" in reason()


def test_other_liveness_is_named():
    kept = []

    def program(x: lt.Tensor, keep: bool) -> lt.Tensor:
        y = lt.exp2(x) + 0.1
        if keep:
            kept.append(y)
        return lt.trunc(y * 3.3)

    x = ramp(50, 50)
    for _ in range(2):
        program(x, False).numpy()
    program(x, True).numpy()
    assert reason() == "other values are wanted: %2 add at LINE is alive now"


# --- places ----------------------------------------------------------------------------------------------------------


def test_sites():
    code = compile("x = 1", "<stdin>", "exec")
    assert site_text(Site(code, 2)) == "<stdin>:1"
    assert site_text(Site(code.replace(co_filename="<doctest first-session.md[7]>"), 2)) == "<stdin>:1"
    assert site_text(Site(code.replace(co_filename="<ipython-input-12-abcdef012>"), 2)) == "In[12]:1"
    assert site_text(Site(code.replace(co_filename="/elsewhere/train.py"), 2)) == "/elsewhere/train.py:1"
    assert site_text(None) == "?"


def test_every_operator_keeps_its_callers_line():
    x = ramp(2)
    y = x + 1
    y = 2.0 * y
    y = -y
    y = y**2
    y = y < 3
    y = y[0]
    lines = [line.site for line in lt.pending().lines]
    assert all(site.endswith(f"test_inspect.py:{line_of(lines[0], 0) + max(i - 1, 0)}") for i, site in enumerate(lines))
    assert y.is_pending


def test_names_in_frames_leave_a_debuggers_view_alone():
    def f() -> list[str]:
        t = ramp(2)
        frame = sys._getframe()
        frame.f_trace = lambda *a: None
        found = names.names_in_frames(frame)
        frame.f_trace = None
        return found[id(t)]

    assert f() == ["t"]


def test_a_tensor_that_only_the_last_error_holds(monkeypatch):
    def fails() -> None:
        t = ramp(2) + 1
        raise ValueError(t.shape)

    try:
        fails()
    except ValueError as e:
        monkeypatch.setattr(sys, "last_traceback", e.__traceback__, raising=False)
    assert "held by the last traceback" in str(lt.pending())
    monkeypatch.undo()
    gc.collect()
    assert "held by" not in str(lt.pending())


def test_tables():
    assert aligned([("a", "b"), ("long", "c"), ("x" * 80, "d")]) == ["a     b", "long  c", "x" * 80 + "  d"]
    assert "&lt;b&gt;" in html_table(["<b>"], [["1 < 2"]]) and "1 &lt; 2" in html_table(["h"], [["1 < 2"]])


def test_convolutions_count_what_they_compute():
    x, w = lt.zeros((2, 3, 8, 8)), lt.zeros((5, 3, 3, 3)).requires_grad_()
    y = lt.nn.functional.conv2d(x, w)
    count = 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    assert [k.flops for k in y.explain().kernels if k.flops] == [count]
    y.sum().backward()
    assert w.grad is not None
    assert [k.flops for k in w.grad.explain().kernels if k.flops] == [count, count]
