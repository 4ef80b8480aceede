"""LLVM IR that users wrote: compiled, checked and loaded apart from lazyt's own code."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from lazyt.backends.cpu import engine
from lazyt.errors import KernelError

if TYPE_CHECKING:
    from lazyt.backends.interface import LoadedCode


class _Loaded:
    """The address of a function, and the engine that it is in."""

    def __init__(self, address: int, generation: engine._Generation) -> None:
        self.address = address
        self._generation = generation


# NOTE: LLVM ends the process on what it finds out too late (assembly, an unknown collector), so it is another one.
_COMPILE = """
import base64, json, sys
given = json.load(sys.stdin)
sys.path[:] = given["path"]
import llvmlite.binding as llvm
llvm.initialize_native_target(), llvm.initialize_native_asmprinter()
try:
    parsed = llvm.parse_assembly(given["text"])
    parsed.triple, parsed.data_layout = given["triple"], given["layout"]
    parsed.verify()
except RuntimeError as error:
    json.dump({"refused": str(error).strip()}, sys.stdout)
else:
    machine = llvm.Target.from_triple(given["triple"]).create_target_machine(**given["machine"])
    defined = [f.name for f in parsed.functions if not f.is_declaration]
    json.dump({"defined": defined, "object": base64.b64encode(machine.emit_object(parsed)).decode()}, sys.stdout)
"""


def _compiled(text: str) -> tuple[list[str], bytes]:
    """The functions that a module defines, and its object code. KernelError with LLVM's message."""
    host = engine.host()
    machine = {"cpu": host.cpu, "features": host.flags, "opt": engine.OPT_LEVEL, "jit": True}
    given = {"path": sys.path, "text": text, "triple": host.triple, "layout": host.data_layout, "machine": machine}
    ran = subprocess.run(
        [sys.executable, "-c", _COMPILE], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    found = json.loads(ran.stdout) if not ran.returncode else {}
    if "object" not in found:
        said = found.get("refused") or ran.stderr.partition("\n")[0].strip() or f"it ended with status {ran.returncode}"
        raise KernelError(f"llvm_ir: LLVM refuses the text: {said}")
    return found["defined"], base64.b64decode(found["object"])


def load(text: str, name: str) -> LoadedCode:
    """The function `name` of a module. KernelError for IR that LLVM refuses, and for symbols that are not there."""
    defined, data = _compiled(text)
    if name not in defined:
        raise KernelError(f"llvm_ir: the text defines no function {name!r}; it has {', '.join(defined) or 'none'}")
    symbols = engine.elf_symbols(data)
    # NOTE: LLVM ends the process on a symbol that it does not find.
    missing = sorted(s for s in (symbols[1] if symbols else ()) if llvm.address_of_symbol(s) is None)
    if missing:
        raise KernelError(f"llvm_ir: {name!r} calls what this process does not have: {', '.join(missing)}")
    generation = engine._Generation()
    generation.add(text, data, [name])
    return _Loaded(generation.find(name), generation)
