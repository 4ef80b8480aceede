"""The benchmarks' own code: the table is whole, results are checked before times, statistics say what they should."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from benchmarks import (
    __main__ as command,
    convolution_cases,
    convolutions,
    function_cases,
    functions,
    measure,
    picture,
    report,
    stats,
)
from benchmarks.core import LIMITS, WORKLOADS, Duel, Result, Workload, in_float64
from benchmarks.measure import Ceiling, Setting, duel, survey, undisturbed
from benchmarks.peers import PEERS
from benchmarks.process import Others, Worker, WorkerFailed
from benchmarks.targets import TARGET_MEAN, TARGETS
from benchmarks.worker import Measurement, Spec, compare, save_reference
from benchmarks.workloads import batches

QUICK = Setting(threads=1, quick=True, repeats=2, timeout=120, survey_seconds=0.0, turn_seconds=0.0)

# --- the table


def test_every_target_has_a_workload_that_lazyt_and_numpy_run():
    assert set(TARGETS) <= set(WORKLOADS)
    for name in TARGETS:
        assert {"lazyt", "numpy"} <= set(WORKLOADS[name].builds), name


def test_builds_are_of_known_peers():
    for w in [*WORKLOADS.values(), *LIMITS.values()]:
        assert set(w.builds) <= set(PEERS), w.name
        assert ("torch" in w.builds) >= ("torch.compile" in w.builds), w.name


def test_the_targets_imply_their_mean():
    assert stats.geometric_mean([1 / t for t in TARGETS.values()]) >= TARGET_MEAN


# Programs whose plans take seconds: their layers are those of the others, and `python -m benchmarks --quick` runs them.
LONG = {"resnet_224_train_step", "mobilenet_train_step", "unet_train_step", "dcgan_step"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n, w in WORKLOADS.items() if not w.start],
)
@pytest.mark.parametrize("peer", ["lazyt", "numpy"])
def test_results_agree_with_the_reference(peer, name):
    w = WORKLOADS[name]
    if peer not in w.builds:
        assert name not in TARGETS
        return
    if (peer, name) == ("numpy", "black_scholes"):
        pytest.importorskip("scipy", reason="NumPy has no error function")
    inputs = w.inputs(True)
    measurement = Measurement(PEERS[peer](1), w, inputs)
    result = measurement.warm_up(measurement.start(), w.reference(in_float64(inputs)))
    assert result.error <= 1
    assert len(measurement.turn(1, 2, 0.0)) == 2


def test_inputs_are_the_same_each_time():
    for w in WORKLOADS.values():
        once, again = w.inputs(True), w.inputs(True)
        for k, x in once.items():
            np.testing.assert_array_equal(x, again[k])


def test_bytes_and_operations_are_those_of_the_full_sizes():
    """As the targets' table counts them: 20 GB/s copied, 239 GFLOP/s."""
    expected = {"softmax": 6.7, "gelu_chain": 6.7, "black_scholes": 4.2, "cumsum": 3.4, "embedding": 9}
    for name, ms in expected.items():
        w = WORKLOADS[name]
        assert w.nbytes is not None
        assert w.nbytes(_shapes(w)) / 20e9 * 1e3 == pytest.approx(ms, rel=0.05), name
    for name, ms in {"matmul_bias_gelu": 9, "mlp_train_step": 2.2, "gpt_train_step": 115, "gpt_forward": 2.3}.items():
        w = WORKLOADS[name]
        assert w.flops is not None
        assert w.flops(_shapes(w)) / 239e9 * 1e3 == pytest.approx(ms, rel=0.05), name


def _shapes(w: Workload) -> dict[str, np.ndarray]:
    return w.inputs(False)


def test_batch_sizes_are_new_at_every_call():
    seen = np.concatenate([batches.sizes(i) for i in range(batches.CALLS)])
    assert len(seen) == len(set(seen.tolist())) == batches.SIZES * batches.CALLS
    with pytest.raises(AssertionError, match="every batch size has been seen"):
        batches.sizes(batches.CALLS)


# --- checks

CHECKED = dataclasses.replace(WORKLOADS["softmax"], rtol=1e-3, atol=1e-6)


def test_a_wrong_result_has_no_time():
    want = np.linspace(1, 2, 100)
    assert compare(CHECKED, [want.astype(np.float32)], [want]) < 1
    with pytest.raises(AssertionError, match="result 0 is wrong by 2 times the tolerance"):
        compare(dataclasses.replace(CHECKED, rtol=0, atol=0.5), [np.ones(3)], [np.zeros(3)])
    with pytest.raises(AssertionError, match="wrong by inf"):
        compare(CHECKED, [np.full(3, np.nan)], [np.zeros(3)])
    with pytest.raises(AssertionError, match="shape"):
        compare(CHECKED, [np.ones((3, 1))], [np.ones(3)])
    with pytest.raises(AssertionError, match="1 results, not 2"):
        compare(CHECKED, [np.ones(3)], [np.ones(3), np.ones(3)])


def test_some_elements_may_be_off_where_a_workload_says_so():
    got, want = np.zeros(100), np.zeros(100)
    got[7] = 5.0
    assert compare(dataclasses.replace(CHECKED, outside=0.01), [got], [want]) == 0
    got[8] = 5.0
    with pytest.raises(AssertionError, match="wrong"):
        compare(dataclasses.replace(CHECKED, outside=0.01), [got], [want])


# --- statistics


def test_bounds_hold_the_median():
    ratios = np.random.default_rng(1).lognormal(0, 0.2, 15)
    low, median, high = stats.bounds(ratios.tolist())
    assert low < median < high
    assert median == np.median(ratios)
    assert ratios.min() <= low and high <= ratios.max()
    assert stats.bounds(ratios.tolist()) == (low, median, high)


def test_the_upper_bound_covers():
    """Of medians of 15, so many are below their own upper bound as it promises, about."""
    rng = np.random.default_rng(2)
    above = sum(stats.bounds(rng.lognormal(0, 0.1, 15).tolist())[2] >= 1 for _ in range(60))
    assert above >= 52


def test_mean_and_verdicts():
    assert stats.geometric_mean([2, 8]) == pytest.approx(4)
    with pytest.raises(AssertionError, match="no geometric mean"):
        stats.geometric_mean([1.0, 0.0])
    assert stats.verdict(0.5, 0.55, 0.55) == "reached"
    assert stats.verdict(0.5, 0.56, 0.55) == "open"
    assert stats.standing(1.31, 1.4) == "behind"


# --- processes


@pytest.fixture
def directory(tmp_path):
    w = WORKLOADS["sort"]
    save_reference(str(tmp_path), w.reference(in_float64(w.inputs(True))))
    return str(tmp_path)


def test_two_workers_take_turns(directory):
    w = WORKLOADS["sort"]
    inputs = w.inputs(True)
    found, a = survey(w, "lazyt", QUICK, directory, inputs)
    other, b = survey(w, "numpy", QUICK, directory, inputs)
    try:
        assert not found.failure and not other.failure and found.median > 0
        assert isinstance(a, Worker) and isinstance(b, Worker)
        # Turns long enough that a tick of the clock is a small part of them.
        result = duel(w, a, b, [], dataclasses.replace(QUICK, turn_seconds=0.1), inputs)
    finally:
        for process in (a, b):
            assert process is not None
            process.close()
    assert len(result.ratios) == QUICK.repeats
    assert result.lower <= result.ratio <= result.upper
    # Processors that other programs had: in turns as short as these a tick of the clock may count for several.
    assert result.others >= 0
    assert result.target is None  # small sizes have none


def test_what_others_have_is_told(monkeypatch):
    """Their share is what is neither this process's nor its workers'."""
    seconds = iter([1.0, 1.0 + 1e6])
    monkeypatch.setattr(Others, "_seconds", lambda self: next(seconds))
    assert Others([], 1).share() > 1
    busy = dataclasses.replace(DUELS[0], others=0.25)
    assert "disturbed; others had 25% of the processors" in report.duel_line(WORKLOADS["softmax"], busy)
    assert "(others: 25%)" in report.summary([busy])
    assert "over 1 of the table's" in report.summary([busy, DUELS[1]])  # it does not count
    assert "others" not in report.summary(DUELS)
    slow = dataclasses.replace(DUELS[0], slow=0.4)
    assert "disturbed; the machine was slow behind 40% of the turns" in report.duel_line(WORKLOADS["softmax"], slow)
    assert "(slow: 40%)" in report.summary([slow])


class Scripted:
    """A worker that says these times, one a turn."""

    spec = Spec("numpy", "sort", 1, True, "")

    def __init__(self, times: list[float]) -> None:
        self.times = iter(times)

    def turn(self, untimed: int, least: int, seconds: float) -> list[float]:
        return [next(self.times)]

    def pause(self) -> None:
        pass

    def processor_seconds(self) -> float:
        return 0.0


@pytest.mark.parametrize(("patience", "ratio", "slow"), [(60.0, 0.5, 0.0), (0.0, 2.0, 2 / 3)])
def test_turns_on_a_slow_machine_are_taken_again(monkeypatch, patience, ratio, slow):
    """Behind the second and third pair the product takes twice its time."""
    monkeypatch.setattr(measure, "PATIENCE", patience)
    monkeypatch.setattr(measure, "PAUSE", 0.0)
    lazyt, peer = Scripted([1.0, 4.0, 4.0, 1.0, 1.0]), Scripted([2.0] * 5)
    pace = Ceiling(Scripted([1.0, 2.0, 2.0, 1.1, 1.0]), 1.0, 1.0)
    found = duel(WORKLOADS["sort"], lazyt, peer, [pace], dataclasses.replace(QUICK, repeats=3), {}, pace)
    assert found.ratio == ratio and found.slow == slow
    assert pace.best == 1.0


def test_disturbed_turns_are_taken_again():
    shares = [0.5, 0.3, 0.4]
    found = [dataclasses.replace(DUELS[0], others=x) for x in shares]
    runs = iter(found)
    assert undisturbed(lambda: next(runs), 3) is found[1]
    runs = iter([found[0], DUELS[0]])
    assert undisturbed(lambda: next(runs), 3) is DUELS[0]
    runs = iter(found)
    assert undisturbed(lambda: next(runs), 1) is found[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see a process's state")
def test_whoever_waits_is_stopped(directory):
    with Worker(Spec("numpy", "sort", 1, True, directory), 60) as worker:
        worker.wait_first()
        worker.wait_ready()
        stat = Path(f"/proc/{worker._process.pid}/stat")
        worker.pause()
        os.waitid(os.P_PID, worker._process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stat.read_text().rpartition(")")[2].split()[0] == "T"
        assert len(worker.turn(0, 3, 0.0)) == 3


def test_a_worker_that_fails_says_why(tmp_path, directory):
    with Worker(Spec("numexpr", "sort", 1, True, directory), 60) as worker, pytest.raises(WorkerFailed):
        worker.wait_first()
    with Worker(Spec("numpy", "sort", 1, True, str(tmp_path / "none")), 60) as worker:
        worker.wait_first()
        with pytest.raises(WorkerFailed, match="no reference"):
            worker.wait_ready()
    with Worker(Spec("numpy", "sort", 1, True, directory), 60) as worker:
        worker.wait_first()
        worker.wait_ready()
        worker._process.send_signal(signal.SIGKILL)
        worker._process.wait()  # so that what is written to it breaks, and is there still when it is closed
        with pytest.raises(WorkerFailed, match="exit status -9"):
            worker.turn(0, 1, 0.0)
    with (
        Worker(Spec("numpy", "sort", 1, True, directory), 0.0) as worker,
        pytest.raises(WorkerFailed, match="no answer in 0 s"),
    ):
        worker.wait_first()


def test_the_command_writes_what_it_found(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stats, "DISTURBED", 100.0)  # other tests run beside this one
    path = tmp_path / "found.json"
    assert command.main(["--only", "sort", "--peers", "numpy", "--quick", "--threads", "1", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "in turns: lazyt" in printed and "geometric mean over 1 of" in printed
    record = json.loads(path.read_text())
    assert {r["peer"] for r in record["results"]} == {"lazyt", "numpy"}
    assert len(record["duels"][0]["ratios"]) == record["setting"]["repeats"]


def test_the_command_knows_its_peers(capsys):
    with pytest.raises(SystemExit):
        command.main(["--peers", "nmpy"])
    assert "unknown peers nmpy" in capsys.readouterr().err


# --- tables

DUELS = [
    Duel("softmax", "jax", 14.0, 30.0, [0.5], 0.47, 0.45, 0.50, TARGETS["softmax"], 6.7),
    Duel("sort", "numpy", 15.0, 13.0, [1.15], 1.15, 1.1, 1.2, TARGETS["sort"]),
]


def test_tables_show_verdicts():
    text = report.summary(DUELS)
    assert "softmax" in text and "reached   ahead" in text and "2.1x" in text
    assert "missed    tie" in text
    assert "over 2 of the table's 24 rows: 1.36" in text
    line = report.duel_line(WORKLOADS["softmax"], DUELS[0])
    assert "ratio 0.47 (0.45 .. 0.50), ahead; target 0.55: reached; limit 6.70 ms, lazyt 2.1 times" in line


def test_a_failure_is_shown_and_is_not_the_best():
    found = [
        Result("sort", "lazyt", median=2.0, low=1.0, high=3.0, best=1.0),
        Result("sort", "numpy", median=4.0, low=4.0, high=4.0, best=4.0, notes={"host": 1.0}),
        Result("sort", "torch", failure="no answer in 1 s"),
    ]
    text = report.table(WORKLOADS["sort"], found)
    assert "FAILED: no answer in 1 s" in text.splitlines()[-1]
    assert "0.50" in text.splitlines()[2] and "host 1.00 ms" in text


@pytest.mark.parametrize(
    ("lazyt", "verdict"),
    [
        ((100e6, 80e6), "lazyt 100 MB (80 steady), torch 100 MB (90 steady): at most torch's"),
        ((101e6, 90e6), "lazyt 101 MB (90 steady), torch 100 MB (90 steady): at most torch's once it is compiled"),
        ((50e6, 102e6), "lazyt 102 MB (102 steady), torch 100 MB (90 steady): more than torch's"),
    ],
)
def test_the_memory_of_a_training_step_is_beside_that_of_torch(lazyt, verdict):
    found = [Result("x", "lazyt", peak=lazyt[0], steady=lazyt[1]), Result("x", "torch", peak=100e6, steady=90e6)]
    assert report.table(WORKLOADS["mlp_train_step"], found).endswith(f"\n  memory: {verdict}")
    assert "memory:" not in report.table(WORKLOADS["softmax"], found)
    assert "memory:" not in report.table(WORKLOADS["mlp_train_step"], found[:1])


@pytest.mark.skipif(not picture.available(), reason="needs matplotlib")
def test_the_picture(tmp_path):
    picture.draw(DUELS, tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


# --- every function

# Public names of both libraries that compute nothing on a million elements, by what they do instead.
NOT_TIMED = {
    "about dtypes, shapes and files": (
        "asarray broadcast_shapes can_cast finfo from_dlpack iinfo iscomplexobj isdtype isrealobj isscalar issubdtype"
        " load ndim promote_types result_type save shape size"
    ),
    "Python functions that are called for each line": "apply_along_axis",
    "made of a handful of indices": "diag_indices_from ix_",
}  # fmt: skip


def test_every_function_that_numpy_has_too_is_timed():
    def own(name):  # other names of one function are fronts of it
        return inspect.unwrap(getattr(lt, name))

    timed = {own(c.name) for c in function_cases.cases() if hasattr(lt, c.name)}
    known = {own(n) for names in NOT_TIMED.values() for n in names.split()}
    common = [n for n in dir(lt) if not n.startswith("_") and callable(getattr(lt, n)) and hasattr(np, n)]
    assert [n for n in common if own(n) not in timed | known] == []
    for space in (lt.linalg, lt.fft):
        of_numpy = getattr(np, space.__name__.rpartition(".")[2])
        names = {c.name.rpartition(".")[2] for c in function_cases.cases()}
        public = [n for n in dir(space) if not n.startswith("_") and callable(getattr(space, n))]
        assert [n for n in public if hasattr(of_numpy, n) and n not in names] == []


def test_a_few_functions_at_a_thousand_elements(tmp_path, capsys):
    found = tmp_path / "found.json"
    only = ["sort", "linalg.inv", "setitem", "partition", "random.normal"]
    assert functions.main(["--quick", "--dtypes", "fd", "--only", *only, "--json", str(found)]) == 0
    assert {x["name"] for x in json.loads(found.read_text())["functions"]} == set(only)
    assert "slower than NumPy by more than 5 %" in capsys.readouterr().out


def test_a_wrong_result_of_a_function_has_no_time():
    case = function_cases.Case("add", "xp.add(x, y)", "xp.subtract(x, y)", "f")
    (found,) = functions.survey([case], quick=True, tell=lambda x: None)
    assert "off by" in found.failure
    assert not found.ratios


def test_slower_is_what_every_run_says():
    assert functions.Found("f", "f(x)", ratios=[1.2, 1.1, 1.3, 1.06]).slower
    assert not functions.Found("f", "f(x)", ratios=[1.2, 1.1, 1.3, 1.04]).slower


# --- single convolutions


def test_sixty_convolutions_have_names_of_their_own():
    assert len({c.name for c in convolution_cases.CASES}) == 60


def test_convolutions_agree_with_numpy(tmp_path, capsys):
    found = tmp_path / "found.json"
    only = ["64x64x32 -> 64 k3 s2 g64", "32x64x16 -> 32 k3 s2 transposed"]
    assert convolutions.main(["--quick", "--peers", "", "--only", *only, "--list", "--json", str(found)]) == 0
    record = json.loads(found.read_text())["convolutions"]
    assert [(x["name"], x["mode"]) for x in record] == [(n, m) for n in only for m in ("forward", "both")]
    assert all(x["times"]["lazyt"] > 0 and not x["failure"] for x in record)
    assert "4 calls in float32" in capsys.readouterr().out
    assert convolutions.main(["--quick", "--peers", "", "--only", *only, "--dtype", "bfloat16"]) == 0
    assert "4 calls in bfloat16" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        convolutions.main(["--only", "k99"])
    assert "no convolution has k99" in capsys.readouterr().err


def test_a_wrong_convolution_has_no_time():
    with pytest.raises(AssertionError, match=r"off by 0\.5, the largest is 1"):
        convolutions.check([np.full(3, 0.5)], [np.ones(3)])
    with pytest.raises(AssertionError, match="shape"):
        convolutions.check([np.ones(2)], [np.ones(3)])


def test_convolutions_are_summed_up():
    found = [
        convolutions.Found("a", m, {"lazyt": 10.0, "torch": t}, t / 10, "torch")
        for m, t in (("forward", 20.0), ("forward", 5.0), ("both", 40.0))
    ]
    text = convolutions.report([*found, convolutions.Found("b", "both", failure="lazyt: off by 1")])
    assert "forward: geometric mean of best peer / lazyt 1.00, worst 0.50, 1 of 2 behind" in text
    assert "FAILED lazyt: off by 1" in text.splitlines()[-1]
