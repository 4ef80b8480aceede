"""What fuses is behaviour: kernel counts of whole programs, and every boundary's reason."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn, optim
from lazyt.ir.kernel import Load, Scalar
from lazyt.ir.passes.fusion_result import KernelCall
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import plan_cache
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def _fused_at_once(monkeypatch):
    """Plan for speed from the first time on: the tier for small programs is tested elsewhere."""
    monkeypatch.setitem(plan_cache.settings, "tiers", False)
    monkeypatch.setitem(plan_cache.settings, "verify", True)


def tensor(*shape, grad=False, seed=0):
    x = lt.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), requires_grad=grad)
    lt.sync()
    return x


def kernels(*keep):
    """Sync with `keep` alive; how many kernels ran."""
    lt.sync()
    return lt.last_sync().kernels


class TestRows:
    def test_softmax_is_one_kernel(self):
        x = tensor(33, 100)
        assert kernels(lt.softmax(x, axis=-1)) == 1

    def test_log_softmax_is_one_kernel(self):
        x = tensor(33, 100)
        assert kernels(lt.log_softmax(x, axis=-1)) == 1

    def test_softmax_backward_is_one_kernel(self):
        x, ct = tensor(33, 100, grad=True), tensor(33, 100, seed=1)
        y = lt.softmax(x, axis=-1)
        y.backward(ct)
        del y
        assert kernels(x.grad) == 1

    def test_layer_norm_is_one_kernel(self):
        x, g, b = tensor(33, 100), tensor(100), tensor(100)
        assert kernels(lt.layer_norm(x, (100,), g, b)) == 1

    def test_layer_norm_gradient_by_its_input_is_one_kernel(self):
        x, ct, g = tensor(33, 100, grad=True), tensor(33, 100, seed=1), tensor(100)
        y = lt.layer_norm(x, (100,), g)
        y.backward(ct)
        del y
        assert kernels(x.grad) == 1

    def test_layer_norm_with_affine_gradients_adds_one_column_kernel(self):
        x, ct = tensor(33, 100, grad=True), tensor(33, 100, seed=1)
        g, b = tensor(100, grad=True), tensor(100, grad=True)
        y = lt.layer_norm(x, (100,), g, b)
        y.backward(ct)
        del y
        assert kernels(x.grad, g.grad, b.grad) == 2

    def test_cross_entropy_is_one_kernel(self):
        x, t = tensor(33, 100), lt.asarray(np.arange(33))
        lt.sync()
        loss = lt.cross_entropy(x, t)
        assert kernels(loss) == 1

    def test_cross_entropy_with_its_gradient(self):
        """The rows are one kernel, forward and backward together; counting the valid targets comes before it."""
        x, t = tensor(33, 100, grad=True), lt.asarray(np.arange(33))
        lt.sync()
        loss = lt.cross_entropy(x, t)
        loss.backward()
        assert kernels(loss, x.grad) == 2

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    @pytest.mark.parametrize("bias", [False, True])
    def test_cross_entropy_before_a_product_of_its_gradient(self, dtype, bias):
        """A product reads the gradient, yet the loss is of the same pass over the rows, of which no more is stored."""
        layer, x = nn.Linear(24, 100, bias=bias).to(dtype), tensor(3, 11, 24, grad=True).astype(dtype)
        lt.sync()
        loss = lt.cross_entropy(layer(x).reshape(-1, 100), lt.asarray(np.arange(33)))
        loss.backward()
        lt.sync()
        launches = lt.last_sync().plan.schedule.launches
        rows = [c for c in launches if isinstance(c, KernelCall) and "exp" in c.kernel.text]
        assert len(rows) == 1
        assert sum(n.ndim == 2 for n in rows[0].writes) == 1
        assert not any(str(n.dtype) == "bool" for c in launches for n in c.writes)

    @pytest.mark.parametrize("axis", [0, 1, (0, 1)])
    def test_mean_and_variance_share_a_kernel(self, axis):
        x = tensor(300, 400)
        m, s = lt.mean(x, axis=axis), lt.sum(x * x, axis=axis)
        assert kernels(m, s) == 1


class TestMaps:
    def test_a_chain_is_one_kernel(self):
        x = tensor(1000)
        y = lt.tanh(x * 2 + 1) / (1 + lt.exp(-x))
        assert kernels(y) == 1

    def test_siblings_share_a_kernel(self):
        x = tensor(1000)
        a, b = x + 1, x * 2
        assert kernels(a, b) == 1

    def test_a_long_unroll_reuses_the_kernels_of_its_prefix(self):
        def unrolled(n):
            x = tensor(50)
            for _ in range(n):
                x = x * 1.5 + 0.25
            return kernels(x), {c.kernel.key for c in lt.last_sync().plan.schedule.launches}

        short, long = unrolled(200), unrolled(300)
        assert short[0] > 1
        assert len(long[1] - short[1]) <= 1

    def test_movement_is_free(self):
        x, y = tensor(30, 40), tensor(40, 30)
        z = (x.T + y)[::-1, 1:] * 2
        assert kernels(z) == 1


class TestSteps:
    def test_an_optimizer_over_many_tensors_is_one_launch(self):
        params = [tensor(5 + i, 7, grad=True, seed=i) for i in range(20)]
        for p in params:
            p.grad = tensor(*p.shape, seed=99)
        opt = optim.Adam(params)
        for _ in range(2):
            opt.step()
            lt.sync()
        assert lt.last_sync().launches == 1

    def test_a_training_step_is_one_plan_then_none(self):
        lt.random.seed(0)
        model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 10))
        opt = optim.Adam(model.parameters())
        plans = []
        for step, n in enumerate([16, 16, 5, 1, 64, 30, 2, 17]):
            x = lt.asarray(np.ones((n, 20), np.float32))
            t = lt.asarray(np.arange(n) % 10)
            opt.param_groups[0]["lr"] = 1e-3 / (step + 1)
            loss = lt.cross_entropy(model(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            with lt.expect(syncs=1):
                lt.sync()
            plans.append(lt.last_sync().plans)
        assert plans == [1, 1, 0, 0, 0, 0, 0, 0]

    def test_what_nobody_holds_is_not_computed(self):
        x = tensor(100)
        y = lt.exp(x)
        z = x + 1
        del y
        lt.sync()
        titles = [c.kernel.text for c in lt.last_sync().plan.schedule.launches]
        assert len(titles) == 1
        assert "exp" not in titles[0]
        assert z.shape == (100,)


class TestReuse:
    """Costly values of several stages are kept where the row's result will stand."""

    @staticmethod
    def exps(y):
        lt.sync()
        (call,) = lt.last_sync().plan.schedule.launches
        loops = [s for s in call.kernel.stages if s.loops]
        return len(loops), len(call.kernel.accesses), y.numpy()

    def test_softmax_reads_its_exponentials_back(self, monkeypatch):
        x = tensor(33, 100)
        stages, accesses, on = self.exps(lt.softmax(x, axis=-1))
        monkeypatch.setitem(plan_cache.settings, "reuse", False)
        y = lt.softmax(x * 1, axis=-1)
        _, fewer, off = self.exps(y)
        assert (stages, accesses, fewer) == (3, 3, 2)
        np.testing.assert_array_equal(on, off)


def test_a_costly_value_is_not_computed_again_for_each_sum_that_reads_it():
    """All pairs of bodies: the power of (i, j) is read by sums over j, of which there are three."""
    x, mass = tensor(40, 3), tensor(40, seed=1)
    # What is cheap is computed again: no pass over memory for it.
    total = (x[None] * (mass * x[:, :1] + 1.0)[:, :, None]).sum(1)
    assert kernels(total) == 1
    d = x[None, :, :] - x[:, None, :]
    w = mass * ((d * d).sum(-1) + 0.01) ** -1.5
    forces = (d * w[:, :, None]).sum(1)
    del d, w
    assert kernels(forces) == 2
    first, second = lt.last_sync().plan_kernels
    assert "pow" in str(first.ir) and "pow" not in str(second.ir)  # it is the end of the distances' kernel
    a, m = x.numpy().astype(float), mass.numpy().astype(float)
    far = a[None] - a[:, None]
    want = (far * (m * ((far**2).sum(-1) + 0.01) ** -1.5)[:, :, None]).sum(1)
    np.testing.assert_allclose(forces.numpy(), want, rtol=1e-4, atol=1e-4)


def test_what_is_near_a_stored_value_is_not_stored_too():
    """The gradient of GELU reads tanh and 1 + tanh, of which one is kept."""
    x, w = tensor(64, 48, grad=True), tensor(48, 32, seed=1)
    y = (nn.functional.gelu(x, approximate="tanh") @ w).tanh().sum()
    y.backward()
    stored = [value for k in lt.explain().kernels for value, why in k.stores if "several places" in why]
    assert [value.split(",")[0] for value in stored if "gelu" in value] == ["tanh of gelu_tanh"]
    want = x.detach().numpy().astype(np.float64)
    leaf = lt.tensor(want, requires_grad=True)
    (nn.functional.gelu(leaf, approximate="tanh") @ w.astype("float64")).tanh().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), leaf.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "apart"), [((1000, 20), True), ((1000, 600), False), ((10, 20), False)])
def test_elementary_functions_of_the_sums_of_short_rows_have_lanes_of_their_own(shape, apart):
    """One at a time, at the end of each row, an exponential takes as long as sixteen of them."""
    forget()  # a plan that was made at other sizes serves these, too
    x, w = tensor(*shape), tensor(shape[1], seed=1)
    y = 1 / (1 + lt.exp(-(x * w).sum(1)))
    assert kernels(y) == 1 + apart
    np.testing.assert_allclose(y.numpy(), 1 / (1 + np.exp(-(x.numpy() * w.numpy()).sum(1))), rtol=1e-3, atol=1e-6)
    # What is cheap stays: it needs no pass over memory.
    assert kernels((x * w).sum(1) * 2 + 1) == 1
    # So does what is spread over the rows again.
    z = x * lt.exp(-(x * w).sum(1, keepdims=True))
    assert kernels(z) == 1


def test_a_value_of_which_a_kernel_reads_the_first_part_is_stored_whole():
    """The gradient of a concatenation is slices of one value, the first of them from 0."""

    def gradient():
        x = lt.tensor(np.arange(1.0, 5.0) ** 2, requires_grad=True)
        y = lt.concat([lt.reshape(x, (1, -1)), lt.reshape(x[::-1], (1, -1))])
        z = y - lt.reshape(y.mean(axis=1), (-1, 1))
        (z * z * lt.asarray(np.arange(8.0).reshape(2, 4))).sum().backward()
        return x.grad.numpy()

    with lt.eager():
        want = gradient()
    np.testing.assert_array_equal(gradient(), want)
    np.testing.assert_allclose(want, [-91.0, -49.0, 21.0, 119.0])


JOINS = {
    "two": lambda a, b, c: lt.concat([a, b]),
    "three": lambda a, b, c: lt.concat([a, c, b]),
    "one first": lambda a, b, c: lt.concat([c, a]),
    "twice": lambda a, b, c: lt.concat([lt.concat([a, c]), b]),
    "columns": lambda a, b, c: lt.concat([a[:, None], b[:, None]], axis=1),
    "rows": lambda a, b, c: lt.concat([a[None], b[None]], axis=0),
    "rolled": lambda a, b, c: lt.roll(lt.concat([a, b]), 2),
    "rolled rows": lambda a, b, c: lt.roll(lt.stack([a, b]), 1, axis=0),
    "stacked and joined": lambda a, b, c: lt.concat([lt.stack([a, b]), a[None]]),
}
SPREADS = {
    "broadcast": lambda y: lt.broadcast_to(y[None], (4, *y.shape)),
    "broadcast behind": lambda y: lt.broadcast_to(y[..., None], (*y.shape, 4)),
    "tiled": lambda y: lt.tile(y, (4,) + (1,) * y.ndim),
    "repeated": lambda y: lt.repeat(y, 4, axis=-1),
    "a bias": lambda y: lt.zeros((4, *y.shape)) + y,
    "an outer product": lambda y: lt.reshape(y, (-1, 1)) * lt.ones((1, 4)),
}


@pytest.mark.parametrize("regime", ["lazy", "eager", "read before"])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("join", JOINS)
def test_the_gradient_of_a_join_that_is_spread_is_computed_whole(join, spread, regime):
    """The sum over what was spread is cut into slices. A kernel that reads the first of them computes all of it."""
    rng = np.random.default_rng([len(join), len(spread), len(regime)])
    leaves = [lt.tensor(rng.integers(1, 99, n).astype("f4"), requires_grad=True) for n in (5, 5, 1)]
    with lt.eager() if regime == "eager" else nullcontext():
        y = SPREADS[spread](JOINS[join](*leaves))
        loss = (y * y).sum()
        if regime == "read before":
            float(loss)
        loss.backward()
    twice = join == "stacked and joined"
    for n, (x, name) in enumerate(zip(leaves, "abc", strict=True)):
        if x.grad is not None:
            want = 8 * x.detach().numpy() * (1 + (twice and n == 0))
            np.testing.assert_array_equal(x.grad.numpy(), want, err_msg=name)


def _pooled(r, width):
    return [lt.nn.functional.max_pool1d(lt.reshape(r, (1, -1, 7)), width) * 1.5, r * 2]


READS = {
    "pools of 2 of 7": lambda r: _pooled(r, 2),
    "pools of 3 of 7": lambda r: _pooled(r, 3),
    "windows": lambda r: [lt.sliding_window_view(r, 7, axis=-1)[..., 0, :] * 1.5, r[..., 1:]],
    "halves": lambda r: [p * 1.5 for p in lt.split(r, [3], axis=-1)],
    "halves and a library call": lambda r: [lt.split(r, [3], axis=-1)[0] * 1.5, lt.sort(r)],
    "every other": lambda r: [r[..., ::2] * 1.5, r[..., 1::2]],
    "a part of a join": lambda r: [lt.concat([r, r]) * 1.5, r[..., :3]],
    "differences": lambda r: [lt.diff(r, axis=-1) * 1.5],
}
REDUCED = {
    "columns": lambda x: lt.sum(x[0], axis=0),
    "rows": lambda x: lt.max(x[0].T, axis=1),
    "narrow rows": lambda x: lt.sum(x[0, :3].T, axis=1),
    "middle axis": lambda x: lt.sum(x, axis=1),
}


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("reduced", REDUCED)
def test_a_reduction_that_is_read_in_parts_is_computed_whole(reduced, reads):
    # Whole numbers: sums are exact in every order.
    x = lt.asarray(np.random.default_rng(0).integers(-9, 9, (4, 32, 7)).astype("f8"))
    count = len(READS[reads](REDUCED[reduced](x)))
    want = [READS[reads](REDUCED[reduced](x))[i].numpy() for i in range(count)]
    for order in (slice(None), slice(None, None, -1)):  # what is read last is fused first
        found = READS[reads](REDUCED[reduced](x))[order]
        lt.sync()
        for got, expected in zip(found, want[order], strict=True):
            np.testing.assert_array_equal(got.numpy(), expected)


class TestUpdates:
    """A write into most of an array is one pass over it, not a copy that is then written over."""

    @staticmethod
    def steps(n, seed=0):
        u = tensor(40, 50, seed=seed) * 1.0
        for _ in range(n):
            u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1])
        return u

    def test_a_step_of_a_stencil_is_one_kernel(self):
        assert kernels(self.steps(3)) == 3

    def test_the_bits_are_those_of_a_copy(self, monkeypatch):
        on = self.steps(3).numpy()
        monkeypatch.setitem(plan_cache.settings, "cover", False)
        off = self.steps(3, seed=0)
        off += 0  # another program
        assert kernels(off) > 4
        np.testing.assert_array_equal(on, off.numpy())

    def test_a_write_into_a_small_part_is_one(self):
        u = tensor(40, 50) * 1.0
        u[3] = 0.0
        lt.sync()
        assert [c.kernel.text.count("select") for c in lt.last_sync().plan.schedule.launches] == [0, 0]

    def test_putting_a_view_back_is_no_write(self):
        u = tensor(40, 50) * 1.0
        before = u._version
        u[1:-1] = u[1:-1]
        assert u._version == before + 1
        assert kernels(u) == 1


class TestTransposedProducts:
    """The gradient of `linear`'s weight is a product transposed: computed as it is stored."""

    @staticmethod
    def gradient(seed=0, batch=()):
        x, w = tensor(*batch, 24, 70, seed=seed), tensor(*batch, 33, 70, seed=seed + 1).requires_grad_()
        (x @ w.mT).relu().sum().backward()
        return w.grad

    @staticmethod
    def products():
        calls = [c for c in lt.last_sync().plan.schedule.launches if isinstance(c, MatmulCall)]
        return [tuple(map(hint, c.node.shape)) for c in calls]

    @pytest.mark.parametrize("batch", [(), (3,)])
    def test_on_and_off(self, monkeypatch, batch):
        on = self.gradient(batch=batch).numpy()
        assert self.products()[-1] == (*batch, 33, 70)
        monkeypatch.setitem(plan_cache.settings, "turn", False)
        forget()
        off = self.gradient(batch=batch).numpy()
        assert self.products()[-1] == (*batch, 70, 33)
        np.testing.assert_allclose(on, off, rtol=1e-5, atol=1e-5)  # sums of 24 products, some of which cancel

    def test_one_that_somebody_else_reads_stays(self):
        y = tensor(5, 7) @ tensor(7, 6)
        z = y.mT * 2.0
        np.testing.assert_array_equal(z.numpy(), y.numpy().T * 2)


class TestNumbering:
    @pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
    def test_updates_of_all_parameters_are_one_body(self, optimizer):
        """The first meets its scalars between its operations, the others before them."""
        ps = [tensor(*shape, grad=True, seed=i) for i, shape in enumerate([(40,), (1,), (9, 3), (2, 3, 4)])]
        opt = getattr(optim, optimizer)(ps, lr=0.1, weight_decay=0.01)
        for _ in range(2):
            for i, p in enumerate(ps):
                p.grad = tensor(*p.shape, seed=9 + i)
            opt.step()
            lt.sync()
            assert len({c.kernel.key for c in lt.last_sync().plan.schedule.kernels}) == 1

    def test_arguments_are_numbered_by_use(self):
        a, b, c = (tensor(33, seed=i) for i in range(3))
        first = lt.sqrt(lt.abs(a - b) * 3.0 + 2.0)
        second = lt.sqrt(lt.abs(c - a) * 3.0 + 2.0)
        lt.sync()
        (kernel,) = {x.kernel for x in lt.last_sync().plan.schedule.kernels}
        used = [v.access for v in kernel.values if isinstance(v, Load)]
        assert used == sorted(used) and not any(kernel.accesses[i].writes for i in used)
        positions = [v.position for v in kernel.values if isinstance(v, Scalar)]
        assert positions == list(range(kernel.scalars))
        for got, (x, y) in ((first, (a, b)), (second, (c, a))):
            want = np.sqrt(np.abs(x.numpy() - y.numpy()) * np.float32(3) + np.float32(2))
            np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("value", [7.0, 5 + 6j, np.array(7.0)], ids=str)
def test_what_is_padded_with_is_read_outside(value):
    x = np.array([1.0, 2.0], np.complex128 if isinstance(value, complex) else np.float64)
    fill = lt.asarray(value) if isinstance(value, np.ndarray) else value
    got = lt.pad(lt.asarray(x) * 2, 1, constant_values=fill)[:-1]
    np.testing.assert_array_equal(got.numpy(), np.pad(x * 2, 1, constant_values=value)[:-1])


def test_parts_of_what_grows_are_stored_a_few_times_each():
    x = tensor(3, 2)
    held = [x]
    for _ in range(30):
        held.append(lt.concat([held[-1], held[-1][-1:] * 0.5]))
    plan = lt.explain().plan
    want = x.numpy()
    for y in held[1:]:
        want = np.concatenate([want, want[-1:] * np.float32(0.5)])
        np.testing.assert_array_equal(y.numpy(), want)
    stores = sum(len(s.stores) for c in plan.schedule.kernels for s in c.kernel.stages)
    assert stores < 6 * 30


def test_a_concatenation_that_is_a_part_of_many_is_stored():
    parts = [tensor(2, 3, seed=i) * 2.0 for i in range(4)]
    ends = [tensor(1, 3, seed=9 + i) for i in range(7)]
    whole = lt.concat(parts)
    found = [lt.concat([whole, e]) for e in ends]
    want = np.concatenate([p.detach().numpy() for p in parts])
    del parts, whole
    for y, e in zip(found, ends, strict=True):
        np.testing.assert_array_equal(y.numpy(), np.concatenate([want, e.numpy()]))


def test_many_pads_are_some_kernels():
    x = tensor(5)
    y = x
    for _ in range(150):
        y = lt.pad(y, 1, constant_values=2.0)
    assert kernels(y) == 3
    np.testing.assert_array_equal(y.numpy(), np.pad(x.numpy(), 150, constant_values=2.0))
