"""The example as it is installed: what must hold for a backend of another distribution (docs/backends.md)."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

import lazyt as lt

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def there(x=X, device="example"):
    return lt.asarray(x, device=device)


def test_it_is_found_and_loaded_by_its_name():
    assert "example" in lt.backends.names()
    (plugin,) = [p for p in lt.backends.plugins_installed() if p.name == "example"]
    assert plugin.distribution == "lazyt-example 0.1.0"
    assert lt.example.device_count() == 2
    assert "example" in lt.backends.available()
    assert lt.example.get_device_properties().total_memory == 1 << 30


def test_tensors_and_modules_go_there_and_back():
    x = lt.asarray(X).example(1)
    assert x.is_example and x.device == "example:1"
    np.testing.assert_array_equal((x * 2).cpu().numpy(), X * 2)
    assert lt.zeros(3, device="example").device == "example:0"
    assert {p.device for p in lt.nn.Linear(2, 2).example(1).parameters()} == {"example:1"}
    np.testing.assert_array_equal((there() + 1).to("example:1").numpy(), X + 1)
    with pytest.raises(lt.DeviceError, match="example:2': no such device; there are 2: example:0 to example:1"):
        lt.zeros(3, device="example:2")


def test_the_current_device_is_restored_after_an_exception():
    def failing():
        with lt.example.device(1):
            assert lt.zeros(1, device="example").device == "example:1"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert lt.example.current_device() == 0


def test_the_compile_hook_sees_fused_kernels():
    x = there()
    y = lt.tanh(x * 2 + 1) - x
    lt.sync()
    y = lt.tanh(x * 2 + 1) - x
    shown = y.explain()
    (kernel,) = shown.kernels
    source = kernel.source()
    assert "def run(view, op, cast, full, scalars):" in source and "op('tanh'" in source and "op('mul'" in source
    np.testing.assert_allclose(y.numpy(), np.tanh(X * 2 + 1) - X, rtol=1e-6)


def test_what_it_has_no_code_for_is_counted_and_named():
    before = dict(lt.example.fallbacks())
    y = lt.argsort(there(), axis=-1)
    shown = str(y.explain())
    assert "on host" in shown and "argsort" in shown and "example has no code for it" in shown
    y.numpy()
    assert lt.example.fallbacks()["argsort"] == before.get("argsort", 0) + 1
    assert "sort" not in lt.example.fallbacks()
    with pytest.raises(lt.SyncError, match="argsort"), lt.no_sync():
        _ = lt.argsort(there(), axis=-1)
    with lt.no_sync():
        z = lt.sort(there(), axis=-1)  # this one it has
    np.testing.assert_array_equal(z.numpy(), X)


def test_reductions_are_the_cpus_bit_for_bit():
    x = np.random.default_rng(0).normal(size=(7, 300)).astype(np.float32)
    for f in (lambda t: (t * t).sum(axis=1), lambda t: lt.cumsum(t, axis=1), lambda t: t.max(axis=0)):
        np.testing.assert_array_equal(f(there(x)).numpy(), f(lt.asarray(x)).numpy())


def test_a_sync_returns_before_its_work_is_done():
    gate = threading.Event()
    x = there() + 0
    lt.sync()
    lt.example.synchronize()
    stream = lt.example.Stream()
    with lt.example.stream(stream):
        assert lt.example.current_stream() is stream
        stream.submit(gate.wait)
        y = x + 1
        lt.sync()
        assert not y.is_pending and not stream.query()
    assert lt.example.current_stream() is not stream
    z = y * 2  # on another stream, which waits for y
    lt.sync()
    gate.set()
    np.testing.assert_array_equal(z.numpy(), (X + 1) * 2)
    stream.synchronize()
    assert stream.query()


def test_events():
    s, other = lt.example.Stream(1), lt.example.Stream(1)
    first, last, gate = lt.example.Event(1), lt.example.Event(1), threading.Event()
    first.record(s)
    s.submit(gate.wait)
    s.record_event(last)
    assert not last.query()
    other.wait_event(last)
    assert not other.query()
    gate.set()
    other.synchronize()
    assert last.query()
    assert first.elapsed_time(last) > 0


def test_spans():
    x = there() + 0
    lt.sync()
    with lt.example.spans() as spans:
        y = lt.sort(x * 2)
        lt.sync()
        assert spans == []
    assert [s.name for s in spans] == ["multiply", "sort"]
    assert all(0 <= s.duration < 10 and s.device == "example:0" and not s.on_host for s in spans)
    assert spans[0].end <= spans[1].begin
    (y + 1).numpy()
    assert len(spans) == 2
    with pytest.raises(lt.NotSupportedError, match="spans of 'cpu', because its backend does not time its work"):
        lt.backends.load("cpu").start_spans("cpu")


def test_an_error_of_work_that_was_enqueued_is_that_of_what_reads_it():
    y = there()[lt.asarray(np.array([0, 9]), device="example")]
    z = y + 1
    with pytest.raises(lt.IndexOutOfRange, match=r"index 9 is out of bounds for an axis of size 3 .*test_example"):
        z.numpy()
    np.testing.assert_array_equal(there().numpy(), X)


def test_an_error_of_enqueued_work_names_the_line_of_its_own_program():
    at = lt.asarray(np.array([0, 9]), device="example")
    first = there()[at] * 3
    lt.sync()
    second = there()[at] * 3
    lt.sync()
    found = []
    for y in (first, second):
        with pytest.raises(lt.IndexOutOfRange) as e:
            (y + 1).numpy()
        found.append(int(re.findall(r"test_example.py:(\d+)", str(e.value))[0]))
    assert found[1] == found[0] + 2


def test_staging_memory_is_used_again():
    pool = lt.backends.load("example").staging

    def kept():
        lt.example.synchronize()
        return sum(map(len, pool.free.values()))

    there()
    before = kept()
    assert before
    for _ in range(3):
        there(X + 1)
        assert kept() == before


def test_memory_is_counted_and_bounded():
    lt.example.synchronize(1)
    before = lt.example.memory_allocated(1)
    x = there(np.zeros(1 << 20, np.uint8), "example:1")
    assert lt.example.memory_allocated(1) == before + (1 << 20)
    assert lt.example.max_memory_allocated(1) >= before + (1 << 20)
    del x
    assert lt.example.memory_allocated(1) == before
    x = lt.ones(3, device="example:1")
    big = lt.broadcast_to(x[:, None], (3, 1 << 27)) + 1
    with pytest.raises(lt.OutOfMemory, match=r"example:1: no memory for 1,610,612,736 bytes \(it has 1,073,741,824\)"):
        lt.sync()
    assert big.is_pending
    del big
    assert (x + 1).sum().item() == 6


def test_operations_of_users():
    op = lt.library.define("example::halved(Tensor x) -> Tensor")
    op.impl("cpu", lambda x: x / 2)
    op.register_fake(lambda x: x)
    op.register_vjp(lambda args, output, ct: ct / 2)
    with pytest.raises(
        lt.NotSupportedError, match=r"halved on 'example', .*registered: 'cpu' \(at .*fallback\('example'\)"
    ):
        op(there())
    with lt.library.scoped():
        lt.library.fallback("example")
        x = lt.tensor(X, device="example:1", requires_grad=True)
        y = op(x) + 1
        assert "no kernel of example::halved for 'example'" in str(y.explain())
        y.sum().backward()
        np.testing.assert_array_equal(y.detach().numpy(), X / 2 + 1)
        assert x.grad.device == "example:1" and (x.grad.numpy() == 0.5).all()
        assert lt.library.fallback_counts()["example::halved", "example"] == 1
        op.impl("example", lambda x: x / np.float32(4))
        np.testing.assert_array_equal(op(there()).numpy(), X / 4)


def test_random_numbers_are_the_cpus():
    lt.example.manual_seed(3)
    with lt.device("example:1"):
        state = lt.example.get_rng_state()
        a = lt.random.random(5).numpy()
        lt.example.set_rng_state(state)
        b = lt.random.random(5).numpy()
    lt.random.seed(3)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, lt.random.random(5).numpy())


def test_values_are_saved_here_and_loaded_elsewhere(tmp_path):
    lt.save({"x": there(device="example:1")}, tmp_path / "x.npz")
    assert lt.load(tmp_path / "x.npz")["x"].device == "cpu"
    assert lt.load(tmp_path / "x.npz", map_location="example:0")["x"].device == "example:0"


def test_autocast():
    x = there(X[:, :3])
    with lt.autocast("example"):
        y = x @ x
        assert y.dtype == lt.bfloat16 and lt.exp(y).dtype == lt.float32
    assert (x @ x).dtype == lt.float32


def test_a_training_run_is_the_cpus():
    def losses(device):
        lt.random.seed(0)
        model = lt.nn.Sequential(lt.nn.Linear(4, 8), lt.nn.Tanh(), lt.nn.Linear(8, 1)).to(device)
        opt = lt.optim.Adam(model.parameters(), lr=0.05)
        x, found = lt.asarray(X / 10, device=device), []
        for _ in range(5):
            loss = ((model(x) - 1) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            found.append(loss)
        return [float(q) for q in found]

    found = losses("example:1")
    assert found[-1] < found[0]
    np.testing.assert_allclose(found, losses("cpu"), rtol=1e-6)


def test_unloading_and_loading_again():
    x = there() + 1
    stream = lt.example.Stream(1)
    lt.backends.unregister("example")
    assert not hasattr(x, "is_example")
    with pytest.raises(lt.DeviceError, match="its backend was removed"):
        x.numpy()
    with pytest.raises(lt.DeviceError, match="example:1: the backend that this stream is of was removed"):
        stream.synchronize()
    lt.backends.load("example")
    np.testing.assert_array_equal((there() + 1).numpy(), X + 1)
