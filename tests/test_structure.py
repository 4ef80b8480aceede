"""What keeps the house in order: imports point one way, tables are complete, what is public is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import lazyt as lt
from lazyt.autograd.batching_rules import BATCHING, OPAQUE_BATCHING, UNBATCHED
from lazyt.autograd.rules.registry import NONDIFFERENTIABLE, OPAQUE_VJP, VJP
from lazyt.autograd.tangents import JVP, OPAQUE_JVP
from lazyt.backends.cpu.codegen import elementwise as cpu
from lazyt.ir import graph_interpreter, kernel_interpreter, library_calls, numpy_semantics as meaning, prims
from lazyt.ir.passes import fuse, verify
from lazyt.ops import catalog
from lazyt.ops.definition import OPS

TOP = Path(__file__).parent.parent

# --- imports point one way ---------------------------------------------------------------------------------------

# The packages, foundations first. A module may import its own package and those above it in this list.
ORDER = (
    "errors",
    "on_demand",
    "config",
    "interrupts",
    "forking",
    "ir",
    "tracing.call_site",
    "backends.cache_directory",
    "backends.object_cache",
    "backends.math",
    "backends.interface",
    "backends.common",
    "backends.small",
    "backends.cpu",
    "backends.cuda",
    "backends",
    "ops",
    "tracing",
    "autograd",
    "inspect.kernels",
    "inspect.fallbacks",
    "runtime",
    "inspect",
    "functions",
    "fft",
    "linalg",
    "memory",
    "random",
    "debug",
    "device_modules",
    "data",
    "multiprocessing",
    "utils",
    "optim",
    "nn",
    "amp",
    "optim.swa_utils",
    "lazyt",
    "distributions",
    "func",
    "torch",
    "testing",
    "library",
    "kernel_language",
)
# What the order alone would allow, and should not. Backends stand on the IR alone; what records knows no backend.
ONLY = {
    "config": {"errors"},
    "interrupts": set(),
    "forking": {"errors", "interrupts"},
    "ir": {"config", "errors", "forking", "on_demand"},
    "ops": {"errors", "ir", "on_demand"},
    "backends.cache_directory": set(),
    # The user's line, for warnings.
    "tracing.call_site": set(),
    "backends.object_cache": {"backends.cache_directory", "errors", "on_demand", "tracing.call_site"},
    "backends.math": {"errors", "ir"},
    "backends.common": {"config", "errors", "ir"},
    "backends.interface": {"errors", "ir"},
    "backends.cpu": {
        "on_demand",
        "backends.common",
        "backends.interface",
        "backends.math",
        "backends.object_cache",
        "config",
        "errors",
        "forking",
        "interrupts",
        "ir",
    },
    "backends.cuda": {
        "backends.common",
        "backends.interface",
        "backends.math",
        "backends.object_cache",
        "config",
        "errors",
        "forking",
        "interrupts",
        "ir",
    },
    "backends.small": {"backends.common", "backends.interface", "config", "errors", "ir"},
    "backends": {"backends.cache_directory", "backends.interface", "config", "errors", "forking"},
    "tracing": {"on_demand", "config", "errors", "forking", "interrupts", "ir", "ops", "tracing.call_site"},
    "autograd": {"on_demand", "config", "errors", "ir", "ops", "tracing", "tracing.call_site"},
    # What the report of a sync names: below the runtime.
    "inspect.kernels": {"errors", "forking", "ir", "ops", "tracing"},
    "inspect.fallbacks": {"backends", "config", "inspect.kernels", "ir", "tracing"},
}
# What one backend needs of another stands in `backends.common`; others ask the registry, which loads them by name.
OWN = ("lazyt.backends.cpu", "lazyt.backends.cuda")
# Packages that one backend alone may import.
FOREIGN = {"llvmlite": "backends.cpu", "cupy": "backends.cuda", "cudnn": "backends.cuda"}
# (module, imported module) -> why the import stands inside a function.
INSIDE_FUNCTIONS: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Import:
    """One import of a module: what, from where, and how it stands there."""

    module: str
    target: str
    inside: str  # the function that it stands in, or ""
    typing: bool  # under TYPE_CHECKING: no edge at run time


@dataclass(frozen=True)
class Source:
    """One file of the package."""

    module: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def imports(self) -> list[Import]:
        found: list[Import] = []
        todo: list[tuple[ast.AST, str, bool]] = [(self.tree, "", False)]
        while todo:
            node, inside, typing = todo.pop()
            if isinstance(node, ast.Import):
                found += [Import(self.module, a.name, inside, typing) for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.module} imports relatively"
                for a in node.names:
                    full = f"{node.module}.{a.name}"
                    found.append(Import(self.module, full if full in SOURCES else node.module or "", inside, typing))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "on_demand.module":
                # An import like any other, whenever it happens.
                assert isinstance(node.args[0], ast.Constant), f"{self.module}: the name is written out"
                found.append(Import(self.module, str(node.args[0].value), inside, typing))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = node.name
            elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                todo += [(c, inside, True) for c in node.body] + [(c, inside, typing) for c in node.orelse]
                continue
            todo += [(c, inside, typing) for c in ast.iter_child_nodes(node)]
        return found


def _module(path: Path) -> str:
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {(m := _module(p)): Source(m, p) for p in sorted((TOP / "lazyt").rglob("*.py"))}
IMPORTS = [i for s in SOURCES.values() for i in s.imports]


def package(module: str) -> str:
    """The package that a module belongs to: the longest of ORDER that its name begins with."""
    inner = module.removeprefix("lazyt.")
    if inner in ("lazyt", "backends", "tracing"):
        return "lazyt"
    return next((r for r in sorted(ORDER, key=len, reverse=True) if inner == r or inner.startswith(r + ".")), inner)


def test_every_module_has_its_package():
    strays = sorted({m for m in SOURCES if package(m) not in ORDER})
    assert not strays, "give them a place in ORDER"


def test_imports_point_one_way():
    wrong = []
    for i in IMPORTS:
        here, there = package(i.module), package(i.target)
        if i.typing or not i.target.startswith("lazyt") or here == there:
            continue
        if ORDER.index(there) > ORDER.index(here) or there not in ONLY.get(here, {there}):
            wrong.append(f"{i.module} imports {i.target}" + (f" inside {i.inside}" if i.inside else ""))
    assert not wrong, "\n".join(wrong)


def test_nobody_imports_a_backend_but_itself():
    wrong = [
        f"{i.module} imports {i.target}"
        for i in IMPORTS
        for own in OWN
        if (i.target + ".").startswith(own + ".") and not (i.module + ".").startswith(own + ".")
    ]
    assert not wrong, "\n".join(wrong)


# What plans, runs and keeps memory, for any backend.
OF_ANY_BACKEND = (
    "ir", "ops", "tracing", "tracing.call_site", "autograd", "runtime", "inspect", "inspect.kernels",
    "inspect.fallbacks", "device_modules", "backends", "backends.interface", "backends.common", "backends.small",
    "backends.math", "backends.object_cache", "backends.cache_directory",
)  # fmt: skip
# The modules of these that have a word of a backend, and why.
NAMED = {
    "lazyt.backends.registry": "the one table of lazyt's own backends",
    "lazyt.runtime.tensor": "`x.cpu()` and `x.cuda()` are names of PyTorch's",
    "lazyt.runtime.shared_memory": "an error says to write `x.cpu()`",
}


def words_of_backends(tree: ast.Module, names: set[str]) -> list[int]:
    """The lines that have one of these names: as an identifier, or as a word of a text that is no docstring."""
    bodies = [n.body for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    texts = {id(b[0].value) for b in bodies if b and isinstance(b[0], ast.Expr)}
    word = re.compile(rf"\b({'|'.join(sorted(names))})\b")
    found = []
    for n in ast.walk(tree):
        identifiers = [getattr(n, field, None) for field in ("id", "attr", "name", "arg", "asname", "module")]
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in texts:
            identifiers.append(n.value)
        if any(isinstance(x, str) and word.search(x) for x in identifiers):
            found.append(n.lineno)
    return sorted({*found})


def test_words_of_backends_are_found():
    text = (
        '"""Of cpu."""\nimport a.cpu\nx = f"cuda:{i}"\ny.cuda()\n\n\ndef f(cpu):\n    """cuda"""\n    return "cpus"\n'
    )
    assert words_of_backends(ast.parse(text), {"cpu", "cuda"}) == [2, 3, 4, 7]


def test_what_plans_and_runs_has_no_word_of_a_backend():
    names = {own.rpartition(".")[2] for own in OWN}
    found = {m: lines for m, s in SOURCES.items()
             if package(m) in OF_ANY_BACKEND and (lines := words_of_backends(s.tree, names))}  # fmt: skip
    wrong = [f"{m}, lines {lines}" for m, lines in found.items() if m not in NAMED]
    assert not wrong, "\n".join(wrong)
    assert found.keys() == NAMED.keys(), "these are gone: take them off NAMED"


def test_nobody_names_a_backend_but_the_registry():
    quoted = {own.rpartition(".")[2] for own in OWN}
    elsewhere = [s for m, s in SOURCES.items() if not m.startswith("lazyt.backends.") and m != "lazyt.config"]
    wrong = [
        f"{s.path.relative_to(TOP)}:{node.lineno}"
        for s in elsewhere
        for node in ast.walk(s.tree)
        if isinstance(node, ast.Constant) and node.value in quoted
    ]
    assert not wrong, "\n".join(wrong)


def test_no_text_names_a_module_of_a_backend():
    """As `import_module` takes it; and plugins, examples and tools have no import of one either."""
    texts = [
        f"{m}:{node.lineno}"
        for m, s in SOURCES.items()
        if m != "lazyt.backends.registry" and not (m + ".").startswith(tuple(own + "." for own in OWN))
        for node in ast.walk(s.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(OWN)
    ]
    others = [p for folder in ("plugins", "examples", "tools") for p in sorted((TOP / folder).rglob("*.py"))]
    assert others
    imports = [
        f"{p.relative_to(TOP)} imports {i.target}"
        for p in others
        for i in Source("", p).imports
        if (i.target + ".").startswith(tuple(own + "." for own in OWN))
    ]
    assert not texts + imports, "\n".join(texts + imports)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found = []
    for start in edges:
        todo = [] if start in order else [(start, iter(sorted(edges[start])))]
        while todo:
            m, targets = todo[-1]
            if m not in order:
                order[m] = low[m] = len(order)
                open_.append(m)
            for t in targets:
                if t not in order:
                    todo.append((t, iter(sorted(edges[t]))))
                    break
                if t in open_:
                    low[m] = min(low[m], low[t])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[m])
                if low[m] == order[m]:
                    component = open_[open_.index(m) :]
                    del open_[-len(component) :]
                    found += [sorted(component)] if len(component) > 1 else []
    return found


def test_circles_are_found():
    edges = {"a": {"b"}, "b": {"c", "e"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}, "g": {"g", "a"}}
    assert sorted(circles(edges)) == [["a", "b", "c"], ["e", "f"]]


@pytest.mark.parametrize("typing", [False, True])
def test_imports_make_no_circle(typing):
    """Between files, at run time and for types."""
    edges: dict[str, set[str]] = {m: set() for m in SOURCES}
    for i in IMPORTS:
        # A package's own __init__ collects its modules; they do not need what it collects.
        if i.target in SOURCES and (typing or not i.typing) and not i.module.startswith(i.target + "."):
            edges[i.module].add(i.target)
    found = circles(edges)
    assert not found, "\n".join(" and ".join(c) for c in found)


def test_imports_stand_at_the_top():
    inside = {(i.module, i.target): i.inside for i in IMPORTS if i.inside and i.target.startswith("lazyt")}
    new = [f"{m} imports {t} inside {inside[m, t]}()" for m, t in sorted(inside.keys() - INSIDE_FUNCTIONS.keys())]
    assert not new, "\n".join(new)
    assert not INSIDE_FUNCTIONS.keys() - inside.keys(), "these are gone: take them off INSIDE_FUNCTIONS"


def test_each_foreign_package_stays_in_its_backend():
    wrong = [
        f"{i.module} imports {i.target}"
        for i in IMPORTS
        if package(i.module) != FOREIGN.get(i.target.split(".")[0], package(i.module))
    ]
    assert not wrong, "\n".join(wrong)


# --- tables are complete -----------------------------------------------------------------------------------------

PRIMITIVES = prims.SOURCES | prims.MOVEMENT | prims.REDUCTIONS | prims.OTHERS | set(prims.ELEMENTWISE)
# What canonicalize takes out of a graph: autograd's marks.
MARKS = {"stop", "track", "known", "normalized"}
# On complex values these become arithmetic on the parts, so no backend knows them.
COMPLEX = {"real", "imag", "conj", "complex"}
# Operations, or families of them, without a NumPy function that says their meaning: where it is said instead.
WITHOUT_REFERENCE = {
    "random": "Philox in Python: tests/functions/test_random.py",
    "dropout": "the same random bits",
    "optim": "formulas of the optimizers: tests/optim/test_optim.py",
    "average_parameters": "tests/optim/test_averages.py",
    "clip_grad": "formulas: tests/optim/test_optim.py",
    "clip_grad_norm": "formulas: tests/optim/test_optim.py",
    "recurrent": "PyTorch's results: tests/support/torch_cases/recurrent.py",
    "batch_norm_statistics": "batch_norm, which has one, reads them",
    "instance_norm_statistics": "tests/golden/norms.npz has PyTorch's",
    **dict.fromkeys(
        ("getitem", "index", "index_put", "add_at", "add_to_slice", "mask_put", "split", "unstack"),
        "a part of subscripts or views: NumPy's own `x[key]`, in tests/tracing/test_views.py",
    ),
}


def same(found: object, want: object, what: str) -> None:
    """Two sets of names agree; the message names each that is missing or unknown."""
    a, b = set(found), set(want)  # type: ignore[call-overload]
    assert a == b, f"{what}: missing {sorted(b - a)}, unknown {sorted(a - b)}"


def test_the_interpreter_and_the_verifier_know_every_primitive():
    same(graph_interpreter.PRIMITIVES, PRIMITIVES, "interpreter")
    same(meaning.ELEMENTWISE, prims.ELEMENTWISE, "meaning of elementwise primitives")
    same(verify._FORM, PRIMITIVES, "verifier, forms")
    same(verify._RULES, PRIMITIVES - {"input"}, "verifier, rules")


def test_what_is_compared_with_a_node_s_primitive_is_one():
    """`n.op == "leaf"` would be false for ever, and nobody told, once the primitive has another name."""
    wrong = [
        f"{s.path.relative_to(TOP)}:{node.lineno}: {name.value!r}"
        for s in SOURCES.values()
        for node in ast.walk(s.tree)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "op"
        for found in node.comparators
        for name in ast.walk(found)
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value not in PRIMITIVES
    ]
    assert not wrong, "\n".join(wrong)


def recorded_calls() -> set[str]:
    """The library calls that a program may record."""
    return set(library_calls.FUNCTIONS) - library_calls.OF_PASSES


def test_every_primitive_has_a_derivative_or_a_reason():
    rules = [*VJP, *OPAQUE_VJP, *NONDIFFERENTIABLE]
    assert len(rules) == len(set(rules)), "a name has two entries"
    same(rules, (PRIMITIVES - {"opaque", "item"}) | recorded_calls(), "derivatives")
    assert all(NONDIFFERENTIABLE.values()), "a reason is given"


def test_every_primitive_has_a_forward_derivative_where_it_has_one_backward():
    same([*JVP, *OPAQUE_JVP], [*VJP, *OPAQUE_VJP], "forward derivatives")


def test_every_primitive_has_a_batching_rule_or_a_reason():
    rules = [*BATCHING, *OPAQUE_BATCHING, *UNBATCHED]
    assert len(rules) == len(set(rules)), "a name has two entries"
    same(rules, (PRIMITIVES - {"opaque", "item"}) | recorded_calls(), "batching rules")
    assert all(UNBATCHED.values()), "a reason is given"


def test_fusion_places_every_primitive():
    computed = {*fuse.FUSED, *fuse.CALLS, *fuse.WRITES, "item"}
    same(computed | prims.SOURCES | prims.MOVEMENT | prims.REDUCTIONS | MARKS, PRIMITIVES, "fusion")


@pytest.mark.parametrize("name", sorted(prims.ELEMENTWISE.keys() - COMPLEX))
def test_the_cpu_backend_lowers_every_elementwise_primitive(name):
    # The tables go by the dtype of the last operand, which is int64 for random bits.
    wanted = {"i"} if name == "random_bits" else set(prims.ELEMENTWISE[name].kinds) - {"c"}
    assert wanted <= set(cpu.OPS.get(name, "")), f"{name}: dtype kinds without a rule"
    assert name in kernel_interpreter.ELEMENTWISE


def test_the_catalog_has_every_file_of_operations():
    files = {p.stem for p in (TOP / "lazyt" / "ops").glob("*.py")} - {"__init__", "catalog"}
    same(catalog.__all__, files, "files of operations")


def test_every_operation_has_a_reference_and_samples():
    bare = {n for n, op in OPS.items() if op.numpy is None or op.samples is None}
    excused = {n for n in bare if n in WITHOUT_REFERENCE or n.split(".")[0] in WITHOUT_REFERENCE}
    assert not bare - excused
    unneeded = WITHOUT_REFERENCE.keys() - excused - {n.split(".")[0] for n in excused}
    assert not unneeded, "take them off WITHOUT_REFERENCE"


# --- what is public is documented --------------------------------------------------------------------------------

NAMESPACES = ("lazyt", "lazyt.autograd", "lazyt.utils.checkpoint", "lazyt.nn", "lazyt.nn.functional", "lazyt.nn.init",
              "lazyt.nn.utils", "lazyt.nn.utils.rnn", "lazyt.optim", "lazyt.optim.swa_utils", "lazyt.distributions",
              "lazyt.amp", "lazyt.random", "lazyt.data",
              "lazyt.memory", "lazyt.linalg", "lazyt.fft", "lazyt.debug", "lazyt.testing", "lazyt.library")  # fmt: skip


def public(namespace: str) -> dict[str, object]:
    """What `from namespace import *` would give, modules apart."""
    module = lt.memory if namespace == "lazyt.memory" else importlib.import_module(namespace)
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {f"{namespace}.{n}": getattr(module, n) for n in names}
    return {n: o for n, o in found.items() if not isinstance(o, types.ModuleType)}


def _written(o: object) -> str:
    """The docstring written at an object itself, not one that it inherits."""
    return getattr(o, "__doc__", None) or ""


# Every line of an example in a docstring: what they call is shown, wherever it is defined.
EXAMPLES = "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)", "\n".join(s.text for s in SOURCES.values()), re.M))


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_what_is_public_is_documented(namespace):
    bare, plain = [], []
    for name, o in public(namespace).items():
        if not callable(o):
            continue  # constants and dtypes are listed in their module's docstring
        if not _written(o):
            bare.append(name)
        elif isinstance(o, types.FunctionType) and not re.search(rf"\b{o.__name__}\(", EXAMPLES):
            plain.append(name)
    assert not bare, f"no docstring: {bare}"
    assert not plain, f"no example that runs: {plain}"


@pytest.mark.parametrize("cls", [o for n in ("lazyt", "lazyt.nn", "lazyt.optim") for o in public(n).values()
                                 if isinstance(o, type) and o.__module__.startswith("lazyt")])  # fmt: skip
def test_methods_are_documented(cls):
    bare = [n for n, m in vars(cls).items() if not n.startswith("_") and callable(m) and not inspect.getdoc(m)]
    bare += [n for n, m in vars(cls).items() if isinstance(m, property) and not n.startswith("_") and not m.__doc__]
    assert not bare


def test_every_module_says_what_it_is():
    assert not [m for m, s in SOURCES.items() if s.path.stat().st_size and not ast.get_docstring(s.tree)]


# --- tests ------------------------------------------------------------------------------------------------------


def test_no_test_file_imports_another():
    """What two of them need stands in tests/support, fixtures in conftest.py; file names are not used twice."""
    files = sorted((TOP / "tests").rglob("*.py"))
    names = {p.stem for p in files if p.name.startswith("test_")}
    assert len(names) == sum(p.name.startswith("test_") for p in files), "two files of tests share a name"
    wrong = []
    for p in files:
        for node in ast.walk(ast.parse(p.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found = {part for m in (*module, *(a.name for a in node.names)) for part in m.split(".")}
                wrong += [f"{p.relative_to(TOP)}:{node.lineno}: {name}" for name in found & names]
    assert not wrong, "\n".join(wrong)


def _fixtures(path: Path) -> Iterator[tuple[str, bool]]:
    """The fixtures of a file, and whether a test gets them without asking."""
    for node in ast.parse(path.read_text()).body:
        for d in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if "fixture" in ast.unparse(d).partition("(")[0]:
                yield node.name, "autouse=True" in ast.unparse(d)


def test_no_fixture_takes_the_place_of_one_that_every_test_gets():
    """pytest takes the nearest fixture of a name: the tests of a folder went without what all of them begin with."""
    wrong = []
    for conftest in (TOP / "tests").rglob("conftest.py"):
        every = {name for name, always in _fixtures(conftest) if always}
        for p in sorted(conftest.parent.rglob("*.py")) if every else ():
            if p != conftest:
                wrong += [f"{p.relative_to(TOP)}: {name}" for name, _ in _fixtures(p) if name in every]
    assert not wrong, "\n".join(wrong)


# --- no giants, nothing swallowed --------------------------------------------------------------------------------

MAX_LINES = 600


def _files() -> list[Path]:
    folders = ("lazyt", "tests", "benchmarks", "examples")
    return [p for d in folders for p in sorted((TOP / d).rglob("*.py"))]


def test_no_file_is_a_giant():
    lines = {p.relative_to(TOP).as_posix(): len(p.read_text().splitlines()) for p in _files()}
    over = {f: n for f, n in lines.items() if n > MAX_LINES}
    assert not over, f"split them by family or by pass: {over}"


def test_nothing_is_swallowed():
    wrong = []
    for p in _files():
        text = p.read_text()
        if not re.search(r"\bexcept\b|suppress", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler):
                everything = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
                if node.type is None or (everything and all(isinstance(s, ast.Pass | ast.Continue) for s in node.body)):
                    wrong.append(f"{p.relative_to(TOP)}:{node.lineno}: {ast.unparse(node).splitlines()[0]}")
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "suppress"
                and re.match(r"contextlib\.suppress\((Base)?Exception\)", ast.unparse(node))
            ):
                wrong.append(f"{p.relative_to(TOP)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)
