"""Each page of examples begins as in a process of its own: nothing is pending or known of what ran before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lazyt as lt
from lazyt.runtime import first_run
from tests.support.plans import forget


@pytest.fixture(autouse=True)
def as_it_is_written(request: pytest.FixtureRequest) -> Iterator[None]:
    """A page that is written for PyTorch has PyTorch's methods, and no other one."""
    written = "lazyt.torch" in request.node.dtest.docstring
    if written:
        import lazyt.torch

        lazyt.torch.attach()
    yield
    if written:
        lazyt.torch.detach()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    lt.sync()
    forget()
    monkeypatch.setattr(first_run, "_kinds", {})
