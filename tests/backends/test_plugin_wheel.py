"""The example of a plugin as a wheel, built and installed by pip into a new environment, where its own tests run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.plugin_folders import distribution

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "plugins" / "lazyt-example"

pytestmark = pytest.mark.slow


def command(*words: object, cwd: Path | None = None, **environment: str) -> str:
    """Run a command without the paths of this process; gives what it wrote."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")} | environment
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=cwd, env=env, timeout=400)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment, that has this one's packages and the wheel."""
    home = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, home / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    # Setuptools has made wheels without a package of that name since 70.1; an older one is built with a newer.
    modern = tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1) if _has("setuptools") else False
    here = ["--no-build-isolation"] if modern else []
    command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *here, "-w", home, source)
    (wheel,) = home.glob("*.whl")
    command(sys.executable, "-m", "venv", "--without-pip", home / "env")
    found = home / "env" / "bin" / "python"
    (packages,) = (home / "env" / "lib").glob("python*/site-packages")
    (packages / "base.pth").write_text(f"{sysconfig.get_path('purelib')}\n{TOP}\n")
    command(sys.executable, "-m", "pip", "--python", found, "install", "-q", "--no-deps", "--no-index", wheel)
    return found


def _has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def test_its_own_tests_pass(python, tmp_path):
    tests = shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shown = command(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, tests, cwd=tmp_path)
    assert "passed" in shown and "skipped" not in shown


BY_ATTRIBUTE = """
import sys
import lazyt as lt
x = lt.ones(3)
assert not x.is_example
assert "lazyt_example" not in sys.modules
print(x.example(1).device, x.example().is_example)
"""


def test_the_first_mention_may_be_an_attribute_of_a_tensor(python):
    assert command(python, "-c", BY_ATTRIBUTE).split() == ["example:1", "True"]


FIRST_SUM = """
import sys
import lazyt as lt
assert "lazyt_example" not in sys.modules
assert "importlib.metadata" not in sys.modules
print(lt.arange(5, device="example:1") + 1)
"""


def test_the_first_sum(python):
    assert command(python, "-c", FIRST_SUM).strip() == "[1 2 3 4 5]"


SWITCHED_OFF = """
import lazyt as lt
try:
    lt.zeros(3, device="example")
except lt.DeviceError as e:
    print(e)
assert not hasattr(lt, "example")
lt.backends.load("example")
print(lt.zeros(3, device="example").device)
"""


def test_autoload_switched_off(python):
    error, device = command(python, "-c", SWITCHED_OFF, LAZYT_BACKEND_AUTOLOAD="0").splitlines()
    assert error.startswith("device 'example': no such device; lazyt runs on 'cpu' and ")
    assert error.endswith("; the plugin of 'example' is not loaded, because LAZYT_BACKEND_AUTOLOAD is 0")
    assert device == "example:0"


TOGETHER = """
import numpy as np
import lazyt as lt
try:
    lt.zeros(3, device="broken")
except lt.DeviceError as e:
    print(e)
x, y = lt.ones(3).example(1), lt.ones(3).to("twin")
print((x + y.example(1)).to("twin"), (x.to("twin") * y).device, sorted(lt.backends.available()))
model = lt.nn.Linear(3, 1).twin()
loss = model(x.to("twin")).sum().example().sum()
loss.backward()
print(model.weight.grad.device, model.weight.grad)
"""


def test_another_plugin_and_a_broken_one_beside_it(python, tmp_path):
    distribution(tmp_path / "site", "twin")
    distribution(tmp_path / "site", "broken", "raise OSError('no driver')\n")
    shown = command(python, "-c", TOGETHER, PYTHONPATH=str(tmp_path / "site")).splitlines()
    assert shown == [
        "device 'broken': its plugin plugin_broken:Backend (of of-broken 1.5) cannot be loaded: OSError: no driver",
        "[2. 2. 2.] twin ['cpu', 'example', 'twin']",
        "twin [[1. 1. 1.]]",
    ]


OPENCL = """
import lazyt as lt
x = lt.ones(4).example(1)
y = x.to("opencl") * 3
print(y.device, y.example() + x.to("example:0"))
lt.backends.unregister("example")
print(y.opencl() + 1)
"""


def test_the_opencl_backend_beside_it(python, tmp_path):
    pytest.importorskip("pyopencl", reason="pyopencl is missing: pip install pyopencl pocl-binary-distribution")
    info = tmp_path / "lazyt_opencl-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lazyt-opencl\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lazyt.backends]\nopencl = lazyt_opencl.backend:BACKEND\n")
    pyopencl = Path(str(importlib.import_module("pyopencl").__file__)).parents[1]
    paths = [tmp_path, TOP / "plugins" / "lazyt-opencl" / "src", pyopencl]
    shown = command(python, "-c", OPENCL, PYTHONPATH=os.pathsep.join(map(str, paths))).splitlines()
    assert shown == ["opencl:0 [4. 4. 4. 4.]", "[4. 4. 4. 4.]"]
