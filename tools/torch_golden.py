"""Write what PyTorch computes for `tests/support/torch_cases` and `torch_programs` to `tests/golden/`.

usage: python -m tools.torch_golden [AREA ...]

The area `names` is a list of PyTorch's public names, `torch_names.json`; `signatures` their arguments by position.

Needs PyTorch; the tests that read the files do not.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import types
from pathlib import Path

import torch

from tests.support import golden_files, torch_golden, torch_programs

SPACES = (
    "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize", "torch.nn.utils.stateless", "torch.nn.utils.rnn", "torch.optim",
    "torch.optim.lr_scheduler", "torch.optim.swa_utils",
)  # fmt: skip
# What those namespaces have for their own use: types, dispatch, texts of docstrings.
INTERNAL = {
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Callable", "DType",
    "GRID_SAMPLE_INTERPOLATION_MODES",
    "GRID_SAMPLE_PADDING_MODES", "Optional", "ScalingType", "SwizzleType", "TYPE_CHECKING", "Tensor",
    "assert_int_or_pair", "boolean_dispatch", "factory_kwargs", "handle_torch_function", "has_torch_function",
    "has_torch_function_unary", "has_torch_function_variadic", "reproducibility_notes", "sparse_support_notes",
    "tf32_notes",
}  # fmt: skip


def write_names() -> Path:
    """The public names of PyTorch's namespaces for training, by namespace."""
    found = {}
    for space in SPACES:
        module = importlib.import_module(space)
        modules = types.ModuleType
        names = getattr(module, "__all__", None) or [
            n for n in dir(module) if not n.startswith("_") and not isinstance(getattr(module, n), modules)
        ]
        found[space] = sorted(set(names) - INTERNAL)
    path = golden_files.GOLDEN / "torch_names.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def positions(module: types.ModuleType) -> dict[str, list[str]]:
    """The arguments by position of a namespace's functions and classes, and of the classes' `forward`."""
    found = {}
    for name in dir(module):
        made = getattr(module, name)
        if name.startswith("_") or name in INTERNAL or not callable(made):
            continue
        of = {name: made.__init__ if isinstance(made, type) else made}
        if hasattr(made, "forward"):
            of[f"{name}.forward"] = made.forward
        for key, f in of.items():
            try:
                given = [*inspect.signature(f).parameters.values()]
            except (TypeError, ValueError):
                continue
            if not any(p.kind == p.VAR_POSITIONAL for p in given):
                kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                found[key] = [p.name for p in given if p.kind in kinds and p.name != "self"]
    return found


def write_signatures() -> Path:
    """The arguments by position of PyTorch's namespaces for training, by namespace."""
    path = golden_files.GOLDEN / "torch_signatures.json"
    path.write_text(json.dumps({space: positions(importlib.import_module(space)) for space in SPACES}, indent=0) + "\n")
    return path


def write(area: str) -> Path:
    """What PyTorch computes for an area, in its file."""
    if area == "names":
        return write_names()
    if area == "signatures":
        return write_signatures()
    whole = area in torch_programs.areas()
    # By the default dtype PyTorch's optimizers keep numbers of their state.
    torch.set_default_dtype(torch.float64 if whole else torch.float32)
    return (torch_programs if whole else torch_golden).write(area, torch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    # PyTorch's Muon rounds its iteration to bfloat16, which no float64 can be compared with.
    torch.Tensor.bfloat16 = lambda x: x.clone()  # type: ignore[method-assign]
    for area in sys.argv[1:] or [*torch_golden.areas(), *torch_programs.areas(), "names", "signatures"]:
        print(write(area))
