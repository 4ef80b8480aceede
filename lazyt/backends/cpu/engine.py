"""LLVM text IR to callable addresses: compile, cache, load, and free.

A new MCJIT engine costs ten times what adding an object to one does, and an engine frees its
objects only all at once. So objects are loaded into *generations*: one engine for up to
`GENERATION_OBJECTS` objects, freed when the last `Module` that refers to it is gone. IR with
explicit vectors gains nothing from LLVM's IR optimiser, which doubles the compile time: text is
parsed, verified and handed to the code generator. LLVM ends the process on a symbol that it cannot
find, so every object's symbols are checked before it is loaded.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import weakref
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends import object_cache
from lazyt.backends.cpu import address_space, parallel_compile
from lazyt.backends.cpu.flags import switches, without_wide
from lazyt.errors import LazytInternalError
from lazyt.forking import LOADER, OrderedLock
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import llvmlite
    import llvmlite.binding as llvm
else:
    llvmlite = on_demand.module("llvmlite")
    llvm = on_demand.module("llvmlite.binding")

# Part of the key of cached objects: raise it when the same text should give other code.
CODEGEN_VERSION = 1
OF_NAME = "name"  # how the names of files end that say which object defines a function
GENERATION_OBJECTS = 128
# NOTE: an object takes two mappings of memory, of which Linux gives a process 65,530; LLVM ends the process without.
MAX_OBJECTS = 1 << 14
RECOUNT = MAX_OBJECTS // 4  # objects loaded before they are counted again
# NOTE: 0 is for searches alone: that code generator has ended the process on <32 x float>.
OPT_LEVEL = 2 if switches["optimize"] else 0


@dataclass
class Counters:
    """Statistics of code loading in this process."""

    compiles: int = 0
    disk_hits: int = 0
    memory_hits: int = 0


counters = Counters()


class Host:
    """A CPU that code is generated for: LLVM's names of its platform, its model, and its features ('+fma,-avx')."""

    def __init__(self, triple: str, cpu: str, flags: str) -> None:
        self.triple = triple
        self.cpu = cpu
        self.flags = flags
        self.architecture = triple.partition("-")[0]
        self.features = frozenset(flag[1:] for flag in flags.split(",") if flag.startswith("+"))
        if self.architecture in ("aarch64", "arm64"):
            self.features |= {"neon"}  # every x86-64 has it, whether or not the platform tells LLVM
        self.machine = self.create_machine()
        self.data_layout = str(self.machine.target_data)
        version = ".".join(str(part) for part in llvm.llvm_version_info)
        self.fingerprint = (
            f"code {CODEGEN_VERSION}, opt {OPT_LEVEL}",
            f"llvmlite {llvmlite.__version__}, LLVM {version}",
            f"{self.triple} {self.cpu} {self.flags}",
        )

    @property
    def native_half(self) -> bool:
        """Whether it converts float16 itself; elsewhere LLVM would call symbols that do not exist."""
        if self.architecture == "x86_64":
            return "f16c" in self.features
        return "neon" in self.features or "zfhmin" in self.features

    def create_machine(self) -> Any:
        """A new target machine: an engine takes the one that it is given."""
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(cpu=self.cpu, features=self.flags, opt=OPT_LEVEL, jit=True)

    def parse(self, ir_text: str, names: Iterable[str], context: Any = None) -> Any:
        """The verified LLVM module of `ir_text`."""
        try:
            parsed = llvm.parse_assembly(ir_text, context)
            parsed.triple = self.triple
            parsed.data_layout = self.data_layout
            parsed.verify()
        except RuntimeError as error:
            raise LazytInternalError(f"LLVM rejects the IR of {', '.join(names)}: {error}") from error
        return parsed


@functools.cache
def host() -> Host:
    """The CPU of this process as LLVM sees it."""
    parallel_compile.note_lock()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    found = without_wide(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return Host(llvm.get_process_triple(), *found)


def host_features() -> frozenset[str]:
    """LLVM's names of the features that this CPU has, such as 'avx512f' or 'fma'."""
    return host().features


def elf_symbols(data: bytes) -> tuple[set[str], set[str]] | None:
    """The global symbols that an ELF object (defines, needs); None for other formats."""
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (headers,) = struct.unpack_from("<Q", data, 0x28)
    header_size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, headers + i * header_size) for i in range(count)]
    defined: set[str] = set()
    needed: set[str] = set()
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[offset : offset + size]):
            if info >> 4 and name:  # a global or weak binding
                start = strings + name
                text = data[start : data.index(b"\0", start)].decode()
                (defined if section else needed).add(text)
    # The loader makes this one itself.
    needed.discard("_GLOBAL_OFFSET_TABLE_")
    return defined, needed


class _Generation:
    """One engine and the objects in it."""

    def __init__(self) -> None:
        address_space.require(address_space.LOADING, "loading code")
        shell = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(shell, host().create_machine())
        self.keys: set[str] = set()
        self._symbols: set[str] = set()
        self.loading = False  # an object; or that was interrupted, and nothing more is loaded here

    def add(self, key: str, data: bytes, names: Sequence[str]) -> None:
        """Load an object, after a check that LLVM will find all that it needs."""
        symbols = elf_symbols(data)
        if symbols is not None:
            defined, needed = symbols
            unknown = sorted(name for name in needed if llvm.address_of_symbol(name) is None)
            if unknown:
                raise LazytInternalError(
                    f"the code of {', '.join(names)} calls what this process does not have: {', '.join(unknown)}"
                )
            twice = sorted(defined & self._symbols)
            if twice:
                raise LazytInternalError(
                    f"two modules define {', '.join(twice)}: names must contain a hash of the content"
                )
        # NOTE: after an interrupt from here on, the engine may or may not have the object, and cannot be queried.
        self.loading = True
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()
        self.keys.add(key)
        if symbols is not None:
            self._symbols |= defined
        self.loading = False

    def find(self, name: str) -> int:
        address: int = self._engine.get_function_address(name)
        assert address, f"a loaded symbol without an address: {name}"
        return address


class Module:
    """Loaded code: keeps its engine alive; drop it and the engine goes with its last module."""

    __slots__ = ("__weakref__", "_addresses", "_generation", "_text")

    def __init__(self, ir_text: str | Callable[[], str], generation: _Generation) -> None:
        self._text = ir_text
        self._generation = generation
        self._addresses: dict[str, int] = {}

    @property
    def ir(self) -> str:
        """Its LLVM IR, written now if it was not needed to find the object."""
        text = self._text
        if not isinstance(text, str):
            text = self._text = text()
        return text

    def address(self, name: str) -> int:
        """The address of a function named at compile time; `KeyError` for others."""
        return self._addresses[name]

    def assembly(self) -> str:
        """The assembly text of this code for the host CPU (generated again on each call)."""
        return assembly(self.ir, list(self._addresses))

    def _resolve(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._addresses:
                self._addresses[name] = self._generation.find(name)


# NOTE: one pattern for all: to compile one for each name cost a tenth of a first run.
_DEFINED = re.compile(r"^define\b[^@\n]*@([^\s(]+)\(", re.MULTILINE)


def _check_names(ir_text: str, names: Sequence[str]) -> None:
    """NOTE: asking LLVM for the address of a name that is not there ends the process."""
    defined = set(_DEFINED.findall(ir_text))
    for name in names:
        if name not in defined:
            raise LazytInternalError(f"the module defines no function {name}")


class _Loader:
    """The modules and generations of this process."""

    def __init__(self) -> None:
        # Reentrant: the collector may run inside a compile, and what it frees may load code.
        self.lock = OrderedLock(LOADER)
        self._modules: weakref.WeakValueDictionary[str, Module] = weakref.WeakValueDictionary()
        self._current: _Generation | None = None
        self._permanent: _Generation | None = None
        self._generations: weakref.WeakSet[_Generation] = weakref.WeakSet()
        self.remaining = MAX_OBJECTS  # objects that may be loaded before they are counted again
        self.ahead: dict[str, bytes] = {}  # object code made and not yet requested
        self._early: parallel_compile.Making | None = None  # ... and being made for a plan in preparation

    def load(self, ir_text: str, names: Sequence[str], cache: object_cache.ObjectCache, permanent: bool) -> Module:
        _check_names(ir_text, names)
        with self.lock:
            module = self._modules.get(ir_text)
            if module is not None:
                counters.memory_hits += 1
            else:
                generation = self._generation(permanent)
                key = object_cache.make_key(ir_text, *host().fingerprint)
                if key in generation.keys:
                    counters.memory_hits += 1
                else:
                    generation.add(key, _object_code(key, ir_text, names, cache), names)
                    self.remaining -= 1
                module = Module(ir_text, generation)
            module._resolve(names)
            self._modules[ir_text] = module
            return module

    def load_named(self, name: str, text: Callable[[], str], cache: object_cache.ObjectCache) -> Module | None:
        """The module of one function whose object is known by the function's name; None if it is not on disk."""
        key = _text_of(cache.load(_name_key(name), OF_NAME))
        if key is None:
            return None
        with self.lock:
            generation = self._generation(False)
            if key not in generation.keys:
                data = cache.load(key)
                symbols = None if data is None else elf_symbols(data)
                # NOTE: asking LLVM for the address of a name that is not there ends the process.
                if data is None or symbols is None or name not in symbols[0]:
                    return None
                address_space.require(address_space.LOADING + 4 * len(data), "loading code")
                generation.add(key, data, [name])
                self.remaining -= 1
            counters.disk_hits += 1
            module = Module(text, generation)
            module._resolve([name])
            return module

    def compile_early(self, modules: Sequence[tuple[str, str]]) -> None:
        """Start making code that a plan in preparation will need, on a thread that `compile_ahead` joins."""
        with self.lock:
            missing = self._missing(modules)
            if not missing:
                return
            if self._early is None:
                self._early = self._making({})
            self._early.add(text for text, _ in missing.values())
            self._early.start(1)

    def compile_ahead(self, modules: Sequence[tuple[str, str]], lanes: int) -> None:
        """Make the object code of modules of one function each, on so many threads; `compile_module` then loads it."""
        with self.lock:
            missing = self._missing(modules)
            making, self._early = self._early, None
            if making is None and len(missing) < 2:
                return
            making = making or self._making({})
            making.add(text for text, _ in missing.values())
            making.start(lanes - 1)
            for text, code in making.finish().items():
                if code is not None:
                    self.ahead[object_cache.make_key(text, *host().fingerprint)] = code

    def _missing(self, modules: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Modules by the key of their object code: those neither loaded, made nor on disk."""
        cache = object_cache.default_cache()
        missing: dict[str, tuple[str, str]] = {}
        for text, name in modules:
            if self._modules.get(text) is None:
                key = object_cache.make_key(text, *host().fingerprint)
                if key not in self.ahead and key not in cache:
                    missing[key] = text, name
        return missing

    def _making(self, modules: dict[str, tuple[str, str]]) -> parallel_compile.Making:
        def parse(text: str, context: Any) -> Any:
            return host().parse(text, _DEFINED.findall(text)[-1:], context)

        making = parallel_compile.Making(host().create_machine, parse)
        making.add(text for text, _ in modules.values())
        return making

    def _generation(self, permanent: bool) -> _Generation:
        if permanent:
            if self._permanent is None or self._permanent.loading:
                self._permanent = _Generation()
            return self._permanent
        if self._current is None or self._current.loading or len(self._current.keys) >= GENERATION_OBJECTS:
            self._current = _Generation()
            self._generations.add(self._current)
        return self._current

    def objects(self) -> int:
        """The number of loaded objects that can be dropped."""
        return sum(len(g.keys) for g in list(self._generations))

    def after_fork(self) -> None:
        """In the child: another thread may have held the lock when the process was copied."""
        self.lock = OrderedLock(LOADER)
        self._early = None  # its threads are not here


def _name_key(name: str) -> str:
    return object_cache.make_key(name, *host().fingerprint, object_cache.source_identity())


def _text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("ascii")


def load_named(name: str, text: Callable[[], str]) -> Module | None:
    """Code that a process with the same code generator made under this name: its text need not be written to find it.

    None where there is none, or where the host's objects do not tell what they define.
    """
    return _loader.load_named(name, text, object_cache.default_cache())


def remember(name: str, ir_text: str) -> None:
    """Have `load_named` find the object of this text, which defines the function `name`, from now on."""
    key = object_cache.make_key(ir_text, *host().fingerprint)
    object_cache.default_cache().store(_name_key(name), key.encode("ascii"), OF_NAME)


def _object_code(key: str, ir_text: str, names: Sequence[str], cache: object_cache.ObjectCache) -> bytes:
    data = cache.load(key)
    if data is not None:
        counters.disk_hits += 1
        address_space.require(address_space.LOADING + 4 * len(data), "loading code")
        return data
    emitted = _loader.ahead.pop(key, None)
    if emitted is None:
        address_space.require(address_space.compiling(ir_text), f"compiling {names[0]}")
        emitted = host().machine.emit_object(host().parse(ir_text, names))
    counters.compiles += 1
    cache.store(key, emitted)
    address_space.require(address_space.LOADING + 4 * len(emitted), "loading code")
    return emitted


_loader = _Loader()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loader.after_fork)


def is_crowded() -> bool:
    """Whether so much code is loaded that some must be dropped; if so, False until `RECOUNT` more objects came."""
    if _loader.remaining > 0:
        return False
    with _loader.lock:
        left = MAX_OBJECTS - _loader.objects()
        _loader.remaining = max(left, RECOUNT)
    return left <= 0


def assembly(ir_text: str, names: Sequence[str]) -> str:
    """The assembly text of a module for the host CPU."""
    address_space.require(address_space.compiling(ir_text), f"compiling {names[0]}")
    text: str = host().machine.emit_assembly(host().parse(ir_text, names))
    return text


def is_cached(ir_text: str) -> bool:
    """Whether the disk cache has the object code of this text; reads and counts nothing."""
    return object_cache.make_key(ir_text, *host().fingerprint) in object_cache.default_cache()


def compile_early(modules: Sequence[tuple[str, str]]) -> None:
    """Begin to make the object code of modules on another thread, while a plan is being made."""
    if switches["ahead"]:
        _loader.compile_early(modules)


def compile_ahead(modules: Sequence[tuple[str, str]], lanes: int) -> None:
    """Make the object code of modules, each with one function, by so many threads; `compile_module` then loads it."""
    if lanes > 1 and switches["ahead"]:
        _loader.compile_ahead(modules, lanes)


def compile_module(
    ir_text: str,
    names: Sequence[str],
    *,
    cache: object_cache.ObjectCache | None = None,
    permanent: bool = False,
) -> Module:
    """Machine code for a module of LLVM IR, from memory, from the disk cache, or compiled now.

    The functions in `names` can be asked for by `Module.address`. A global name must belong to one
    text only (put a hash of the content in it). `cache=None` is the default disk cache. A
    `permanent` module stays loaded until the process ends, in an engine apart from the generations.
    Raises `LazytInternalError` for IR that LLVM rejects, for symbols that this process does not
    have, and for names that are not defined.
    """
    chosen = object_cache.default_cache() if cache is None else cache
    return _loader.load(ir_text, names, chosen, permanent)
