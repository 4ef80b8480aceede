"""Attention and its gradient as cuDNN's graphs of one node: float16 or bfloat16, with strides, in float32 inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lazyt.ir import dtypes

# The arrays of both graphs, in the order of their addresses.
FORWARD = ("q", "k", "v", "o", "l")
BACKWARD = ("q", "k", "v", "o", "ct", "l", "dq", "dk", "dv")

Layout = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Attended:
    """Attention, or its gradient: the extents (batch, heads, length, features) and the strides of each array."""

    back: bool
    half: str  # 'float16' | 'bfloat16'
    layouts: tuple[Layout, ...]  # as FORWARD or BACKWARD names them; of l the last extent is 1
    causal: bool
    by: float

    # What has halves for operands is tensor cores' work.
    @property
    def tf32(self) -> bool:
        return True


def described(cudnn: Any, a: Attended, **options: Any) -> tuple[Any, ...]:
    """The graph, validated, and its tensors in the order of FORWARD or BACKWARD."""
    float32 = cudnn.data_type.FLOAT
    half = cudnn.data_type.HALF if a.half == dtypes.float16.name else cudnn.data_type.BFLOAT16
    graph = cudnn.pygraph(
        name="lazyt", io_data_type=half, intermediate_data_type=float32, compute_data_type=float32, **options
    )
    names = BACKWARD if a.back else FORWARD
    layouts = dict(zip(names, a.layouts, strict=True))

    def tensor(name: str) -> Any:
        dim, stride = layouts[name]
        return graph.tensor(name=name, dim=[*dim], stride=[*stride], data_type=float32 if name == "l" else half)

    given = {name: tensor(name) for name in (BACKWARD[:6] if a.back else FORWARD[:3])}
    places = {"attn_scale": a.by, "use_causal_mask": a.causal}
    if a.back:
        made = graph.sdpa_backward(
            q=given["q"], k=given["k"], v=given["v"], o=given["o"], dO=given["ct"], stats=given["l"],
            use_deterministic_algorithm=True, name="gradient", **places,
        )  # fmt: skip
    else:
        made = graph.sdpa(q=given["q"], k=given["k"], v=given["v"], generate_stats=True, name="attention", **places)
    for name, x in zip(names[len(given) :], made, strict=True):
        dim, stride = layouts[name]
        x.set_output(True).set_dim([*dim]).set_stride([*stride]).set_data_type(float32 if name == "l" else half)
        given[name] = x
    graph.validate()
    return (graph, *(given[name] for name in names))
