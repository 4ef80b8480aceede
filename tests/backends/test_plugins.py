"""Backends of other distributions: found by their entry points, loaded when their device is named."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import plugins
from lazyt.ops.definition import OPS
from tests.support.operations import TOLERANCE, expected, public, wide
from tests.support.plugin_folders import TWO

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_plugin_is_loaded_when_its_device_is_named(install):
    install("npu")
    assert "npu" in lt.backends.names()
    assert "plugin_npu" not in sys.modules
    x = lt.asarray(X, device="npu")
    assert "plugin_npu" in sys.modules
    np.testing.assert_array_equal((x * 2).numpy(), X * 2)
    assert lt.asarray(X).to("npu").device == "npu"
    assert "npu" in lt.backends.available()


def test_autoload_can_be_switched_off(install, monkeypatch):
    install("npu")
    monkeypatch.setenv("LAZYT_BACKEND_AUTOLOAD", "0")
    with pytest.raises(lt.DeviceError, match=r"device 'npu': no such device; .* because LAZYT_BACKEND_AUTOLOAD is 0"):
        lt.zeros(3, device="npu")
    assert "npu" not in lt.backends.names()
    lt.backends.load("npu")
    assert lt.zeros(3, device="npu").device == "npu"


def test_a_broken_plugin_is_named_and_leaves_others_usable(install):
    install("bad", "import a_module_that_is_not_there\n")
    install("npu")
    text = (
        r"device 'bad': its plugin plugin_bad:Backend \(of of-bad 1\.5\) cannot be loaded: ModuleNotFoundError: .*'a_"
    )
    for _ in range(2):
        with pytest.raises(lt.DeviceError, match=text) as caught:
            lt.zeros(3, device="bad")
        assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert lt.zeros(3, device="npu").device == "npu"
    assert {"cpu", "npu"} <= {*lt.backends.available()}
    assert "bad" not in lt.backends.available()
    assert [type(p.error) for p in lt.backends.plugins_installed() if p.name == "bad"] == [ModuleNotFoundError]


def test_two_plugins_of_one_name_are_refused(install):
    install("npu", dist="first")
    install("npu", dist="second")
    with pytest.raises(lt.DeviceError, match=r"2 plugins have this name, .*\(of first 1\.5\).*\(of second 1\.5\)"):
        lt.zeros(3, device="npu:1")


def test_two_plugins_live_in_one_process(install):
    install("npu")
    install("tpu")
    x, y = lt.asarray(X, device="npu"), lt.asarray(X, device="tpu")
    with pytest.raises(lt.DeviceError, match="npu"):
        _ = x + y
    z = (x + 1).to("tpu") * y
    assert z.device == "tpu"
    np.testing.assert_array_equal(z.numpy(), (X + 1) * X)
    assert (z.to("npu") + x).device == "npu"


@pytest.mark.parametrize(
    ("version", "match"),
    [
        (2, "written for version 2 of the interface of backends; this lazyt has version 1"),
        (None, "does not say for which version of the interface it is written: `interface_version = 1`"),
    ],
)
def test_another_version_of_the_interface_is_refused(install, version, match):
    install("npu", version=version)
    with pytest.raises(lt.DeviceError, match=match):
        lt.zeros(3, device="npu")


@pytest.mark.parametrize(
    ("name", "code", "match"),
    [
        ("npu", "Backend = 3\n", "it gives 3, and a plugin gives an instance of lazyt.backends.Backend"),
        ("npu", "def Backend(): raise OSError('no driver')\n", "cannot be loaded: OSError: no driver"),
        ("npu", "from plugin_npu_inner import x as Backend\n", "No module named 'plugin_npu_inner'"),
        ("npu", "", "has no attribute 'Backend'"),
    ],
)
def test_what_is_no_backend_is_refused(install, name, code, match):
    install(name, code)
    with pytest.raises(lt.DeviceError, match=match):
        lt.zeros(3, device=name)


def test_the_names_of_entry_point_and_backend_agree(install):
    install("npu", "from tests.support.interpreted_backend import InterpretedBackend as Backend\n")
    with pytest.raises(lt.DeviceError, match="its backend is called 'interpreted', and its entry point 'npu'"):
        lt.zeros(3, device="npu")


def test_names_of_dtypes_and_of_lazyts_own_backends_ask_no_plugin(install):
    install("float16", "import a_module_that_is_not_there\n")
    install("cpu", "import a_module_that_is_not_there\n")
    assert lt.zeros(3, device="cpu").to("float16").dtype == "float16"


PROGRAM = """
import sys
import lazyt as lt
x = lt.ones(3) + 1
y = x.to("float16").to("float32").cpu()
float(y.sum())
assert "importlib.metadata" not in sys.modules, "nobody asked for a plugin"
"""


def test_programs_that_name_no_plugin_do_not_look_for_any():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=100)


# --- what there is once a plugin is installed


@pytest.fixture
def npu(install):
    install("npu", TWO)


def test_the_first_mention_may_be_by_attribute(npu):
    assert lt.npu.device_count() == 2
    assert lt.npu.is_available() and lt.npu.name == "npu"
    assert lt.npu is lt.npu
    assert lt.npu.answer == 42
    with pytest.raises(AttributeError, match=r"lazyt\.npu has no attribute 'nothing'"):
        _ = lt.npu.nothing
    with pytest.raises(AttributeError, match="module 'lazyt' has no attribute 'tpu'"):
        _ = lt.tpu


def test_tensors_and_modules_have_its_name(install):
    install("npu", TWO)
    model = lt.nn.Sequential(lt.nn.Linear(2, 2))
    assert model.npu(1) is model
    assert {p.device for p in model.parameters()} == {"npu:1"}
    x = lt.ones((1, 2))
    assert not x.is_npu
    y = x.npu()
    assert y.is_npu and y.device == "npu:0" and y.device.type == "npu"
    assert x.npu(device=1).device == "npu:1"
    assert not y.cpu().is_npu
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'tpu'"):
        lt.nn.Linear(2, 2).tpu()


FACTORIES = {
    "zeros": lambda d: lt.zeros(3, device=d),
    "full": lambda d: lt.full((2,), 7, device=d),
    "arange": lambda d: lt.arange(3, device=d),
    "linspace": lambda d: lt.linspace(0, 1, 3, device=d),
    "eye": lambda d: lt.eye(2, device=d),
    "asarray": lambda d: lt.asarray([1, 2], device=d),
    "tensor": lambda d: lt.tensor([1.0], device=d),
    "ones_like": lambda d: lt.ones_like(lt.ones(2), device=d),
    "empty": lambda d: lt.empty(2, device=d),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_take_its_devices(npu, name):
    assert FACTORIES[name]("npu").device == "npu:0"
    assert FACTORIES[name]("npu:1").device == "npu:1"
    with lt.device("npu:1"):
        assert lt.zeros(2).device == "npu:1"
        assert lt.random.random(2).device == "npu:1"


@pytest.mark.parametrize("name", ["npu:2", "npu:-1", "npu:x", "npu:"])
def test_an_index_that_is_out_of_range(npu, name):
    with pytest.raises(lt.DeviceError, match=f"device '{name}': no such device; there are 2: npu:0 to npu:1"):
        lt.zeros(3, device=name)


def test_the_current_device(npu):
    assert lt.npu.current_device() == 0
    for i in (1, 0, 1):  # the same line again: what was recorded for another device is not taken
        lt.npu.set_device(i)
        assert lt.npu.current_device() == i
        assert lt.zeros(3, device="npu").device == f"npu:{i}"
        assert lt.ones(2).npu().device == f"npu:{i}"
    lt.npu.set_device(0)
    with pytest.raises(lt.DeviceError, match="'npu:5': no such device"):
        lt.npu.set_device(5)
    with pytest.raises(lt.DeviceError, match="npu: 'cpu' is a device of another kind"):
        lt.npu.set_device("cpu")
    with pytest.raises(TypeError, match=r"npu: a device is a number, a name or None, got 1\.5"):
        lt.npu.synchronize(1.5)
    assert lt.npu.current_device() == 0


def test_a_guard_restores_the_device_after_an_exception(npu):
    def failing():
        with lt.npu.device(1), lt.device("npu"):
            assert lt.npu.current_device() == 1
            assert lt.zeros(1).device == "npu:1"
            with lt.npu.device(0):
                assert lt.npu.current_device() == 0
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert lt.npu.current_device() == 0
    assert lt.zeros(1).device == "cpu"

    @lt.npu.device(1)
    def inside():
        return lt.npu.current_device()

    assert inside() == 1 and lt.npu.current_device() == 0


def test_memory_is_counted_for_each_device(npu):
    lt.npu.reset_peak_memory_stats(1)
    x = lt.asarray(np.ones(1000, np.float32), device="npu:1")
    assert lt.npu.memory_allocated(0) == 0
    assert lt.npu.memory_allocated(1) == 4000 == lt.npu.memory_reserved("npu:1")
    del x
    assert lt.npu.memory_allocated(1) == 0
    assert lt.npu.max_memory_allocated(1) == 4000
    lt.npu.reset_peak_memory_stats(1)
    assert lt.npu.max_memory_allocated(1) == 0
    lt.npu.empty_cache()


def test_random_state(npu):
    lt.npu.manual_seed(5)
    assert lt.npu.initial_seed() == 5
    with lt.device("npu"):
        state = lt.npu.get_rng_state()
        a = lt.random.random(4).numpy()
        lt.npu.set_rng_state(state)
        b = lt.random.random(4).numpy()
    lt.npu.manual_seed_all(5)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, lt.random.random(4).numpy())  # the CPU's


def test_one_order_of_work_is_the_only_stream(npu):
    s = lt.npu.Stream(1)
    assert s == lt.npu.current_stream(1) != lt.npu.current_stream(0)
    with lt.npu.stream(s):
        first, last = lt.npu.Event(1), lt.npu.Event(1)
        first.record(s)
        assert s.record_event(last) is last
    s.wait_event(first)
    s.wait_stream(lt.npu.current_stream(0))
    assert s.query() and last.query() and first.elapsed_time(last) >= 0
    with pytest.raises(ValueError, match="elapsed_time: both events have to be recorded before"):
        first.elapsed_time(lt.npu.Event())
    lt.npu.synchronize(1)


def test_values_are_saved_on_one_device_and_loaded_on_another(npu, tmp_path):
    path = tmp_path / "x.npz"
    lt.save({"x": lt.asarray(X, device="npu:1")}, path)
    assert lt.load(path)["x"].device == "cpu"
    found = lt.load(path, map_location="npu")["x"]
    assert found.device == "npu:0"
    np.testing.assert_array_equal(found.numpy(), X)
    model = lt.nn.Linear(2, 2).npu(1)
    other = lt.nn.Linear(2, 2)
    other.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(other.weight.detach().numpy(), model.weight.detach().numpy())
    assert other.weight.device == "cpu"


def test_copies_between_its_devices(npu):
    x = lt.asarray(X, device="npu:0")
    y = x.to("npu:1")
    assert y.device == "npu:1"
    np.testing.assert_array_equal((y + 1).to("npu:0").numpy(), X + 1)
    with pytest.raises(lt.DeviceError, match="npu:"):
        _ = x + y


POLICY = """
from tests.support.interpreted_backend import InterpretedBackend


class Backend(InterpretedBackend):
    name = {name!r}
    interface_version = {version}
    autocast_dtype = "bfloat16"
    autocast_dtypes = ("bfloat16",)
    autocast_policies = {{"tanh": "lower", "exp": "", "matmul": "float32"}}
"""


def test_the_autocast_policy_is_honoured(install):
    install("npu", POLICY)
    assert lt.amp.is_autocast_available("npu")
    assert lt.get_autocast_dtype("npu") == lt.bfloat16
    assert lt.npu.get_amp_supported_dtype() == [lt.bfloat16]
    x = lt.ones((2, 2), device="npu")
    with lt.autocast("npu"):
        assert lt.tanh(x).dtype == lt.bfloat16
        assert lt.exp(lt.tanh(x)).dtype == lt.bfloat16
        assert (lt.tanh(x) @ x).dtype == lt.float32
        assert lt.nn.functional.linear(x, x).dtype == lt.bfloat16  # PyTorch's list for GPUs
        assert lt.tanh(lt.ones(2)).dtype == lt.float32  # the CPU's
    with pytest.warns(UserWarning, match="NPU Autocast only supports dtypes of bfloat16 currently, not float16"):
        lt.autocast("npu", dtype=lt.float16)


def test_an_unknown_policy_is_refused(install):
    install("npu", POLICY.replace("float32", "wide"))
    with pytest.raises(lt.DeviceError, match="the autocast policy of 'matmul' is 'wide'"):
        lt.zeros(1, device="npu")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nn", r"that is lazyt\.nn"),
        ("sort", r"that is lazyt\.sort"),
        ("to_device", r"that is Tensor\.to_device"),
        ("float8x", None),
        ("Npu", "small letters, digits and _ can"),
    ],
)
def test_names_that_are_taken_are_refused(install, name, match):
    install(name)
    if match is None:
        assert lt.zeros(1, device=name).device == name
        return
    with pytest.raises(lt.DeviceError, match=match):
        lt.zeros(1, device=name)
    assert lt.zeros(1).device == "cpu"


def test_an_extension_cannot_replace_what_every_module_has(install):
    install("npu", TWO.replace("answer", "set_device"))
    with pytest.raises(lt.DeviceError, match="the extension 'set_device' of 'npu' is a name of every device module"):
        lt.npu.device_count()


def test_a_training_run_is_the_cpus(npu):
    def losses(device: str) -> list[float]:
        lt.random.seed(3)
        model = lt.nn.Sequential(lt.nn.Linear(3, 8), lt.nn.Tanh(), lt.nn.Linear(8, 1)).to(device)
        opt = lt.optim.Adam(model.parameters(), lr=0.05)
        x, found = lt.asarray(X / 10, device=device), []
        for _ in range(4):
            loss = ((model(x) - 1) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            found.append(float(loss))
        return found

    np.testing.assert_allclose(losses("npu:1"), losses("cpu"), rtol=1e-6)


# --- the guide, followed word by word


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language in the page on backends."""
    text = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    return [part.partition("```")[0] for part in text.split(f"```{language}\n")[1:]]


@pytest.fixture
def mine(tmp_path, monkeypatch, install):
    """The backend of the page's first part, in a folder as pip leaves it."""
    toml, code = tomllib.loads(blocks("toml")[0]), blocks("python")[0]
    (tmp_path / "site" / "lazyt_mine.py").write_text(code)
    info = tmp_path / "site" / "lazyt_mine-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lazyt-mine\nVersion: 0.1\n")
    ((name, value),) = toml["project"]["entry-points"]["lazyt.backends"].items()
    (info / "entry_points.txt").write_text(f"[lazyt.backends]\n{name} = {value}\n")
    plugins.installed(again=True)
    yield code
    sys.modules.pop("lazyt_mine", None)


def test_the_page_leads_to_the_first_sum(mine):
    assert len(mine.splitlines()) <= 20
    program = blocks("bash")[0].splitlines()[1].removeprefix("python -c '").removesuffix("'")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    assert out.getvalue() == "15\n"


@pytest.mark.parametrize(
    "name", ["matmul", "sort", "put_along_axis", "softmax", "cumulative_sum", "linalg.inv", "where"]
)
def test_memory_that_the_host_cannot_address_is_copied(mine, name):
    for args, kwargs in OPS[name].samples():
        given = [lt.asarray(a, device="mine") if isinstance(a, np.ndarray) else a for a in args]
        with lt.device("mine"):
            out = public(name)(*given, **kwargs)
        found = out if isinstance(out, tuple) else (out,)
        for got, want in zip(found, expected(name, args, kwargs, len(found) > 1), strict=True):
            assert got.device == "mine"
            tol = TOLERANCE.get(got.dtype.name, 0)
            np.testing.assert_allclose(wide(got.numpy()), wide(want), rtol=tol, atol=tol / 10)


def test_what_the_page_says_of_fallbacks(mine):
    x = lt.asarray(X, device="mine")
    lt.sort(x @ x.T).numpy()
    assert dict(lt.mine.fallbacks()) == {"matmul": 1, "sort": 1}
    assert "on host" in str((x @ x.T).explain())


def test_fallbacks_may_be_refused_or_allowed_by_name(mine, monkeypatch):
    backend = type(lt.backends.load("mine"))
    x = lt.asarray(X, device="mine")
    monkeypatch.setattr(backend, "host_fallback", ("sort",))
    np.testing.assert_array_equal(lt.sort(-x, axis=0).numpy(), np.sort(-X, axis=0))
    y = lt.argsort(x + 1)
    text = "argsort on 'mine', because .* and its backend lets the host compute 'sort', not 'argsort' "
    remedy = r"compute it on the host by \.to\('cpu'\), or add 'argsort' to `host_fallback` of 'mine'"
    with pytest.raises(lt.NotSupportedError, match=text + r"\(recorded at .*test_plugins\.py:\d+.*; " + remedy):
        y.numpy()
    assert y.is_pending
    monkeypatch.setattr(backend, "host_fallback", True)
    np.testing.assert_array_equal(y.numpy(), np.argsort(X + 1))
    monkeypatch.setattr(backend, "host_fallback", False)
    z = x @ x.T
    with pytest.raises(lt.NotSupportedError, match="matmul on 'mine'"):
        z.numpy()
    del z


@pytest.mark.parametrize("times", [1, 3])
def test_what_does_not_depend_on_a_refused_call_is_computed(mine, monkeypatch, times):
    monkeypatch.setattr(type(lt.backends.load("mine")), "host_fallback", False)
    x = lt.asarray(X, device="mine")
    for _ in range(times):
        before = x * 2
        refused = lt.sort(before, axis=0)
        behind, beside = refused + 1, before + 1
        with pytest.raises(lt.NotSupportedError, match=r"sort on 'mine'.* lets the host compute nothing, not 'sort'"):
            lt.sync()
        assert refused.is_pending and behind.is_pending
        assert not before.is_pending and not beside.is_pending
        np.testing.assert_array_equal(beside.numpy(), X * 2 + 1)
        with pytest.raises(lt.NotSupportedError, match="sort on 'mine'"):
            behind.numpy()
        later = beside + 1  # what is recorded behind the error is another program
        np.testing.assert_array_equal(later.numpy(), X * 2 + 2)


def test_a_gradient_that_is_refused_loses_no_value(mine, monkeypatch):
    monkeypatch.setattr(type(lt.backends.load("mine")), "host_fallback", ("matmul",))
    w = lt.tensor(X, requires_grad=True, device="mine")
    loss = w[lt.asarray([0, 1, 0], device="mine")].sum()
    loss.backward()
    with pytest.raises(lt.NotSupportedError, match="not 'scatter'"):
        w.grad.numpy()
    np.testing.assert_allclose(loss.item(), X[[0, 1, 0]].sum())


def test_the_page_has_every_method():
    text = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    own = [n for n in vars(lt.backends.SmallBackend) if not n.startswith("_")]
    inherited = [
        "stream",
        "current_stream",
        "use_stream",
        "event",
        "synchronize",
        "close",
        "capabilities",
        "extensions",
    ]
    inner = {
        "compile",
        "device",
        "count_fallback",
        "allows_fallback",
        "fallbacks_of",
        "fallback",
        "address",
        "allocator",
        "name",
    }
    missing = [n for n in [*own, *inherited] if n not in inner and f"`{n}" not in text]
    assert not missing
    offered = [n for n in dir(lt.cuda) if not n.startswith("_") and n != "name"]
    assert not [n for n in offered if n not in text]
