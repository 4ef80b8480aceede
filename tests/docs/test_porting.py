"""The pages for who comes from PyTorch and JAX are current, and what they name is there."""

from __future__ import annotations

import re
from typing import Any

import pytest

import lazyt as lt
from tools.porting_pages import FOLDER, TITLES, page


@pytest.mark.parametrize("library", TITLES)
def test_the_page_has_every_name(library):
    shown = (FOLDER / "docs" / TITLES[library][0]).read_text()
    assert shown == page(library), "write it anew: python -m tools.porting_pages"


@pytest.mark.parametrize("library", TITLES)
def test_what_a_row_says_is_there(library):
    for path in re.findall(r"^\| `[\w.]+` \| `lt\.([\w.]+)", page(library), re.M):
        found: Any = lt
        for part in path.split("."):
            found = getattr(found, part)
    for method in re.findall(r"^\| `[\w.]+` \| `x\.(\w+)", page(library), re.M):
        assert hasattr(lt.Tensor, method)
