"""Convolutions and attention by cuDNN, through NVIDIA's Python front end. Calls that it refuses have other code.

A convolution of two spatial axes is a graph of one node, planned once for each geometry and precision; so is attention
(cudnn_attention.py). The front end is asked of the driver, so a test's fake can stand in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lazyt.backends.cuda.flags import switches
from lazyt.backends.cuda.library.cudnn_attention import Attended, Layout, described as described_attention
from lazyt.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager


# What a plan may not do if products are to be float32 all through, and what it may not do at all.
PRECISE = ("TENSOR_CORE", "WINOGRAD", "FFT")
NEVER = ("DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC")


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution of float32 over two axes, or one of its gradients.

    `op` is convolve, convolve_filter or convolve_image, as in the graph IR; `image` is (N, C, H, W), `filters`
    (O, C / groups, ..), `places` what a convolution gives (N, O, ..): one of the three is the result.
    """

    op: str
    image: tuple[int, ...]
    filters: tuple[int, ...]
    places: tuple[int, ...]
    dilations: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    tf32: bool

    @property
    def groups(self) -> int:
        return self.image[1] // max(self.filters[1], 1)

    @property
    def operands(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of both, in the order of the graph IR."""
        match self.op:
            case "convolve":
                return self.image, self.filters
            case "convolve_filter":
                return self.image, self.places
            case _:
                return self.places, self.filters

    @property
    def result(self) -> tuple[int, ...]:
        return {"convolve": self.places, "convolve_filter": self.filters, "convolve_image": self.image}[self.op]


@dataclass(frozen=True, slots=True)
class Planned:
    """A graph with its tensors and the bytes of workspace that its plan wants."""

    graph: Any
    tensors: Sequence[Any]
    workspace: int


class Where(Protocol):
    """What is asked of the `Device` (device.py): its driver, the order of its work, its memory."""

    driver: Any

    def work(self) -> AbstractContextManager[Any]: ...

    def take(self, nbytes: int) -> Any: ...


class Cudnn:
    """cuDNN on one device. `fallbacks` counts the calls that it refused and others computed."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.fallbacks = 0
        self._found: Any = None
        self._missing: str | None = None  # '' where it is there, None where nobody has looked
        self._handle: Any = None
        # Why there is no plan stands in its place.
        self._plans: dict[Geometry | Attended, Planned | str] = {}

    @property
    def missing(self) -> str:
        """Why it is not used on this device; '' if it is."""
        if not switches["cudnn"]:
            return "it is switched off"
        if self._missing is None:
            try:
                with self.where.work():
                    self._found, self._missing = self.where.driver.cudnn(), ""
            except DeviceError as error:
                self._missing = str(error)
        return self._missing

    def refusal(self, geometry: Geometry | Attended) -> str:
        """Why cuDNN did not compute such a thing when it was asked; '' if it did or has not been asked."""
        known = self._plans.get(geometry)
        return known if isinstance(known, str) else ""

    def refusal_of(self, layouts: tuple[Layout, ...]) -> str:
        """The same of attention of arrays that lie so, whatever its number."""
        asked = (why for a, why in self._plans.items() if isinstance(a, Attended) and a.layouts == layouts)
        return next((why for why in asked if isinstance(why, str)), "")

    def compute(self, stream: Any, geometry: Geometry | Attended, addresses: Sequence[int]) -> bool:
        """Enqueue it on memory at these addresses; False if cuDNN will not, and then it is counted."""
        if geometry not in self._plans:
            if len(self._plans) > 1024:
                self._plans.clear()
            self._plans[geometry] = self._plan(geometry)
        planned = self._plans[geometry]
        if isinstance(planned, Planned):
            workspace = self.where.take(planned.workspace)
            tensors = dict(zip(planned.tensors, addresses, strict=True))
            try:
                self._found.set_stream(handle=self._handle, stream=getattr(stream, "ptr", 0))
                planned.graph.execute(tensors, workspace.address, handle=self._handle)
            except self._failures as error:
                self._plans[geometry] = f"{error}"
            else:
                return True
        self.fallbacks += 1
        return False

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        return (self._found.cudnnGraphNotSupportedError, RuntimeError, ValueError)

    def _plan(self, geometry: Geometry | Attended) -> Planned | str:
        assert not self.missing
        try:
            if self._handle is None:
                self._handle = self._found.create_handle()
            if isinstance(geometry, Geometry):
                graph, *tensors = described(self._found, geometry, handle=self._handle)
            else:
                graph, *tensors = described_attention(self._found, geometry, handle=self._handle)
            planned(self._found, graph, geometry.tf32)
            return Planned(graph, tensors, graph.get_workspace_size())
        except self._failures as error:
            return f"{error}" or type(error).__name__


def described(cudnn: Any, geometry: Geometry, **options: Any) -> tuple[Any, Any, Any, Any]:
    """The graph of a convolution, validated, with the tensors of its operands and its result."""
    float32 = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        name="lazyt", io_data_type=float32, intermediate_data_type=float32, compute_data_type=float32, **options
    )

    def tensor(name: str, shape: Sequence[int]) -> Any:
        return graph.tensor(name=name, dim=list(shape), stride=dense(shape), data_type=float32)

    first, second = (tensor(name, shape) for name, shape in zip(("first", "second"), geometry.operands, strict=True))
    padding = list(geometry.padding)
    places = {
        "pre_padding": padding, "post_padding": padding, "stride": list(geometry.strides),
        "dilation": list(geometry.dilations), "compute_data_type": float32, "name": geometry.op,
    }  # fmt: skip
    match geometry.op:
        case "convolve":
            result = graph.conv_fprop(image=first, weight=second, **places)
        case "convolve_filter":
            result = graph.conv_wgrad(image=first, loss=second, **places)
        case _:
            result = graph.conv_dgrad(loss=first, filter=second, **places)
    result.set_output(True).set_dim(list(geometry.result)).set_stride(dense(geometry.result)).set_data_type(float32)
    graph.validate()
    return graph, first, second, result


def planned(cudnn: Any, graph: Any, tf32: bool) -> None:
    """Have cuDNN choose how a graph is computed, and build that."""
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    names = NEVER if tf32 else (*NEVER, *PRECISE)
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in names])
    graph.check_support()
    graph.build_plans()


def dense(shape: Sequence[int]) -> list[int]:
    """Strides in elements, the last axis side by side."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]
