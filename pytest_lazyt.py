"""A pytest plugin: run a test suite with other sync points, or on another device.

    pytest --lazyt-sync=always            sync after each operation
    pytest --lazyt-sync=random:7          sync at random places; the seed is shown, and each test has its own from it
    pytest --lazyt-sync=never             only where the program itself asks (the default)
    pytest --lazyt-backend=cuda           make tensors on this device

Fixtures: `lazyt_check` is `lazyt.testing.check_against_numpy` with the sync points and the device of the command line;
`lazyt_backend` is that device's name. Sync points are those of the thread that runs the tests.

It stands outside the package, because pytest imports every plugin that is installed: nothing of lazyt is imported, and
no hook is called for a test, unless an option is given or a fixture is asked for.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest

SYNCS = ("never", "always", "random")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("lazyt", "lazyt: where programs sync, and on which device")
    group.addoption(
        "--lazyt-sync", metavar="never|always|random[:seed]", help="where tensors sync, besides where they are read"
    )
    group.addoption("--lazyt-backend", metavar="cpu|cuda", help="the device that tensors are made on")


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the run only if an option is given."""
    sync, backend = config.getoption("--lazyt-sync"), config.getoption("--lazyt-backend")
    if sync is not None or backend is not None:
        config.pluginmanager.register(Runs(*_sync(sync), backend), "lazyt-runs")


def _sync(option: str | None) -> tuple[str, int]:
    word, colon, seed = (option or "never").partition(":")
    if word not in SYNCS or (colon and (word != "random" or not seed.isdigit())):
        raise pytest.UsageError(f"--lazyt-sync={option}: never, always, random or random:SEED is required")
    return word, int(seed) if seed else random.randrange(1 << 30)


class Runs:
    """The hooks of a run with options."""

    def __init__(self, sync: str, seed: int, backend: str | None) -> None:
        from lazyt.errors import DeviceError
        from lazyt.testing import modes

        self.sync, self.seed, self.backend, self.modes = sync, seed, backend or "cpu", modes
        try:
            modes.check_device(self.backend)
        except DeviceError as e:
            raise pytest.UsageError(f"--lazyt-backend={self.backend}: {e}") from e

    def option(self) -> str:
        """The option that repeats this run."""
        return f"--lazyt-sync={self.sync}" + (f":{self.seed}" if self.sync == "random" else "")

    def pytest_report_header(self) -> str:
        """How the run can be repeated."""
        return f"lazyt: {self.option()} --lazyt-backend={self.backend}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test, its fixtures too, with these sync points on this device."""
        # NOTE: of its own for each test, so that one alone syncs where it does among all.
        seed = self.seed ^ zlib.crc32(item.nodeid.encode())
        with self.modes.on_device(self.backend), self.modes.watching(self.modes.Mode("", self.sync, seed)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say how a test that failed was run."""
        report = yield
        if report.failed:
            report.sections.append(("lazyt", f"{self.option()} --lazyt-backend={self.backend}"))
        return report


@pytest.fixture
def lazyt_backend(request: pytest.FixtureRequest) -> str:
    """The name of the device that this run is for."""
    return request.config.getoption("--lazyt-backend") or "cpu"


@pytest.fixture
def lazyt_check(request: pytest.FixtureRequest, lazyt_backend: str) -> Callable[..., None]:
    """`check_against_numpy(fn, *arrays)` with the sync points (all of them without the option) and the device."""
    from lazyt.testing import check_against_numpy

    option = request.config.getoption("--lazyt-sync")
    more: dict[str, Any] = {}
    if option is not None:
        sync, seed = _sync(option)
        more = {"sync": sync, "seed": seed}
    if request.config.getoption("--lazyt-backend") is not None:
        more["backends"] = [lazyt_backend]
    return partial(check_against_numpy, **more)
