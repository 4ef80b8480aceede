"""Random convolutional networks: their bits do not depend on how they are computed, and they are float64's results."""

from __future__ import annotations

import pytest

from lazyt.backends.cpu.library import convolutions
from lazyt.config import general as settings
from tests.support.fuzz.networks import Networks, check_network, written


@pytest.mark.parametrize("seed", range(8))
def test_networks_agree_with_themselves_and_with_float64(seed: int) -> None:
    lines = written(seed).lines
    assert Networks().includes(lines) and lines == written(seed).lines
    assert check_network(lines) is None


FLIPPED = """
x = image((2, 16, 5, 6), 1)
w1 = parameter((16, 16, 3, 3), 2)
x = F.conv2d(x, w1, None, 1, 1)
x = x - x.mean((0, 2, 3), keepdims=True)
learn(x)
"""


def test_a_wrong_reading_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_network(FLIPPED) is None
    if settings["interpret"]:
        return
    # Filters that lie backwards are packed as if they lay forwards.
    pack = convolutions.Convolution._pack_from
    monkeypatch.setattr(convolutions.Convolution, "_pack_from", lambda s, *a: pack(s, *a[:10]))
    failure = check_network(FLIPPED)
    assert failure is not None and failure.kind == "networks, by none of the ways to read and write: values"


def test_an_error_of_its_own_is_none_of_the_programs() -> None:
    assert check_network("x = image((1, 2, 3, 3), 1)\nx = x.reshape(7)\nlearn(x)") is None
    assert check_network("x = image((1, 2, 3, 3), 1)\nx = x if x.dtype == lt.float64 else x.reshape(7)\nlearn(x)")
