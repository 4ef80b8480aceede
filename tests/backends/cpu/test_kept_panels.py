"""Operands of products stay packed from run to run: the same bits, never an old value, within a share of memory."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends.cpu import kept_panels, memory, pair_products
from lazyt.backends.cpu.executor import Bound
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.library import convolutions, products
from lazyt.runtime import plan_cache
from tests.support.plans import forget

SHARE = 0.1  # the default
RUNS = 4  # one that sees the operand, one that packs, two that find it packed


@pytest.fixture(autouse=True)
def _nothing_is_packed(monkeypatch):
    """Fused from the first time on; all that is packed is of this test."""
    forget()
    for name, value in {"tiers": False, "verify": True}.items():
        monkeypatch.setitem(plan_cache.settings, name, value)
    # Few rows would read what they multiply with where it lies.
    monkeypatch.setitem(switches, "gemv", False)
    monkeypatch.setattr(kept_panels, "LEAST", 1)
    monkeypatch.setattr(products, "LEAST", 1)
    monkeypatch.setattr(convolutions, "LEAST", 1)
    lt.memory.set_packed_share(SHARE)
    yield
    lt.memory.set_limit(None)
    lt.memory.set_packed_share(SHARE)
    forget()


def random(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tensor(*shape, dtype="float32", seed=0):
    out = lt.asarray(random(*shape, dtype=dtype, seed=seed))
    lt.sync()
    return out


def values(run, *operands):
    out = run(*operands)
    return np.array(out.numpy(), copy=True)


def product(x, w):
    return values(lambda x, w: x @ w.T, x, w)


def check_repeats(run, *operands, packs=True):
    """All runs give the bits that packing each time gives; whether anything was packed."""
    assert not lt.memory.packed()
    outs = [values(run, *operands) for _ in range(RUNS)]
    assert bool(lt.memory.packed()) is packs
    lt.memory.set_packed_share(0)
    outs += [values(run, *operands) for _ in range(2)]
    assert not lt.memory.packed()
    lt.memory.set_packed_share(SHARE)
    for out in outs[1:]:
        np.testing.assert_array_equal(out, outs[0])
    return outs[0]


# Blocks of k, tails, columns that fill no panel, several groups; a line of 2 KiB.
SIZES = [(1, 130, 512), (7, 1300, 33), (5, 40, 700), (32, 257, 512), (1, 16, 16)]


@pytest.mark.parametrize(
    ("m", "k", "n", "dtype"), [*((*s, "float32") for s in SIZES), (3, 130, 512, "float64"), (1, 1300, 33, "float64")]
)
def test_every_run_has_the_same_bits(m, k, n, dtype):
    x, w = tensor(m, k, dtype=dtype), tensor(n, k, dtype=dtype, seed=1)
    out = check_repeats(lambda x, w: lt.matmul(x, w.T), x, w)
    np.testing.assert_allclose(out, x.numpy() @ w.numpy().T, rtol=1e-3, atol=1e-3)
    across = tensor(k, n, dtype=dtype, seed=2)
    packs = n * across.itemsize % products.CROWDED == 0
    check_repeats(lt.matmul, x, across, packs=packs)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_layers_of_a_model(threads):
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    try:
        model = nn.Sequential(nn.Linear(96, 200), nn.GELU(), nn.Linear(200, 61), nn.LayerNorm(61)).eval()
        x = tensor(2, 9, 96)
        with lt.no_grad():
            check_repeats(model, x)
    finally:
        lt.set_num_threads(before)


@pytest.mark.parametrize("dtype", [lt.bfloat16, lt.float16])
@pytest.mark.parametrize("dots", ["", "portable"])
@pytest.mark.parametrize("rows", [1, 33])
def test_weights_that_autocast_rounds(dtype, dots, rows, monkeypatch):
    monkeypatch.setattr(pair_products, "dot_products", lambda: dots)
    model = nn.Sequential(nn.Linear(65, 130), nn.ReLU(), nn.Linear(130, 48))
    x = tensor(rows, 65)

    def run(x):
        with lt.no_grad(), lt.amp.autocast("cpu", dtype=dtype):
            return model(x).astype("float32")

    check_repeats(run, x)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_filters_of_convolutions(threads):
    """Of strides, of windows of 1, of transposed ones; a unit has them all or a part."""
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    try:
        model = nn.Sequential(
            nn.Conv2d(3, 70, 3, stride=2, padding=1), nn.BatchNorm2d(70), nn.ReLU(), nn.Conv2d(70, 520, 3, padding=1),
            nn.ReLU(), nn.Conv2d(520, 33, 1), nn.ConvTranspose2d(33, 9, 3, stride=2),
        ).eval()  # fmt: skip
        x = tensor(4, 3, 9, 9)
        with lt.no_grad():
            check_repeats(model, x)
            for _ in range(RUNS):
                values(model, x)
            packed = lt.memory.packed()
            for part in (x[:, :, :7, :5], x[:2]):
                values(model, part)
            assert lt.memory.packed() == packed > 0, "images of any size read the same"
    finally:
        lt.set_num_threads(before)


def test_filters_that_many_places_meet_are_packed_each_time():
    assert convolutions.MOST_PLACES < 50 * 50
    w = tensor(32, 5, 3, 3, seed=1)
    with lt.no_grad():
        check_repeats(
            lambda x, w: nn.functional.conv2d(x, w, padding=1, stride=1), tensor(1, 5, 50, 50), w, packs=False
        )


@pytest.mark.parametrize("stride", [1, 2])
def test_filters_that_change_are_packed_anew(stride):
    x, w = tensor(2, 8, 5, 5), tensor(64, 8, 3, 3, seed=1)

    def run(x, w):
        return values(lambda x, w: nn.functional.conv2d(x, w, stride=stride), x, w)

    with lt.no_grad():
        for scale in (1.0, 0.5, 3.0):
            w *= scale
            found = [run(x, w) for _ in range(RUNS)]
            lt.memory.set_packed_share(0)
            want = run(x, lt.asarray(w.numpy().copy()))
            lt.memory.set_packed_share(SHARE)
            for y in found:
                np.testing.assert_array_equal(y, want)


def test_halves():
    x, w = tensor(33, 65).astype("bfloat16"), tensor(48, 65, seed=1).astype("bfloat16")
    lt.sync()
    check_repeats(lambda x, w: lt.matmul(x, w.T).astype("float32"), x, w)


def test_a_part_of_a_weight():
    x, w = tensor(3, 64), tensor(150, 64, seed=1)
    outs = [values(lambda i: lt.matmul(x, w[i : i + 50].T), i) for i in (0, 50, 100) * RUNS]
    want = x.numpy() @ w.numpy().T
    for i, out in enumerate(outs):
        at = i % 3 * 50
        np.testing.assert_allclose(out, want[:, at : at + 50], rtol=1e-4, atol=1e-4)


def test_it_takes_the_second_run_of_an_operand_that_is_as_it_was():
    x, w = tensor(3, 64), tensor(64, 64, seed=1)
    packed = []
    for _ in range(3):
        values(lambda: lt.matmul(x, w.T))
        packed.append(lt.memory.packed())
    assert packed[0] == 0 < packed[1] == packed[2]


def test_plans_share_what_is_packed():
    w = tensor(64, 64, seed=1)
    for rows in (1, 8, 3) * 2:
        x = tensor(rows, 64, seed=rows)
        np.testing.assert_allclose(product(x, w), x.numpy() @ w.numpy().T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(  # another plan
            values(lambda x, w: lt.relu(x @ w.T), x, w), np.maximum(x.numpy() @ w.numpy().T, 0), rtol=1e-4, atol=1e-4
        )  # fmt: skip
    assert lt.memory.packed() == 64 * 64 * 4


def test_tied_weights_are_packed_once():
    first, second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    second.weight = first.weight
    x = tensor(2, 64)
    with lt.no_grad():
        check_repeats(lambda: second(lt.tanh(first(x))))
        for _ in range(2):
            values(lambda: second(lt.tanh(first(x))))
    assert lt.memory.packed() == 64 * 64 * 4


def test_panels_go_with_their_weight():
    x, w = tensor(3, 64), tensor(64, 64, seed=1)
    gc.collect()  # what other tests left
    before = lt.memory.allocated()
    for _ in range(RUNS):
        product(x, w)
    assert lt.memory.packed() == lt.memory.allocated() - before == 64 * 64 * 4
    del w
    gc.collect()
    lt.sync()
    assert lt.memory.packed() == 0


# --- weights that change


def _model():
    return nn.Linear(64, 64)


def _optimizer(model, x):
    optimizer = lt.optim.SGD(model.parameters(), lr=0.5)
    (model(x) ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _adam(model, x):
    optimizer = lt.optim.Adam(model.parameters(), lr=0.5)
    for _ in range(3):
        loss = (model(x) ** 2).mean()
        loss.backward()
        loss.item()
        optimizer.step()
        optimizer.zero_grad()
        lt.sync()


def _in_place(model, x):
    with lt.no_grad():
        model.weight *= 1.5


def _in_place_at_once(model, x):
    with lt.no_grad():
        model.weight += 1.0
        lt.sync()


def _an_element(model, x):
    with lt.no_grad():
        model.weight[3, 5] += 100.0


def _a_view(model, x):
    with lt.no_grad():
        rows = model.weight.T[10:20]
        rows *= -2.0
        lt.sync()


def _load(model, x):
    model.load_state_dict({k: v.detach().numpy() + 1.0 for k, v in model.state_dict().items()})


def _through_another_name(model, x):
    model.weight.detach()[...] = model.weight.detach() * 3.0


def _replace(model, x):
    model.weight = nn.Parameter(model.weight.detach() * 3.0)


def _initialize(model, x):
    nn.init.normal_(model.weight)


def _in_a_thread(model, x):
    def change():
        with lt.no_grad():
            model.weight += 2.0
            lt.sync()

    t = threading.Thread(target=change)
    t.start()
    t.join()


CHANGES = [
    _optimizer, _adam, _in_place, _in_place_at_once, _an_element, _a_view, _load, _through_another_name,
    _replace, _initialize, _in_a_thread,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changed_is_packed_anew(change):
    model, x = _model(), tensor(4, 64)

    def run():
        with lt.no_grad():
            return values(model, x)

    def want():
        return x.numpy() @ model.weight.detach().numpy().T + model.bias.detach().numpy()

    last = None
    for _ in range(3):
        for _ in range(RUNS):
            out = run()
            np.testing.assert_allclose(out, want(), rtol=1e-3, atol=1e-3)
        assert lt.memory.packed() == 64 * 64 * 4
        assert last is None or not np.array_equal(out, last)
        last = out
        change(model, x)
        np.testing.assert_allclose(run(), want(), rtol=1e-3, atol=1e-3)


def test_a_weight_is_read_and_overwritten_by_one_program():
    x, w = tensor(4, 64), tensor(64, 64, seed=1)
    want = w.numpy().copy()
    for _ in range(3):
        for _ in range(RUNS):
            np.testing.assert_allclose(product(x, w), x.numpy() @ want.T, rtol=1e-3, atol=1e-3)
        y = x @ w.T
        w *= 0.5
        lt.sync()
        np.testing.assert_allclose(y.numpy(), x.numpy() @ want.T, rtol=1e-3, atol=1e-3)
        want = want * 0.5
        np.testing.assert_array_equal(w.numpy(), want)


def test_a_state_is_overwritten_beside_weights():
    w, cache = tensor(64, 64, seed=1), tensor(32, 64, seed=2)
    want = cache.numpy().copy()
    for i in range(12):
        x = tensor(1, 64, seed=i)
        row = x @ w.T
        cache[i : i + 1] = row
        found = row @ cache.T
        lt.sync()
        want[i] = (x.numpy() @ w.numpy().T)[0]
        np.testing.assert_allclose(found.numpy(), want[i : i + 1] @ want.T, rtol=1e-3, atol=1e-2)
    assert lt.memory.packed() <= 2 * 64 * 64 * 4


def test_memory_of_numpy_is_packed_by_each_run():
    x, a = tensor(4, 64), random(64, 64, seed=1)
    w = lt.asarray(a, copy=False)
    for i in range(2 * RUNS):
        a[i] += 1.0
        np.testing.assert_allclose(product(x, w), x.numpy() @ a.T, rtol=1e-3, atol=1e-3)
    assert lt.memory.packed() == 0


def test_copies_have_panels_of_their_own():
    model, x = _model(), tensor(4, 64)
    with lt.no_grad():
        for _ in range(RUNS):
            values(model, x)
        others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)]
        before = values(model, x)
        for other in others[:2]:
            for _ in range(RUNS):
                np.testing.assert_array_equal(values(other, x), before)
            other.weight *= 2.0
            lt.sync()
            assert not np.array_equal(values(other, x), before)
            np.testing.assert_array_equal(values(model, x), before)
        model.weight *= 2.0
        np.testing.assert_array_equal(values(others[2], x), values(model, x))


# --- memory


def test_at_most_a_share_of_the_limit_stays_packed():
    x = tensor(3, 64)
    weights = [tensor(64, 64, seed=i) for i in range(6)]
    lt.memory.set_limit(lt.memory.allocated() + 300_000)
    total = lt.memory.allocated() + 300_000
    lt.memory.set_packed_share(2.5 * 64 * 64 * 4 / total)
    for _ in range(RUNS):
        for w in weights:
            np.testing.assert_allclose(product(x, w), x.numpy() @ w.numpy().T, rtol=1e-3, atol=1e-3)
    assert lt.memory.packed() == 2 * 64 * 64 * 4
    assert lt.memory.allocated() <= total


def test_what_is_packed_is_given_up_before_memory_runs_out():
    x, w = tensor(3, 512), tensor(512, 512, seed=1)
    lt.memory.set_limit(lt.memory.allocated() + (3 << 20))
    lt.memory.set_packed_share(1)
    for _ in range(RUNS):
        out = product(x, w)
    assert lt.memory.packed() == 1 << 20
    large = lt.ones(600_000) + 1.0  # 2.3 MiB
    lt.sync()
    assert lt.memory.packed() == 0
    np.testing.assert_array_equal(product(x, w), out)
    del large
    for _ in range(RUNS):
        np.testing.assert_array_equal(product(x, w), out)
    assert lt.memory.packed() == 1 << 20
    lt.memory.set_limit(lt.memory.allocated() - 1000)
    assert lt.memory.packed() == 0


def test_an_empty_cache_has_nothing_packed():
    x, w = tensor(3, 64), tensor(64, 64, seed=1)
    for _ in range(RUNS):
        product(x, w)
    assert lt.memory.packed()
    lt.memory.empty_cache()
    assert lt.memory.packed() == 0


def test_panels_that_a_run_reads_outlive_being_given_up(monkeypatch):
    x, w = tensor(3, 64), tensor(64, 64, seed=1)
    want = [product(x, w) for _ in range(RUNS)][-1]
    launch = Bound._launch_parts
    others = []

    def after_all_is_given_up(self, *arguments):
        lt.memory.empty_cache()
        others.extend(memory.allocate(64 * 64 * 4) for _ in range(4))
        for b in others:
            memory.as_ndarray(b, "float32", (64 * 64,), writable=True)[:] = np.nan
        launch(self, *arguments)

    monkeypatch.setattr(Bound, "_launch_parts", after_all_is_given_up)
    np.testing.assert_array_equal(product(x, w), want)
    assert others


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_from_0_to_1(share):
    with pytest.raises(ValueError, match="from 0 to 1"):
        lt.memory.set_packed_share(share)


# --- training


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("reads", [False, True])
def test_training_steps_pack_nothing(accumulated, reads):
    model, x = nn.Sequential(_model(), nn.ReLU(), _model()), tensor(4, 64)
    optimizer = lt.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        for _ in range(accumulated):
            loss = (model(x) ** 2).mean()
            loss.backward()
            if reads:
                loss.item()
        optimizer.step()
        optimizer.zero_grad()
        lt.sync()
        assert lt.memory.packed() == 0


# --- runs that differ


def test_a_run_that_fails_packs_nothing():
    x, w, table = tensor(4, 64), tensor(64, 64, seed=1), tensor(10, 64, seed=2)

    def run(at):
        i = lt.asarray([at, 1, 2, 3])
        return (x @ w.T) + table[i]

    want = values(run, 0)
    with pytest.raises(IndexError):
        values(run, 50)
    with pytest.raises(IndexError):
        values(run, 50)
    for _ in range(RUNS):
        np.testing.assert_array_equal(values(run, 0), want)
        with pytest.raises(IndexError):
            values(run, 50)
    assert lt.memory.packed()


def test_extents_that_differ_each_time():
    w = tensor(64, 64, seed=1)
    for rows in [*range(1, 40)]:
        x = tensor(rows, 64, seed=rows)
        np.testing.assert_allclose(product(x, w), x.numpy() @ w.numpy().T, rtol=1e-3, atol=1e-3)
    assert lt.memory.packed() == 64 * 64 * 4


def test_weights_of_sizes_that_differ_each_time():
    weights = [tensor(40 + 3 * i, 50 + 2 * i, seed=i) for i in range(14)]
    for _ in range(RUNS):
        for w in weights:
            x = tensor(3, w.shape[1])
            np.testing.assert_allclose(product(x, w), x.numpy() @ w.numpy().T, rtol=1e-3, atol=1e-3)
    assert lt.memory.packed() > 0.9 * sum(w.nbytes for w in weights)


def test_threads_that_run_one_model():
    model, x = nn.Sequential(_model(), nn.Tanh(), _model()), tensor(4, 64)
    with lt.no_grad():
        want = values(model, x)
    wrong: list[bool] = []

    def work():
        with lt.no_grad():
            wrong.extend(not np.array_equal(values(model, x), want) for _ in range(30))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(wrong) == 90
    assert not any(wrong)


def test_the_switch(monkeypatch):
    monkeypatch.setitem(switches, "panels", False)
    x, w = tensor(3, 64), tensor(64, 64, seed=1)
    for _ in range(RUNS):
        product(x, w)
    assert lt.memory.packed() == 0


def test_products_beyond_one_in_ten_pack_each_time():
    x, w = tensor(300, 64), tensor(64, 64, seed=1)
    check_repeats(lambda x, w: x @ w.T, x, w, packs=False)


def test_a_memory_plan_counts_what_will_stay_packed():
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128)).eval()
    x = tensor(16, 256)
    for run in range(RUNS):
        with lt.no_grad():
            y = model(x)
        found = lt.memory.plan(y)
        assert (found.packed > 0) == (run == 1)
        assert ("packed" in str(found)) == (run == 1)
        lt.memory.reset_peak()
        lt.sync()
        assert lt.memory.peak() == found.peak
        del y
