"""Tests here are written for PyTorch: tensors have its methods while one runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def torch() -> Iterator[Any]:
    import lazyt.torch

    lazyt.torch.attach()
    yield lazyt.torch
    lazyt.torch.detach()
