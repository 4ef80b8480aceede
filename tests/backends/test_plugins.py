"""Backends of other distributions: found by their entry points, loaded when their device is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import plugins, registry
from tests.support.plugin_folders import distribution

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a distribution with a plugin on the path; what was loaded is removed afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    plugins.installed(again=True)

    def put(name: str, *args: str, **options: object) -> None:
        distribution(folder, name, *args, **options)  # type: ignore[arg-type]
        plugins.installed(again=True)

    yield put
    lt.sync()
    for name in [n for n in registry.names() if n in registry._loaded and n not in ("cpu", "cuda")]:
        lt.backends.unregister(name)
    for name in [m for m in sys.modules if m.startswith("plugin_")]:
        del sys.modules[name]
    monkeypatch.undo()
    plugins.installed(again=True)


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
    with pytest.raises(lt.DeviceError, match="its backend is called 'interp', and its entry point 'npu'"):
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
