"""CUDA C to cubins: NVRTC through CuPy, the disk cache, and what the assembler says about each kernel.

NVRTC needs neither a GPU nor a driver. Compiling one program with many kernels costs a quarter of as many programs,
so a plan's kernels are compiled together. NVRTC has no -Werror: a line of its log that is not known is an error here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lazyt.backends import object_cache
from lazyt.errors import DeviceError, LazytInternalError, NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Part of the key of cached cubins: raise it when the same text should give other code.
CODEGEN_VERSION = 1
OPTIONS = (
    # Every recorded operation rounds by itself; the fma that a rule wants is spelled out.
    "--fmad=false",
    "--std=c++17",
    "--ptxas-options=-v",
    # Helpers of the preamble that a program does not use, and values that a rule computes for its other result (177);
    # what a user may write: constants divided (39; IEEE's quotient, an integer divisor is guarded), unsigned < 0 (186).
    "--diag-suppress=177,39,186",
)
INSTALL = 'pip install "lazyt[cuda]" (CuPy with the CUDA wheels that it compiles with), or cupy-cuda13x for CUDA 13'
_FUNCTION = re.compile(r"ptxas info\s*: Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
_EXPECTED = re.compile(
    r"ptxas info\s*: (\d+ bytes gmem|Compiling entry function|Compile time|Function properties|Used)"
)


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one kernel: registers a thread, and bytes of stack and spilled registers."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin and what the assembler said about its kernels."""

    cubin: bytes
    resources: dict[str, Resources]


@dataclass
class Counters:
    """Statistics of compiling in this process."""

    compiles: int = 0
    disk_hits: int = 0


counters = Counters()


@functools.cache
def nvrtc() -> Any:
    """CuPy's binding of NVRTC; DeviceError when CuPy or NVRTC is missing."""
    try:
        module = importlib.import_module("cupy.cuda").nvrtc
        module.getVersion()
    except ImportError as error:
        raise DeviceError(f"cuda needs CuPy, which cannot be imported ({error}): {INSTALL}") from error
    except Exception as error:
        # CuPy finds its libraries when they are first called, and has many errors for one that is not there.
        raise DeviceError(f"cuda needs NVRTC, which CuPy cannot load ({error}): {INSTALL}") from error
    return module


def compile_program(source: str, capability: int, cache: object_cache.ObjectCache | None = None) -> Compiled:
    """The cubin of a program for a compute capability (90 for 9.0), from the disk cache when it is there."""
    options = (f"--gpu-architecture=sm_{capability}", *OPTIONS)
    chosen = object_cache.default_cache() if cache is None else cache
    key = object_cache.make_key("cuda", str(CODEGEN_VERSION), str(nvrtc().getVersion()), *options, source)
    blob = chosen.load(key)
    if blob is None:
        log, cubin = _compile(source, options)
        counters.compiles += 1
        # Checked before it is stored, so that an unexpected log is reported every time.
        found = Compiled(cubin, _resources(log))
        text = log.encode()
        chosen.store(key, len(text).to_bytes(8, "little") + text + cubin)
        return found
    counters.disk_hits += 1
    size = int.from_bytes(blob[:8], "little")
    return Compiled(blob[8 + size :], _resources(blob[8 : 8 + size].decode()))


def _compile(source: str, options: tuple[str, ...]) -> tuple[str, bytes]:
    binding = nvrtc()
    program = binding.createProgram(source, "lazyt.cu", [], [])
    try:
        binding.compileProgram(program, options)
    except binding.NVRTCError as error:
        log = binding.getProgramLog(program)
        raise LazytInternalError(f"NVRTC refused a generated program: {error}\n{log}\n{source}") from error
    else:
        return binding.getProgramLog(program).rstrip("\0"), binding.getCUBIN(program)
    finally:
        binding.destroyProgram(program)


def _resources(log: str) -> dict[str, Resources]:
    """What the log says about each kernel; LazytInternalError for a line that it should not have."""
    found: dict[str, Resources] = {}
    name, stack = "", (0, 0, 0)
    for line in _lines(log):
        if match := _FUNCTION.match(line):
            name = match[1]
        elif match := _STACK.search(line):
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif match := _USED.match(line):
            found[name] = Resources(int(match[1]), *stack)
        elif not _EXPECTED.match(line):
            raise LazytInternalError(f"NVRTC says what it should not: {line.strip()}\n{log}")
    return found


def _lines(log: str) -> Iterable[str]:
    return (line for line in log.splitlines() if line.strip())


def disassembled(cubin: bytes) -> str:
    """The machine code of a cubin as SASS; NotSupportedError where NVIDIA's disassembler is missing."""
    tool = _disassembler()
    if not tool:
        raise NotSupportedError(
            "not supported: the machine code of a GPU kernel, because nvdisasm is not here; it comes with NVIDIA's "
            "CUDA toolkit, and with the package triton"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        # CuPy leaves the last byte out, which is 0.
        path.write_bytes(cubin + b"\0")
        done = subprocess.run([tool, "-c", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotSupportedError(f"not supported: the machine code of this kernel, because nvdisasm says {done.stderr}")
    return done.stdout


def _disassembler() -> str:
    """The path of nvdisasm; '' if there is none."""
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    if (home := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")) is not None:
        places.append(f"{home}/bin")
    if (triton := importlib.util.find_spec("triton")) is not None:
        places += [f"{folder}/backends/nvidia/bin" for folder in triton.submodule_search_locations or ()]
    return shutil.which("nvdisasm", path=os.pathsep.join(places)) or ""
