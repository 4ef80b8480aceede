"""Graphs by the CUDA driver's own functions, called by ctypes: CuPy can capture and launch a graph, not change one.

Layouts and names are those of cuda.h of CUDA 12 and 13 (`tests/backends/cuda/test_cuda_replay.py` compiles it and
compares). A product is captured from cuBLAS, which CuPy refuses to call in a capture, and becomes a graph within the
graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from lazyt.backends.cuda.graph_nodes import KernelNode, Ordered, Product, Work

    # Gives a stream to capture on, cuBLAS's version and handle, its workspace and how large that is, and arguments.
    Capturing = Callable[[Product], AbstractContextManager[tuple[int, int, int, int, int, tuple[int, ...]]]]

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: does not restrict calls of other threads
# Products that are kept by their addresses, as calls and as captured graphs: operands come back at the same ones run
# after run, or every other run.
KEPT = 4

_pointer, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong


class GraphError(Exception):
    """Raised for launches that cannot be in a graph, or changes that a graph does not allow."""


class KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", _pointer),
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("kernel_params", _pointer), ("extra", _pointer), ("kern", _pointer), ("ctx", _pointer),
    )  # fmt: skip


# Name as exported (a suffix says which version of the function) -> its parameters.
DRIVER: dict[str, tuple[Any, ...]] = {
    "cuGraphCreate": (_pointer, ctypes.c_uint),
    "cuGraphDestroy": (_pointer,),
    "cuGraphAddKernelNode_v2": (_pointer, _pointer, _pointer, ctypes.c_size_t, _pointer),
    "cuGraphAddChildGraphNode": (_pointer, _pointer, _pointer, ctypes.c_size_t, _pointer),
    "cuGraphInstantiateWithFlags": (_pointer, _pointer, ctypes.c_ulonglong),
    "cuGraphExecDestroy": (_pointer,),
    "cuGraphExecKernelNodeSetParams_v2": (_pointer, _pointer, _pointer),
    "cuGraphExecChildGraphNodeSetParams": (_pointer, _pointer, _pointer),
    "cuGraphLaunch": (_pointer, _pointer),
    "cuStreamBeginCapture_v2": (_pointer, _int),
    "cuStreamEndCapture": (_pointer, _pointer),
}
BLAS: dict[str, tuple[Any, ...]] = {
    "cublasSetStream_v2": (_pointer, _pointer),
    "cublasSetWorkspace_v2": (_pointer, _pointer, ctypes.c_size_t),
    "cublasGemmStridedBatchedEx": (
        _pointer, _int, _int, _int, _int, _int, _pointer, _pointer, _int, _int, _long, _pointer, _int, _int, _long,
        _pointer, _pointer, _int, _int, _long, _int, _int, _int,
    ),
}  # fmt: skip


def _library(name: str, functions: dict[str, tuple[Any, ...]]) -> Any:
    try:
        library = ctypes.CDLL(name)
        for function, parameters in functions.items():
            found = getattr(library, function)
            found.argtypes, found.restype = parameters, _int
    except (OSError, AttributeError) as error:
        raise GraphError(f"{name}: {error}") from error
    return library


@functools.cache
def libcuda() -> Any:
    """The driver; GraphError where it is not there, or too old to change graphs."""
    return _library("libcuda.so.1", DRIVER)


@functools.cache
def libcublas(version: int) -> Any:
    """The cuBLAS that CuPy has loaded, by its version."""
    return _library(f"libcublas.so.{version // 10000}", BLAS)


def _call(library: Any, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status:
        raise GraphError(f"{name}: error {status}")


class NativeGraph:
    """An instantiated graph, and the graph that its nodes are named in."""

    def __init__(self, nodes: Sequence[Ordered], capturing: Capturing) -> None:
        self.cuda = libcuda()
        self.capturing = capturing
        self.graph, self.exec = _pointer(), _pointer()
        self.nodes: list[int] = []
        # By node: what is there by now, a kernel with its parameters; and the graphs of a product that are kept.
        self.prepared: dict[int, tuple[Work, Any]] = {}
        self.captured: dict[int, dict[Product, Any]] = {}
        try:
            _call(self.cuda, "cuGraphCreate", ctypes.byref(self.graph), 0)
            for i, (work, before) in enumerate(nodes):
                self._add(i, work, before)
            _call(self.cuda, "cuGraphInstantiateWithFlags", ctypes.byref(self.exec), self.graph, 0)
        except GraphError:
            self.close()
            raise

    def _add(self, i: int, work: Work, before: Sequence[int]) -> None:
        node, after = _pointer(), (_pointer * max(len(before), 1))(*(self.nodes[j] for j in before))
        name, what = "cuGraphAddChildGraphNode", self._what(i, work)
        if _is_kernel(work):
            name = "cuGraphAddKernelNode_v2"
        _call(self.cuda, name, ctypes.byref(node), self.graph, after if before else None, len(before), what)
        assert node.value is not None
        self.nodes.append(node.value)

    def _what(self, i: int, work: Work) -> Any:
        """The content of a node: a kernel's parameters, or a product's graph."""
        if not _is_kernel(work):
            return self._child(i, work)
        # NOTE: arguments stand where they stood, so the parameters of the same kernel are the same.
        known = self.prepared.get(i)
        if known is None or known[0] is not work:
            known = self.prepared[i] = work, ctypes.byref(_params(work))
        return known[1]

    def _child(self, i: int, product: Any) -> Any:
        """The graph of a product's kernels, kept for when its addresses come again."""
        known = self.captured.setdefault(i, {})
        found = known.get(product)
        if found is None:
            found = self._capture(product)
            if len(known) >= KEPT:
                _call(self.cuda, "cuGraphDestroy", known.pop(next(iter(known))))
            known[product] = found
        return found

    def _capture(self, product: Product) -> Any:
        with self.capturing(product) as (stream, version, handle, workspace, size, arguments):
            blas, graph = libcublas(version), _pointer()
            _call(blas, "cublasSetStream_v2", handle, stream)
            # Without a workspace it would allocate inside the graph. NOTE: the next stream it is given takes it back.
            _call(blas, "cublasSetWorkspace_v2", handle, workspace, size)
            _call(self.cuda, "cuStreamBeginCapture_v2", stream, RELAXED)
            try:
                _call(blas, "cublasGemmStridedBatchedEx", handle, *arguments)
            except GraphError:
                with contextlib.suppress(GraphError):
                    _call(self.cuda, "cuStreamEndCapture", stream, ctypes.byref(graph))
                raise
            _call(self.cuda, "cuStreamEndCapture", stream, ctypes.byref(graph))
            if graph.value is None:
                raise GraphError("cuStreamEndCapture: no graph")
            return graph

    def update(self, i: int, work: Work) -> None:
        known = self.prepared.get(i)
        if known is not None and known[0] is work:
            # In a training step that is most of what there is to do.
            status = self.cuda.cuGraphExecKernelNodeSetParams_v2(self.exec, self.nodes[i], known[1])
            if status:
                raise GraphError(f"cuGraphExecKernelNodeSetParams_v2: error {status}")
            return
        name, what = "cuGraphExecChildGraphNodeSetParams", self._what(i, work)
        if _is_kernel(work):
            name = "cuGraphExecKernelNodeSetParams_v2"
        _call(self.cuda, name, self.exec, self.nodes[i], what)

    def launch(self, stream: int, answers: list[Any]) -> None:
        # NOTE: one call into C, which looks at no signals: who launched it has an answer.
        answers.extend(map(self.cuda.cuGraphLaunch, (self.exec,), (stream,)))
        if answers[-1]:
            raise GraphError(f"cuGraphLaunch: error {answers[-1]}")

    def close(self) -> None:
        """Give everything back; a run that is under way goes on."""
        if self.exec.value is not None:
            self.cuda.cuGraphExecDestroy(self.exec)
        for graph in [g for known in self.captured.values() for g in known.values()]:
            self.cuda.cuGraphDestroy(graph)
        if self.graph.value is not None:
            self.cuda.cuGraphDestroy(self.graph)
        self.exec, self.graph, self.captured = _pointer(), _pointer(), {}

    def __del__(self) -> None:
        if hasattr(self, "captured") and not sys.is_finalizing():
            self.close()


def _is_kernel(work: Any) -> bool:
    return hasattr(work, "function")


def _params(work: KernelNode | Any) -> KernelNodeParams:
    return KernelNodeParams(
        work.function.ptr, work.blocks, 1, 1, work.threads, 1, 1, work.shared, work.parameters, None, None, None
    )
