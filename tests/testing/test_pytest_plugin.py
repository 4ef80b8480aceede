"""The pytest plugin: what its options do, and that without them it is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lazyt as lt

pytest_plugins = ["pytester"]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(lt.__file__).parent.parent))
    pytester.makeini("[pytest]\naddopts = -p pytest_lazyt -p no:cacheprovider\n")
    return pytester


def test_without_options_nothing_of_lazyt_is_imported(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import sys

        def test_plain(request):
            assert "pytest_lazyt" in sys.modules
            assert not [m for m in sys.modules if m.partition(".")[0] in ("lazyt", "llvmlite")]
            assert request.config.pluginmanager.get_plugin("lazyt-runs") is None
        """
    )
    suite.runpytest_subprocess().assert_outcomes(passed=1)


SUITE = """
import lazyt as lt
import pytest

@pytest.fixture
def made():
    return lt.ones(3) * 2

def work(made):
    values = [made]
    for i in range(12):
        values.append(values[-1] * 2 + i)
    return "".join("p" if v.is_pending else "." for v in values)

def test_one(made):
    print("one", work(made))

def test_two(made):
    print("two", work(made))
    assert made.tolist() == [2.0, 2.0, 2.0]
"""


def places(result: pytest.RunResult) -> dict[str, str]:
    return dict(re.findall(r"(one|two) ([p.]+)$", "\n".join(result.outlines), re.M))


@pytest.mark.slow
def test_where_tests_sync(suite: pytest.Pytester) -> None:
    suite.makepyfile(SUITE)
    never = suite.runpytest_subprocess("-s", "--lazyt-sync=never")
    never.assert_outcomes(passed=2)
    assert places(never) == {"one": "p" * 13, "two": "p" * 13}
    always = suite.runpytest_subprocess("-s", "--lazyt-sync=always")
    always.assert_outcomes(passed=2)
    assert places(always) == {"one": "." * 13, "two": "." * 13}
    always.stdout.fnmatch_lines(["lazyt: --lazyt-sync=always --lazyt-backend=cpu"])
    random = [suite.runpytest_subprocess("-s", "--lazyt-sync=random:5") for _ in range(2)]
    assert places(random[0]) == places(random[1])
    assert len(set(places(random[0]).values())) == 2
    # A test alone syncs where it does among all.
    alone = suite.runpytest_subprocess("-s", "--lazyt-sync=random:5", "-k", "two")
    assert places(alone)["two"] == places(random[0])["two"]


@pytest.mark.slow
def test_a_failure_says_how_it_was_run(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_bad():\n    assert 0\n")
    result = suite.runpytest_subprocess("--lazyt-sync=random")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*--lazyt-sync=random:\d+ --lazyt-backend=cpu"])


@pytest.mark.slow
def test_bad_options_are_refused(suite: pytest.Pytester) -> None:
    for option, message in (
        ("--lazyt-sync=often", "--lazyt-sync=often: never, always, random or random:SEED is required"),
        ("--lazyt-sync=always:3", "is required"),
        ("--lazyt-backend=cuda:99", "--lazyt-backend=cuda:99: "),
        ("--lazyt-backend=tpu", "--lazyt-backend=tpu: device 'tpu': no such device"),
    ):
        result = suite.runpytest_subprocess(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{message.replace('[', '[[]')}*"])


@pytest.mark.slow
def test_fixtures(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import numpy as np

        def test_check(lazyt_check, lazyt_backend):
            assert lazyt_backend == "cpu"
            assert lazyt_check.keywords.get("sync") in (None, "random")
            lazyt_check(lambda x: x * 2, np.arange(3.0))
        """
    )
    for options in ((), ("--lazyt-sync=random:3", "--lazyt-backend=cpu")):
        suite.runpytest_subprocess(*options).assert_outcomes(passed=1)
