"""Draw the stages of lazyt, in the order data flows: `python -m tools.stages` writes docs/assets/stages.svg.

The boxes name what stands in `lazyt/` today; `tests/docs/test_site.py` compares the picture with the tree.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PICTURE = TOP / "docs" / "assets" / "stages.svg"


@dataclass(frozen=True)
class Stage:
    """A box: what it does, what it hands to the next one, and the entries of `lazyt/` that it consists of."""

    title: str
    does: str
    gives: str
    entries: tuple[str, ...]


# A phase says when its stages run.
PHASES: tuple[tuple[str, tuple[Stage, ...]], ...] = (
    (
        "every call",
        (
            Stage(
                "Public functions",
                "check and normalize the arguments of a call",
                "",
                (
                    "functions", "amp", "nn", "optim", "data", "distributions", "func", "multiprocessing", "linalg",
                    "fft", "random", "memory", "debug", "utils", "torch", "device_modules", "library",
                    "kernel_language",
                ),
            ),
            Stage(
                "Autograd",
                "backward() finds what leads to leaves, and records one step: its lowering appends the derivatives",
                "operation, operands, attributes",
                ("autograd",),
            ),
            Stage(
                "Tracing",
                "finds the step in the trie of known programs, or checks and adds it; returns a pending tensor",
                "a program: steps, inputs, extents, scalar arguments",
                ("tracing",),
            ),
        ),
    ),
    (
        "every sync",
        (
            Stage(
                "Runtime",
                "finds what is wanted, finds the plan or has it made, runs it, commits the results to their handles",
                "a program without a plan, wanted values",
                ("runtime",),
            ),
        ),
    ),
    (
        "once a program",
        (
            Stage(
                "Operations",
                "each writes its primitives, with symbols for extents",
                "graph IR",
                ("ops",),
            ),
            Stage(
                "Graph IR, passes, kernel IR",
                "canonicalize, fuse, kernelize, schedule; verified between passes",
                "a schedule of kernels and library calls",
                ("ir",),
            ),
            Stage(
                "Backends",
                "emit LLVM IR or CUDA C, compile, load; manage memory, threads and streams",
                "an executable, which the runtime binds to extents and runs",
                ("backends",),
            ),
        ),
    ),
    (
        "beside them",
        (
            Stage("Inspection", "pending(), explain(), last_sync(): read all of the above, compute nothing", "",
                  ("inspect",)),
            Stage("Testing", "compares programs with NumPy, writes random ones", "", ("testing",)),
            Stage("Errors, configuration", "used by all of them", "",
                  ("errors", "config", "forking", "interrupts", "on_demand")),
        ),
    ),
)  # fmt: skip
# Packages with a module for each of many things alike: the picture has their packages alone.
SHORT = frozenset(("functions", "nn", "optim", "ops", "testing"))

WIDTH, LEFT, RIGHT, LINE, COLUMNS = 860, 130, 24, 19, 94
COLOURS = ("#e8eaf6", "#e0f2f1", "#fff3e0", "#f5f5f5")


def entries() -> set[str]:
    """The packages and modules at the top of `lazyt/`."""
    found = (TOP / "lazyt").iterdir()
    return {p.stem for p in found if (p.suffix == ".py" or (p / "__init__.py").exists()) and not p.name.startswith("_")}


def problems() -> list[str]:
    """Entries of `lazyt/` that no stage has, or that several have, and entries of stages that are not there."""
    placed = [e for _, stages in PHASES for stage in stages for e in stage.entries]
    wrong = [f"lazyt/{e} has no stage" for e in sorted(entries() - set(placed))]
    wrong += [f"lazyt/{e} is not there" for e in sorted(set(placed) - entries())]
    return wrong + [f"lazyt/{e} has several stages" for e in sorted(set(placed)) if placed.count(e) > 1]


def _modules(folder: Path) -> str:
    return ", ".join(sorted(p.stem for p in folder.glob("*.py") if not p.name.startswith("_")))


def _listed(entry: str) -> list[str]:
    """One entry of `lazyt/` in words: a module, or a package with what is inside."""
    folder = TOP / "lazyt" / entry
    if not folder.is_dir():
        return [f"{entry}.py"]
    inside = sorted(p.parent for p in folder.glob("*/__init__.py"))
    if entry == "backends":
        return [f"{entry}/{p.name}/" for p in inside] + [f"{p.stem}.py" for p in sorted(folder.glob("[a-z]*.py"))]
    if entry in SHORT:
        return [f"{entry}/", *(f"{entry}/{p.name}/" for p in inside)]
    return [f"{entry}/: {_modules(folder)}", *(f"{entry}/{p.name}/: {_modules(p)}" for p in inside)]


def _files(stage: Stage) -> list[str]:
    """What a box lists, in lines: what is inside of a package begins a line."""
    rows: list[str] = []
    for words in (w for entry in stage.entries for w in _listed(entry)):
        if rows and ": " not in words + rows[-1] and len(rows[-1]) + len(words) < COLUMNS:
            rows[-1] += f", {words}"
        else:
            rows += textwrap.wrap(words, COLUMNS, subsequent_indent="    ", break_on_hyphens=False)
    return rows


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(words)}</text>'


def svg() -> str:
    """The picture."""
    y, parts = 16, []
    last = [stages[-1] for _, stages in PHASES][-1]
    for (when, stages), colour in zip(PHASES, COLOURS, strict=True):
        start = y
        boxes = []
        for stage in stages:
            files = _files(stage)
            height = 14 + LINE * (2 + len(files))
            boxes.append(
                f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{height}" rx="6" class="box"/>'
            )
            boxes.append(_text(LEFT + 14, y + 22, stage.title, "title"))
            boxes.append(_text(LEFT + 14, y + 22 + LINE, stage.does, "does"))
            for i, row in enumerate(files):
                indent = 7.2 * (len(row) - len(row.lstrip()))
                boxes.append(_text(LEFT + 14 + indent, y + 22 + LINE * (2 + i), row.lstrip(), "files"))
            y += height
            if stage.gives:
                boxes.append(f'<path d="M{LEFT + 40} {y} v26" class="arrow" marker-end="url(#tip)"/>')
                boxes.append(_text(LEFT + 54, y + 20, stage.gives, "gives"))
            if stage is not last:
                y += 34 if stage.gives else 12
        bottom = y if stages[-1] is last else y - (10 if stages[-1].gives else 2)
        parts.append(
            f'<rect x="10" y="{start - 8}" width="{WIDTH - 20}" height="{bottom - start + 12}" rx="8" fill="{colour}"/>'
        )
        parts.append(_text(24, start + 22, when, "when"))
        parts += boxes
        y += 8
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;font-size:14px;fill:#222}"
        ".title{font-weight:bold;font-size:15px}.when{font-style:italic;fill:#444}"
        ".files{font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;fill:#3949ab}"
        ".gives{font-size:13px;font-style:italic}.box{fill:#fff;stroke:#9fa8da}"
        ".arrow{stroke:#3949ab;stroke-width:2;fill:none}"
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="5" markerHeight="5" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#3949ab"/></marker></defs>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">'
    title = "<title>The stages of lazyt, in the order data flows</title>"
    ground = f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>'
    return "\n".join([head, title, f"<style>{style}</style>", tip, ground, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    if found := problems():
        raise SystemExit("tools.stages: " + "; ".join(found))
    PICTURE.write_text(svg())
