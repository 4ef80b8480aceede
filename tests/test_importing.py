"""What an import of lazyt loads, and what is put off until somebody asks for it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import lazyt as lt
from lazyt.functions import late_names
from lazyt.functions.protocols import functions, special_cases, table, ufuncs
from lazyt.ir import records

# What a program on the CPU does not need, whatever it asks lazyt.
NOT_LOADED = ("lazyt.backends.cuda.", "lazyt.testing", "numpy.random", "cupy", "einops", "subprocess", "html.entities")
PROGRAM = """
import sys, numpy
import lazyt as lt, lazyt.nn, lazyt.optim
x = lt.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
y = (lt.exp(x) @ x.T).sum()
{more}
print(*sys.modules)
"""
ASKING = (
    "print(y.explain(), file=sys.stderr); y.backward(); float(y); print(lt.last_sync(), lt.pending(), file=sys.stderr)"
)


@pytest.mark.parametrize("more", ["", ASKING], ids=["recording", "computing and looking"])
def test_what_is_not_loaded(more):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(more=more)], capture_output=True, text=True, check=True, timeout=100
    )
    loaded = done.stdout.split()
    assert "lazyt.runtime.tensor" in loaded
    assert not [m for m in loaded if m.startswith(NOT_LOADED)]


# The import alone loads so many modules of lazyt at most (it had 362 before the others were loaded on demand), and none
# of these.
MODULES = 156
LATER = (
    "llvmlite", "hashlib", "importlib.resources", "json", "lazyt.autograd.batching", "lazyt.autograd.forward",
    "lazyt.autograd.reverse", "lazyt.autograd.rules", "lazyt.autograd.tangents", "lazyt.backends.cpu.codegen",
    "lazyt.backends.cpu.engine", "lazyt.backends.cpu.executor", "lazyt.backends.cpu.library", "lazyt.distributions",
    "lazyt.functions.convolution", "lazyt.functions.gradients", "lazyt.functions.linalg",
    "lazyt.functions.protocols.functions", "lazyt.functions.protocols.ufuncs", "lazyt.inspect.explain",
    "lazyt.ir.graph_interpreter", "lazyt.ir.passes.pipeline", "lazyt.nn", "lazyt.optim", "lazyt.runtime.memory_budget",
    "tempfile",
)  # fmt: skip
# What a program of plain operations needs neither.
UNNEEDED = (
    "lazyt.autograd.batching", "lazyt.autograd.forward", "lazyt.autograd.reverse", "lazyt.autograd.rules",
    "lazyt.autograd.tangents", "lazyt.backends.cpu.library.attention.", "lazyt.backends.cpu.library.conv",
    "lazyt.distributions", "lazyt.functions.convolution", "lazyt.functions.linalg", "lazyt.functions.losses",
    "lazyt.functions.protocols.functions", "lazyt.functions.protocols.ufuncs", "lazyt.inspect.explain",
    "lazyt.inspect.kernels", "lazyt.nn", "lazyt.optim", "lazyt.runtime.memory_budget", "json",
)  # fmt: skip
PLAIN = "x = lt.asarray([1.0, 2.0]); y = lt.exp(x) * 2 + x[::-1]; float(y.sum()); lt.sync()"


def _loaded(program: str, flags: str = "no-stored") -> list[str]:
    """The modules that a program loads; which finds no plan of an earlier run, unless with other flags."""
    text = (
        f"import sys, numpy; before = {{*sys.modules}}\n{program}\nprint(*(m for m in sys.modules if m not in before))"
    )
    environment = {**os.environ, "LAZYT_DEBUG": flags}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=100, env=environment
    )
    return done.stdout.split()


def _among(loaded: list[str], names: tuple[str, ...]) -> list[str]:
    return [m for m in loaded if f"{m}.".startswith(tuple(f"{n.rstrip('.')}." for n in names))]


def test_what_an_import_loads():
    loaded = _loaded("import lazyt")
    assert not _among(loaded, LATER)
    assert len([m for m in loaded if m.startswith("lazyt")]) <= MODULES


def test_what_plain_operations_load():
    loaded = _loaded(f"import lazyt as lt; {PLAIN}")
    assert "llvmlite" in loaded
    assert not _among(loaded, UNNEEDED)


def test_a_look_for_plans_of_earlier_runs_loads_no_products():
    loaded = _loaded(f"import lazyt as lt; {PLAIN}", flags="")
    assert not _among(loaded, (*UNNEEDED, "lazyt.backends.cpu.library.products", "lazyt.backends.cpu.library.gemm_ir"))


@pytest.mark.parametrize("module", late_names.LATE)
def test_the_names_that_are_loaded_late_are_those_of_their_modules(module):
    theirs = importlib.import_module(module)
    names = late_names.LATE[module].split()
    # Of these not all are functions of `lazyt`, or they are no module of public names.
    if module.rpartition(".")[2] not in ("adaptive_pooling", "distances", "explain", "pending", "pooling"):
        assert names == sorted(theirs.__all__)
    assert all(hasattr(theirs, n) and hasattr(lt, n) for n in names)


def test_the_names_of_autograd_are_those_of_their_module():
    theirs = importlib.import_module("lazyt.functions.gradients")
    assert sorted(lt.autograd.__all__) == sorted(theirs.__all__)
    with pytest.raises(AttributeError, match=r"'lazyt\.autograd' has no attribute 'nothing'"):
        _ = lt.autograd.nothing


# What NumPy's protocols have under a name is what `lazyt` has under it: one rule says so without loading the tables.
def test_what_has_numpys_signature_is_in_the_protocols_tables():
    for theirs, ours in ((np, table.PUBLIC), (np.linalg, table.LINALG), (np.fft, table.FFT)):
        for name in ours:
            named = getattr(theirs, name, None)
            if isinstance(named, np.ufunc):
                assert named in ufuncs.UFUNCS, name
            else:
                known = named in special_cases.SPECIAL or named in functions.NATIVE
                assert known == (named is not None and not isinstance(named, type)), name


def test_a_protocol_is_loaded_at_its_first_call():
    program = "import numpy as np, lazyt as lt; x = lt.asarray([1.0, 2.0]); {}; t = vars(lt.Tensor)"
    for call, name, place in (
        ("assert np.exp(x).tolist()", "__array_ufunc__", "ufuncs"),
        ("assert np.sum(x).item() == 3", "__array_function__", "functions"),
    ):
        told = f"; assert t['{name}'].__module__ == 'lazyt.functions.protocols.{place}'"
        assert f"lazyt.functions.protocols.{place}" in _loaded(program.format(call) + told)


def test_threads_load_one_module():
    """Each gets the same function, though all ask for it at once."""
    program = """
import threading, lazyt as lt
found, ready = [], threading.Barrier(8)
def ask():
    ready.wait()
    found.append((lt.softplus, lt.nanmean, lt.linalg.inv, lt.autograd.Function))
threads = [threading.Thread(target=ask) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert len({*found}) == 1 and len(found) == 8
"""
    assert "lazyt.functions.activations" in _loaded(program)


def test_an_import_that_was_interrupted_comes_again():
    """At any line of the derivatives' modules: the next backward has all rules."""
    program = """
import random, sys, lazyt as lt
from lazyt import on_demand
class Stop(BaseException): pass
left = 0
def trace(frame, event, arg):
    global left
    if event == "line" and "lazyt.autograd.rules" in str(frame.f_globals.get("__name__")):
        left -= 1
        if left == 0:
            raise Stop
    return trace
rng, stopped = random.Random(0), 0
for _ in range(12):
    left = rng.randrange(1, 200)
    sys.settrace(trace)
    try:
        on_demand.load("lazyt.autograd.rules")
    except Stop:
        stopped += 1
    finally:
        sys.settrace(None)
assert stopped
x = lt.tensor([3.0], requires_grad=True)
(x * lt.exp(x)).sum().backward()
assert abs(float(x.grad) - 4 * 20.085537) < 1e-3
"""
    assert "lazyt.autograd.rules.elementwise" in _loaded(program)


def test_a_missing_llvmlite_is_one_clear_error():
    program = """
import sys
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name == "llvmlite":
            raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite")
sys.meta_path.insert(0, Nowhere())
import lazyt as lt
x = lt.exp(lt.ones(3))
try:
    x.numpy()
except ModuleNotFoundError as error:
    assert "llvmlite, which is not installed: pip install llvmlite" in str(error), error
    assert x.is_pending
else:
    raise AssertionError
"""
    assert "lazyt" in _loaded(program)


def test_the_cuda_backend_has_the_modules_that_it_names():
    from lazyt.backends import cuda

    assert {*cuda.__all__} == {*cuda._PLACES}
    for name, place in cuda._PLACES.items():
        assert getattr(cuda, name).__name__ == f"lazyt.backends.cuda.{place}"
    with pytest.raises(AttributeError, match=r"'lazyt\.backends\.cuda' has no attribute 'nothing'"):
        _ = cuda.nothing


def test_signatures_that_are_read_late_lead_to_the_function():
    assert str(inspect.signature(lt.max)).startswith("(x: ")
    assert {"out", "where", "initial"} <= inspect.signature(lt.max).parameters.keys()
    assert {"out", "where", "dtype"} <= inspect.signature(lt.exp).parameters.keys()
    for f in (lt.max, lt.exp, lt.concatenate):
        assert inspect.isfunction(inspect.unwrap(f))
        assert inspect.unwrap(f).__module__.startswith("lazyt.functions.")
        assert "def " + f.__name__ in inspect.getsource(f)


def test_operators_have_their_names():
    for name in ("__add__", "__radd__", "__iadd__", "__neg__", "__lt__"):
        f = getattr(lt.Tensor, name)
        assert (f.__name__, f.__qualname__, f.__code__.co_name) == (name, name, name)
        assert f.__code__.co_filename == f"<lazyt {name}>"


# --- records whose methods are written late are those of the standard library


def _pairs():
    both = []
    for decorator in (records.dataclass, dataclasses.dataclass):

        @decorator(frozen=True, slots=True)
        class Point:
            """Somewhere."""

            x: int
            y: float = 0.5
            note: str = dataclasses.field(default="", compare=False, repr=False)

            @property
            def twice(self):
                return 2 * self.x

        both.append(Point)
    return both


OURS, THEIRS = _pairs()


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: repr(p(1)),
        lambda p: repr(p(1, y=2.0, note="a")),
        lambda p: hash(p(1, 2.0, "a")),
        lambda p: (p(1) == p(1), p(1) == p(1, note="b"), p(1) == p(2), p(1) == (1, 0.5), p(1) != p(1)),
        lambda p: (p(1).__eq__(1), p(float("nan")) == p(float("nan"))),
        lambda p: dataclasses.replace(p(1, note="c"), x=3).note,
        lambda p: dataclasses.astuple(p(1)),
        lambda p: (p.__match_args__, p.__slots__, p.__doc__, p(4).twice),
        lambda p: repr(copy.deepcopy(p(1, 2.0, "a"))),
        lambda p: p(),
        lambda p: p(1, 2, 3, 4),
        lambda p: p(1, z=2),
        lambda p: setattr(p(1), "x", 2),
        lambda p: delattr(p(1), "x"),
        lambda p: {p(1): "a"}[p(1, note="other")],
    ],
)
def test_a_record_is_as_the_standard_librarys(ask):
    answers = []
    for cls in (OURS, THEIRS):
        try:
            answers.append(ask(cls))
        except (TypeError, AttributeError) as e:
            answers.append((type(e), str(e)))
    assert answers[0] == answers[1]


def test_a_record_takes_no_further_attributes():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'z'"):
        OURS(1).z = 2


def test_a_record_by_identity_and_without_slots():
    @records.dataclass(frozen=True, eq=False)
    class Named:
        name: str

    a, b = Named("a"), Named("a")
    assert a != b
    assert len({a, b}) == 2
    assert vars(a) == {"name": "a"}
    assert repr(a).endswith("Named(name='a')")


def test_functions_are_pickled_by_their_names():
    spaces = {"": lt, "linalg.": lt.linalg, "fft.": lt.fft, "nn.functional.": lt.nn.functional, "random.": lt.random}
    for prefix, space in spaces.items():
        for name in dir(space):
            f = getattr(space, name)
            if callable(f) and not name.startswith("_"):
                assert pickle.loads(pickle.dumps(f)) is f, prefix + name


def test_a_record_is_pickled():
    from lazyt.ir import graph as g

    assert pickle.loads(pickle.dumps(g.Axes((0, 1)))) == g.Axes((0, 1))


def _changing():
    both = []
    for decorator in (records.dataclass, dataclasses.dataclass):

        @decorator
        class Base:
            items: list = dataclasses.field(default_factory=list)
            many: int = dataclasses.field(init=False, compare=False)

            def __post_init__(self):
                self.items.append(0)
                self.many = len(self.items)

        @decorator(eq=False)
        class Derived(Base):
            name: str = "a"

        both.append((Base, Derived))
    return both


@pytest.mark.parametrize(
    "ask",
    [
        lambda b, d: (repr(b()), repr(b([1])), b() == b(), b() == b([2]), b().items is b().items),
        lambda b, d: (repr(d()).split(".")[-1], d([5], "b").items, d(name="c").name, d() == d(), len({d(), d()})),
        lambda b, d: hash(b()),
        lambda b, d: (b() == d(), d() == b()),
        lambda b, d: setattr(b(), "items", 2),
        lambda b, d: (b([1, 2]).many, d([1, 2]).many),
        lambda b, d: dataclasses.replace(d([1]), name="e").items,
        lambda b, d: d([], "a", 1),
    ],
)
def test_what_may_change_is_as_the_standard_librarys(ask):
    answers = []
    for classes in _changing():
        try:
            answers.append(ask(*classes))
        except (TypeError, AttributeError) as e:
            answers.append((type(e), str(e)))
    assert answers[0] == answers[1]


def test_a_record_takes_no_arguments_that_it_does_not_know():
    with pytest.raises(AssertionError, match="no further arguments"):
        records.dataclass(order=True)
