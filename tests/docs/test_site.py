"""The documentation as a site: every page is reachable, links and file names lead somewhere, the picture is current."""

from __future__ import annotations

import html
import re
import types
from pathlib import Path

import pytest

import lazyt as lt
from tools import reference_pages, stages

TOP = Path(__file__).resolve()
while not (TOP / "pyproject.toml").exists():
    TOP = TOP.parent
DOCS = TOP / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WRITTEN = [*PAGES, TOP / "README.md"]
NAMES = [p.relative_to(TOP).as_posix() for p in WRITTEN]
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
CONFIG = (TOP / "mkdocs.yml").read_text()


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The anchors that headings get, as mkdocs makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(path), re.M):
        words = re.sub(r"[^\w\s-]", "", html.unescape(re.sub(r"[`*]", "", heading))).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", words))
    return found


def test_the_navigation_has_every_page_once():
    listed = re.findall(r":\s+([\w/-]+\.md)$", CONFIG, re.M)
    generated = [path for path, _, _ in reference_pages.PAGES]
    assert sorted(listed) == sorted([*(p.relative_to(DOCS).as_posix() for p in PAGES), *generated])


@pytest.mark.parametrize("path", WRITTEN, ids=NAMES)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(path))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target


@pytest.mark.parametrize("path", WRITTEN, ids=NAMES)
def test_files_that_are_named_exist(path):
    named = set(re.findall(r"`((?:lazyt|tests|tools|benchmarks|examples|docs)/[\w./*-]+)`", prose(path)))
    assert not [name for name in named if not any(TOP.glob(name.rstrip("/")))]


@pytest.mark.parametrize("path", PAGES, ids=NAMES[:-1])
def test_examples_run(path):
    """What looks like a session is in a block that doctest runs; a prompt within an indented list is not seen by it."""
    text = path.read_text()
    for block in re.findall(r"^```pycon\n(.*?)^```$", text, re.M | re.S):
        assert block.startswith(">>> "), block
        assert block.endswith("\n\n"), f"doctest takes the fence for output without an empty line: {block[-60:]}"
    if path.parent.name in ("tutorials", "how-to"):
        assert ">>> " in text, "a page that teaches has an example that runs"


def test_nothing_is_loaded_from_elsewhere():
    assert "font: false" in CONFIG
    assert not re.search(r"https?://", re.sub(r"^ *#.*$", "", CONFIG, flags=re.M))
    for sheet in DOCS.rglob("*.css"):
        assert "url(" not in sheet.read_text() and "@import" not in sheet.read_text()


def test_the_glossary_defines_each_term_once_in_order():
    terms = re.findall(r"^### (.*)$", (DOCS / "glossary.md").read_text(), re.M)
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)


def test_every_entry_of_the_package_is_in_a_stage():
    assert not stages.problems()


def test_the_picture_of_the_stages_is_current():
    assert stages.PICTURE.read_text() == stages.svg(), "draw it anew: python -m tools.stages"


@pytest.mark.parametrize(("title", "space"), [page[1:] for page in reference_pages.PAGES])
def test_the_reference_has_every_name(title, space):
    text = reference_pages.page(title, space)
    if space == "lazyt.Tensor":
        kinds = (types.FunctionType, property, staticmethod, classmethod)
        names = [n for n, o in vars(lt.Tensor).items() if isinstance(o, kinds) and not n.startswith("_") and o.__doc__]
    else:
        names = list(reference_pages.public(space))
    headings = re.findall(r"^## `(.*)`$", text, re.M)
    assert sorted(headings) == sorted(names)
    assert len(re.findall(r"^```", text, re.M)) % 2 == 0
    # Each prompt is in a block of code: none was taken for prose, where its signs would be escaped.
    assert not re.search(r"^\\>", text, re.M)
    for block in FENCED.findall(text):
        assert block.startswith(("```pycon\n>>> ", "```python\n")), block


def test_a_docstring_becomes_markdown():
    doc = "x ** 2 of `x * y`, a_b.\nRaises ShapeError.\n\n>>> f(1)\n2\n\nAs `g`."
    assert reference_pages.markdown(doc) == (
        "x \\*\\* 2 of `x * y`, a\\_b.\nRaises ShapeError.\n\n```pycon\n>>> f(1)\n2\n```\n\nAs `g`."
    )
