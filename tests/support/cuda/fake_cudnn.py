"""cuDNN's front end without cuDNN: what it is asked for is kept and checked, and computed by NumPy at the addresses.

It takes the names that lazyt uses, as version 1.14 has them; nothing is computed in tf32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.cuda.fake import FakeDriver

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
    data_type = SimpleNamespace(FLOAT="float32", HALF="float16", BFLOAT16="bfloat16")
    heur_mode = SimpleNamespace(A="a", FALLBACK="fallback")
    numerical_note = SimpleNamespace(**{name: name for name in NOTES})

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.graphs: list[Any] = []
        self.runs: list[Any] = []
        self.handles = 0
        self.refusal = self.failure = ""

    def create_handle(self) -> str:
        self.handles += 1
        return f"handle {self.handles}"

    def set_stream(self, handle: str, stream: int) -> None:
        assert (handle, stream) == ("handle 1", 0)

    def pygraph(self, **options: Any) -> Graph | Attention:
        assert {options.pop(f"{what}_data_type") for what in ("intermediate", "compute")} == {"float32"}
        io = options.pop("io_data_type")
        assert options.pop("name"), "a graph has a name"
        assert options == {"handle": "handle 1"}
        self.graphs.append(Graph(self) if io == "float32" else Attention(self, io))
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

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **attributes: Any) -> Tensor:  # noqa: A002 - its name there
        return self._node("dgrad", loss, filter, attributes)

    def _node(self, what: str, first: Tensor, second: Tensor, attributes: dict[str, Any]) -> Tensor:
        self.what, self.first, self.second, self.result = what, first, second, Tensor("result")
        self.dilation, self.stride = attributes.pop("dilation"), attributes.pop("stride")
        self.padding = attributes.pop("pre_padding")
        assert attributes.pop("name"), "a node has a name"
        assert attributes == {"post_padding": self.padding, "compute_data_type": "float32"}
        return self.result

    @property
    def roles(self) -> tuple[Tensor, Tensor, Tensor]:
        """The image, the filters, and what a convolution gives."""
        a, b, c = self.first, self.second, self.result
        return {"fprop": (a, b, c), "wgrad": (a, c, b), "dgrad": (c, b, a)}[self.what]

    def validate(self) -> None:
        self.did.append("validate")
        for t in (self.first, self.second, self.result):
            assert t.data_type == "float32", t
            assert len(t.dim) == len(t.stride) == 4, t
            assert min(t.dim) > 0, f"cuDNN has no tensors without elements: {t}"
        assert self.result.is_output
        image, weight, y = self.roles
        self.groups = image.dim[1] // weight.dim[1]
        assert weight.dim[0] == y.dim[1] and weight.dim[1] * self.groups == image.dim[1]
        assert weight.dim[0] % self.groups == 0
        reach = [(k - 1) * e for k, e in zip(weight.dim[2:], self.dilation, strict=True)]
        spans = zip(image.dim[2:], self.padding, reach, self.stride, strict=True)
        assert y.dim == [image.dim[0], weight.dim[0], *((d + 2 * p - r - 1) // s + 1 for d, p, r, s in spans)]

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

    def begin(self, workspace: int, handle: str) -> Any:
        """Count a run, or fail as asked; its workspace is written over. Gives the driver."""
        assert handle == "handle 1"
        if self.module.failure:
            raise RuntimeError(self.module.failure)
        self.module.runs.append(self)
        self.module.driver.view(0, workspace, FLOAT32, (250,))[...] = np.nan
        return self.module.driver

    def execute(self, tensors: Mapping[Tensor, int], workspace: int, handle: str) -> None:
        driver = self.begin(workspace, handle)

        def view(t: Tensor) -> np.ndarray:
            return driver.view(0, tensors[t], FLOAT32, t.dim, [4 * s for s in t.stride])

        image, weight, y = map(view, self.roles)
        view(self.result)[...] = 0
        (o, depth), (p, q), (up, across) = weight.shape[:2], self.dilation, self.padding
        around = np.pad(image, ((0, 0), (0, 0), (up, up), (across, across)))
        n = len(image)
        x = around.reshape(n, self.groups, depth, *around.shape[2:])
        w = weight.reshape(self.groups, o // self.groups, *weight.shape[1:])
        v = y.reshape(n, self.groups, o // self.groups, *y.shape[2:])
        for i, j in np.ndindex(*weight.shape[2:]):
            rows = slice(i * p, i * p + y.shape[2] * self.stride[0], self.stride[0])
            part = x[..., rows, j * q : j * q + y.shape[3] * self.stride[1] : self.stride[1]]
            if self.what == "fprop":
                y += np.einsum("ngchw,goc->ngohw", part, w[..., i, j]).reshape(y.shape)
            elif self.what == "wgrad":
                weight[:, :, i, j] = np.einsum("ngchw,ngohw->goc", part, v).reshape(o, depth)
            else:
                part += np.einsum("ngohw,goc->ngchw", v, w[..., i, j])
        if self.what == "dgrad":
            image[...] = around[..., up : up + image.shape[2], across : across + image.shape[3]]


class Attention(Graph):
    """A graph of attention, or of its gradient, of halves: (batch, heads, length, features), any strides."""

    def __init__(self, module: FakeCudnn, half: str) -> None:
        super().__init__(module)
        self.half = half

    def sdpa(self, *, generate_stats: bool, **given: Any) -> tuple[Tensor, Tensor]:
        assert generate_stats
        self._asked("sdpa", given, ("q", "k", "v"))
        self.made = [Tensor("o"), Tensor("stats")]
        return self.made[0], self.made[1]

    def sdpa_backward(self, *, use_deterministic_algorithm: bool, **given: Any) -> tuple[Tensor, ...]:
        assert use_deterministic_algorithm
        self._asked("sdpa_backward", given, ("q", "k", "v", "o", "dO", "stats"))
        self.made = [Tensor("dq"), Tensor("dk"), Tensor("dv")]
        return tuple(self.made)

    def _asked(self, what: str, given: dict[str, Any], names: Sequence[str]) -> None:
        self.what = what
        self.scale, self.causal = given.pop("attn_scale"), given.pop("use_causal_mask")
        assert given.pop("name"), "a node has a name"
        assert isinstance(self.scale, float)
        self.given = {name: given.pop(name) for name in names}
        assert not given

    def validate(self) -> None:
        self.did.append("validate")
        q, k, v = (self.given[name].dim for name in "qkv")
        shapes = {"q": q, "k": [*k[:3], q[3]], "v": [*k[:3], v[3]], "dq": q, "dk": k, "dv": v}
        shapes |= {"o": [*q[:3], v[3]], "dO": [*q[:3], v[3]], "stats": [*q[:3], 1]}
        assert q[:2] == k[:2] == v[:2]
        for name, t in (*self.given.items(), *((t.name, t) for t in self.made)):
            assert t.dim == shapes[name], (name, t)
            assert t.data_type == ("float32" if name == "stats" else self.half), (name, t)
            assert len(t.stride) == 4, t
            assert t.stride[3] == 1, f"cuDNN reads features side by side: {t}"
            assert min(t.dim) > 0, f"cuDNN has no tensors without elements: {t}"
        assert all(t.is_output for t in self.made)

    def execute(self, tensors: Mapping[Tensor, int], workspace: int, handle: str) -> None:
        driver = self.begin(workspace, handle)

        def view(t: Tensor) -> np.ndarray:
            dtype = np.dtype(t.data_type)
            return driver.view(0, tensors[t], dtype, t.dim, [dtype.itemsize * s for s in t.stride])

        q, k, v, *rest = (view(t).astype("float64") for t in self.given.values())
        s = q @ np.swapaxes(k, -1, -2) * self.scale
        if self.causal:
            s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
        if not rest:
            top = s.max(-1, keepdims=True)
            e = np.exp(s - top)
            total = e.sum(-1, keepdims=True)
            results = [e / total @ v, top + np.log(total)]
        else:
            o, ct, stats = rest
            w = np.exp(s - stats)
            ds = w * (ct @ np.swapaxes(v, -1, -2) - (o * ct).sum(-1, keepdims=True)) * self.scale
            results = [ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(w, -1, -2) @ ct]
        for t, x in zip(self.made, results, strict=True):
            view(t)[...] = x
