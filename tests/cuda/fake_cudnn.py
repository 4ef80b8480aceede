"""cuDNN's front end without cuDNN: what it is asked for is kept and checked, and computed by NumPy at the addresses.

It takes the names that lazyt uses, as version 1.14 has them; nothing is computed in tf32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.cuda.fake import FakeDriver

FLOAT32 = np.dtype(np.float32)
NOTES = ("TENSOR_CORE", "WINOGRAD", "FFT", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC")


class NotSupported(Exception):
    """What cuDNN raises where no engine takes a graph."""


@dataclass(eq=False)
class Tensor:
    name: str
    dim: list[int] = field(default_factory=list)
    stride: list[int] = field(default_factory=list)
    data_type: str = ""
    is_output: bool = False

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, data_type: str) -> Tensor:
        self.data_type = data_type
        return self


class FakeCudnn:
    """The module. `refusal` is raised by the next plans, `failure` by the next runs."""

    cudnnGraphNotSupportedError = NotSupported  # noqa: N815 - its name there
    data_type = SimpleNamespace(FLOAT="float32")
    heur_mode = SimpleNamespace(A="a", FALLBACK="fallback")
    numerical_note = SimpleNamespace(**{name: name for name in NOTES})

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.graphs: list[Graph] = []
        self.runs: list[Graph] = []
        self.handles = 0
        self.refusal = self.failure = ""

    def create_handle(self) -> str:
        self.handles += 1
        return f"handle {self.handles}"

    def set_stream(self, handle: str, stream: int) -> None:
        assert (handle, stream) == ("handle 1", 0)

    def pygraph(self, **options: Any) -> Graph:
        assert {options.pop(f"{what}_data_type") for what in ("io", "intermediate", "compute")} == {"float32"}
        assert options.pop("name"), "a graph has a name"
        assert options == {"handle": "handle 1"}
        self.graphs.append(Graph(self))
        return self.graphs[-1]


class Graph:
    def __init__(self, module: FakeCudnn) -> None:
        self.module = module
        self.did: list[str] = []
        self.deselected: set[str] = set()

    def tensor(self, name: str, dim: list[int], stride: list[int], data_type: str) -> Tensor:
        return Tensor(name, dim, stride, data_type)

    def conv_fprop(self, image: Tensor, weight: Tensor, **attributes: Any) -> Tensor:
        return self._node("fprop", image, weight, attributes)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **attributes: Any) -> Tensor:
        return self._node("wgrad", image, loss, attributes)

    def _node(self, what: str, image: Tensor, other: Tensor, attributes: dict[str, Any]) -> Tensor:
        self.what, self.image, self.other, self.result = what, image, other, Tensor("result")
        self.dilation = attributes.pop("dilation")
        assert attributes.pop("name"), "a node has a name"
        assert attributes == {
            "pre_padding": [0, 0], "post_padding": [0, 0], "stride": [1, 1], "compute_data_type": "float32"
        }  # fmt: skip
        return self.result

    def validate(self) -> None:
        self.did.append("validate")
        for t in (self.image, self.other, self.result):
            assert t.data_type == "float32", t
            assert len(t.dim) == len(t.stride) == 4, t
            assert min(t.dim) > 0, f"cuDNN has no tensors without elements: {t}"
        assert self.result.is_output
        weight, y = (self.other, self.result) if self.what == "fprop" else (self.result, self.other)
        assert weight.dim[:2] == [y.dim[1], self.image.dim[1]]
        reach = [(k - 1) * e for k, e in zip(weight.dim[2:], self.dilation, strict=True)]
        counts = [d - r for d, r in zip(self.image.dim[2:], reach, strict=True)]
        assert y.dim == [self.image.dim[0], weight.dim[0], *counts]

    def build_operation_graph(self) -> None:
        self.did.append("build_operation_graph")

    def create_execution_plans(self, modes: Sequence[str]) -> None:
        self.did.append("create_execution_plans")
        assert modes == ["a", "fallback"]

    def deselect_numeric_notes(self, notes: Sequence[str]) -> None:
        # A filter on plans that are not there yet filters nothing.
        assert self.did[-1] == "create_execution_plans"
        self.deselected = set(notes)

    def check_support(self) -> None:
        self.did.append("check_support")
        if self.module.refusal:
            raise NotSupported(self.module.refusal)

    def build_plans(self) -> None:
        self.did.append("build_plans")

    def get_workspace_size(self) -> int:
        assert self.did == [
            "validate", "build_operation_graph", "create_execution_plans", "check_support", "build_plans"
        ]  # fmt: skip
        return 1000

    def execute(self, tensors: Mapping[Tensor, int], workspace: int, handle: str) -> None:
        assert handle == "handle 1"
        if self.module.failure:
            raise RuntimeError(self.module.failure)
        self.module.runs.append(self)
        driver = self.module.driver
        driver.view(0, workspace, FLOAT32, (250,))[...] = np.nan

        def view(t: Tensor) -> np.ndarray:
            return driver.view(0, tensors[t], FLOAT32, t.dim, [4 * s for s in t.stride])

        x, y, out = view(self.image), view(self.other), view(self.result)
        sizes, counts = (self.other, self.result) if self.what == "fprop" else (self.result, self.other)
        out[...] = 0
        for i, j in np.ndindex(*sizes.dim[2:]):
            (p, q), (h, w) = self.dilation, counts.dim[2:]
            part = x[:, :, i * p : i * p + h, j * q : j * q + w]
            if self.what == "fprop":
                out += np.einsum("nchw,oc->nohw", part, y[:, :, i, j])
            else:
                out[:, :, i, j] = np.einsum("nchw,nohw->oc", part, y)
