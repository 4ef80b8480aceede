"""A binding that a function found is the one that is worked out: every entry of every table, for random programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, note, settings

import lazyt as lt
from lazyt.backends.cpu import kernel_rows, symbolic_binding
from lazyt.backends.cpu.binding import Binding
from lazyt.backends.cpu.executor import Bound, Executable, Rebound
from lazyt.backends.cpu.flags import switches
from lazyt.backends.cpu.symbolic_binding import Function, Notes, Number, Untold
from lazyt.config import general
from lazyt.errors import LazytError
from lazyt.testing import array_programs
from lazyt.testing.array_programs import Writer
from lazyt.tracing.trace import local
from tests.support.batched_programs import CASES
from tests.support.drawn import EXAMPLES, examples
from tests.support.plans import forget

if not switches["rebind"] or general["interpret"]:
    pytest.skip("LAZYT_DEBUG=no-rebind or interpret", allow_module_level=True)

RNG = np.random.default_rng(1)
# What NumPy computes finds its places by a binding of its own.
CALLS_PYTHON = {"made"}


def same(bound: Rebound) -> None:
    """What a function found, against what is worked out."""
    want = Binding(bound.exe, bound.values, bound.left_out)
    parts = want.divide(bound.flag.ctypes.data)
    want.donations = want.possible_donations()
    assert bound.shapes == want.shapes
    assert (bound.sizes, bound.arena_size, bound.moving) == (want.sizes, want.arena_size, want.moving)
    assert (bound.uses_blas, bound.checks) == (want.uses_blas, want.checks)
    assert (bound.donations, bound.overwrites_from) == (want.donations, want.overwrites_from)
    assert len(bound.parts) == len(parts)
    for got, part in zip(bound.parts, parts, strict=True):
        assert isinstance(part, tuple)
        rows, table, patches = part
        assert got.rows.tolist() == rows
        assert got.table.tolist() == table
        assert got.patches.tolist() == [list(p) for p in patches]
        assert len(got.bases) == want.n_fixed + len(want.moving)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Bound]]:
    """What plans were bound to, each compared; functions are written for the second extents already."""
    made: list[Bound] = []
    make = Executable.make

    def compared(*args: Any) -> Bound:
        bound = make(*args)
        if isinstance(bound, Rebound):
            same(bound)
        made.append(bound)
        return bound

    lt.sync()
    forget()
    monkeypatch.setattr(Executable, "make", compared)
    monkeypatch.setattr(symbolic_binding, "OTHERS", -20)
    yield made
    forget()


def again(made: list[Bound]) -> int:
    return sum(isinstance(b, Rebound) for b in made)


@pytest.mark.parametrize("name", CASES)
def test_new_sizes_are_bound_alike(name: str, found: list[Bound]) -> None:
    for b in (7, 3, 1, 64, 9, 5, 32, 6, 8, 4, 300, 40, 200, 41, 42):
        got, want = CASES[name](b)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5, err_msg=f"size {b}")
    assert again(found) >= 2 or name in CALLS_PYTHON


def test_a_batch_binds_by_few_functions(found: list[Bound]) -> None:
    w, v, c = (lt.asarray(RNG.normal(size=s).astype(np.float32)) for s in ((64, 96), (96, 10), (96,)))
    lt.sync()
    found.clear()
    for n in RNG.permutation(np.arange(1, 1200, 7)):
        lt.softmax(lt.tanh(lt.ones((int(n), 64)) @ w + c) @ v, -1).numpy()
    assert again(found) > 0.8 * len(found)


def test_keys_that_grow_bind_by_few_functions(found: list[Bound]) -> None:
    """The columns of the scores and the depth of what they weight grow by one a call."""
    q, keys, values = (RNG.normal(size=s).astype(np.float32) for s in ((8, 5, 32), (8, 400, 32), (8, 400, 32)))
    for n in range(1, 400):
        k, v = lt.asarray(keys[:, :n]), lt.asarray(values[:, :n])
        got = (lt.asarray(q) @ k.mT) @ v
        np.testing.assert_allclose(got.numpy(), (q @ keys[:, :n].mT) @ values[:, :n], rtol=1e-4, atol=1e-3)
    assert again(found) > 0.7 * len(found)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_products_of_all_sizes(threads: int, found: list[Bound]) -> None:
    before = lt.get_num_threads()
    lt.set_num_threads(threads)
    rng = np.random.default_rng(2)
    try:
        for _ in range(120):
            m, n, k = (int(2 ** rng.uniform(0, 8)) for _ in range(3))
            for a, b in ((lt.ones((m, k)), lt.ones((k, n))), (lt.ones((k, m)).T, lt.ones((n, k)).T)):
                np.testing.assert_allclose((a @ b + 1).numpy(), np.full((m, n), k + 1.0))
    finally:
        lt.set_num_threads(before)
    assert again(found) >= 5


def test_rows_that_are_divided(found: list[Bound]) -> None:
    """How they are depends on how long they are, so that is worked out each time."""
    before = lt.get_num_threads()
    lt.set_num_threads(2)
    try:
        for n in (2000, 3000, 4000, 300_000, 310_000, 320_001, 5000):
            x = RNG.normal(size=(2, n))
            np.testing.assert_allclose(lt.asarray(x).sum(axis=1).numpy(), x.sum(1), atol=1e-6)
            np.testing.assert_array_equal(lt.argmax(lt.asarray(x), axis=1).numpy(), x.argmax(1))
    finally:
        lt.set_num_threads(before)
    lengths = {b.extents[-1] for b in found if isinstance(b, Rebound)}
    assert 5000 in lengths <= {4000, 5000}


def test_attention_and_its_gradient(found: list[Bound]) -> None:
    w = lt.tensor(RNG.normal(size=(16, 48)).astype(np.float32), requires_grad=True)
    for n in (20, 33, 48, 64, 9, 21, 100, 130, 40, 25, 105):
        x = lt.asarray(RNG.normal(size=(2, n, 16)).astype(np.float32))
        q, k, v = lt.split(x @ w, 3, axis=-1)
        loss = lt.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum()
        loss.backward()
        lt.sync()
        w.grad = None
    assert again(found) >= 3


def test_weights_are_updated_in_place(found: list[Bound]) -> None:
    """The tables of a run that overwrites inputs are written by functions of their own."""
    w = lt.tensor(RNG.normal(size=(64, 128)).astype(np.float32), requires_grad=True)
    for n in (5, 6, 7, 8, 9, 10, 11, 12):
        loss = (lt.ones((n, 64)) @ w).sum()
        loss.backward()
        with lt.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        del loss
        lt.sync()
    assert any(b.left_out is not None for b in found if isinstance(b, Rebound))


def test_scatters_of_new_sizes(found: list[Bound]) -> None:
    """Where the list of a place's updates starts is a matter of how many places there are."""
    for n in (50, 60, 70, 80, 90, 120, 31):
        x = lt.zeros((n, 3))
        x[lt.asarray(np.arange(2 * n) % n)] = 1.5
        np.testing.assert_array_equal(x.numpy(), np.full((n, 3), 1.5, np.float32))
    assert again(found)


def test_a_concatenation_of_many_sizes(found: list[Bound]) -> None:
    for i in range(12):
        parts = [np.arange(1.0 + (i * k) % 7) for k in range(50)]
        got = lt.concat([lt.asarray(p) for p in parts]) * 2.0
        np.testing.assert_array_equal(got.numpy(), np.concatenate(parts) * 2)
    assert again(found) > 3


def test_wrong_indices_of_a_rebound_plan(found: list[Bound]) -> None:
    x = lt.asarray(np.arange(12.0))
    for n in (3, 4, 5, 6):
        assert x[lt.asarray(np.arange(n))].numpy().tolist() == list(range(n))
    assert again(found)
    with pytest.raises(IndexError, match="index 12 is out of bounds"):
        x[lt.asarray(np.arange(7) + 6)].numpy()


def test_switched_off(found: list[Bound], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(switches, "rebind", False)
    for n in range(3, 20):
        np.testing.assert_array_equal((lt.ones((n, 4)) * 2).numpy(), np.full((n, 4), 2.0))
    assert len(found) > 10 and not again(found)


def test_another_number_of_threads(found: list[Bound]) -> None:
    """Chunks are by the number of threads, so functions are too."""
    before = lt.get_num_threads()
    try:
        for threads in (1, 2, 1):
            lt.set_num_threads(threads)
            for n in range(300, 304):
                lt.cumsum(lt.ones((n + 10 * threads, 64)), axis=0).numpy()
    finally:
        lt.set_num_threads(before)
    assert again(found) >= 3


def test_what_is_bound_keeps_little() -> None:
    forget()
    for n in range(2, 80):
        lt.softmax(lt.ones((n, 64)) @ lt.ones((64, 8)), -1).numpy()
    exe = lt.last_sync().plan.executable  # type: ignore[union-attr]
    bound = list(exe.bound.values())[-1]
    assert isinstance(bound, Rebound)
    assert not {"products", "offsets", "scratch"} & bound.__dict__.keys()
    assert sum(len(p.words) for p in bound.parts) < 400
    (product,) = bound.products.values()
    assert product.choice.m == 79


DIMS = st.tuples(*(st.integers(0, 40) for _ in range(3)))


def check_bindings(data: st.DataObject) -> None:
    w = Writer(lambda n: data.draw(st.integers(0, n - 1)), dims=(3, 5, 2))
    w.program(length=10)
    note("\n".join(w.lines))
    code = compile("\n".join(w.lines), "<extents>", "exec")
    patch = pytest.MonkeyPatch()
    with patch.context() as m:
        m.setattr(kernel_rows, "GRAIN", 8)
        m.setattr(symbolic_binding, "OTHERS", -20)
        make = Executable.make

        def compared(*args: Any) -> Bound:
            bound = make(*args)
            if isinstance(bound, Rebound):
                same(bound)
            return bound

        m.setattr(Executable, "make", compared)
        forget()
        for d in [(3, 5, 2), (4, 5, 2), (5, 5, 2), *data.draw(st.lists(DIMS, min_size=4, max_size=8))]:
            space: dict[str, Any] = {"xp": lt, "np": np, "leaf": array_programs.leaf, "d": d}
            try:
                with np.errstate(all="ignore"):
                    exec(code, space)
                    for name in w.values:
                        space[name].numpy()
            except (LazytError, ValueError, IndexError, ZeroDivisionError):
                local.trace.start()  # these extents do not fit the program
    forget()


@examples(8)
@given(st.data())
@pytest.mark.slow
def test_random_programs_of_random_extents(data: st.DataObject) -> None:
    """Each program is planned and bound for seven extents and more; the slow test tries four times as many."""
    check_bindings(data)


@pytest.mark.slow
@examples(30)
@given(st.data())
def test_more_random_programs_of_random_extents(data: st.DataObject) -> None:
    check_bindings(data)


# --- numbers that note what is done to them


def written(f: Callable[..., Any], *values: int) -> Callable[..., Any]:
    """f as the function that is written of it, from its run on these values."""
    notes = Notes()
    result = f(*(notes.known(f"v[{i}]", v) for i, v in enumerate(values)))
    lines = symbolic_binding._needed(notes.lines, [f"return {symbolic_binding._name(result)}"])
    space: dict[str, Any] = {"trunc": math.trunc, "ceil": math.ceil}
    exec("def g(*v):\n    " + "\n    ".join(lines), space)
    made: Callable[..., Any] = space["g"]
    return made


@settings(max_examples=EXAMPLES or 200, derandomize=not EXAMPLES, deadline=None)
@given(st.data())
def test_random_arithmetic(data: st.DataObject) -> None:
    """None where a decision is another, else what is computed."""
    number, lines = st.integers(-3, 9), []
    names = ["a", "b", "-2", "0", "1", "3", "7", "0.5"]
    kinds = ["{} + {}", "{} - {}", "{} * {}", "-({} // max({}, 1))", "max({}, {})", "{} if {} > 2 else 1"]
    for i in range(data.draw(st.integers(1, 8))):
        x, y = (data.draw(st.sampled_from(names)) for _ in range(2))
        lines.append(f"x{i} = {data.draw(st.sampled_from(kinds)).format(x, y)}")
        names.append(f"x{i}")
    note("\n".join(lines))
    space: dict[str, Any] = {}
    exec("def f(a, b):\n    " + "\n    ".join([*lines, f"return {names[-1]}"]), space)
    f = space["f"]
    g = written(f, data.draw(number), data.draw(number))
    for _ in range(6):
        a, b = data.draw(number), data.draw(number)
        got = g(a, b)
        assert got is None or got == f(a, b)
    a, b = data.draw(number), data.draw(number)
    assert written(f, a, b)(a, b) == f(a, b)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: [0] * x,
        lambda x: range(x),
        lambda x: {x: 1},
        lambda x: int(x),
        lambda x: np.arange(x),
        lambda x: np.ones(3) * x,
        lambda x: "abc"[x],
        lambda x: x.bit_length(),
        lambda x: 1 << x,
        lambda x: f"{x}",
    ],
)
def test_what_would_lose_where_a_number_comes_from(f: Callable[[Any], Any]) -> None:
    with pytest.raises(Untold):
        f(Notes().known("v[0]", 2))


def test_numbers_are_only_what_a_program_may_differ_in() -> None:
    n = Number(Notes(), "v[0]", 5)
    symbolic_binding._template([[1, 0, n, n, 0]], [n, 2], [(1, 0, n)], 1)
    for row, patch in (([n, 0, 1, 1, 0], (0, 0, 0)), ([1, n, 1, 1, 0], (0, 0, 0)), ([1, 0, 1, 1, 0], (n, 0, 0))):
        with pytest.raises(Untold):
            symbolic_binding._template([row], [0, 2], [patch], 1)  # type: ignore[list-item]


def test_functions_are_text_of_what_differs() -> None:
    forget()
    for n in range(40, 60):
        (lt.ones((n, 8)) * 2).numpy()
    (function,) = lt.last_sync().plan.executable.rebinders[None].functions  # type: ignore[union-attr]
    assert isinstance(function, Function)
    assert "w0 = words0[:]" in function.text and len(function.text.splitlines()) < 24
