"""Convolutional networks: values and gradients have the same bits however they are read and written, and are float64's.

A program is layers, one a line, from an image to `learn`, which multiplies the result with random numbers and goes
backward. What is tried is what lies between layers: images that are read in part, padded, joined, pooled and turned,
normalized and summed up over pixels, in shapes where rows are short or do not fill a register. Some convolutions are of
bfloat16.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import is_ours
from lazyt.testing.closeness import same_bits
from lazyt.testing.kinds import register
from lazyt.testing.modes import Mode, mode
from lazyt.testing.statements import Failure
from tests.support.fuzz.checked_lines import CheckedLines

Array = np.ndarray[Any, Any]
# NOTE: BLAS has its own order of sums, and which products are its depends on strides, thus on what is fused.
AS_USED = Mode("as used", off=("blas",))
ALONE = Mode("an operation at a time", fuse=False, off=("blas",))
PLAINLY = Mode(
    "by none of the ways to read and write",
    off=("blas", "views", "interleave", "alternate", "merge", "interior", "widen", "tile", "peel", "reuse", "epilogues",
         "donate", "inplace", "together", "pairs"),
)  # fmt: skip
EXACT = Mode("in float64 by the interpreter", interpret=True)
# NOTE: alone, a product with a vector is one of matrices, whose sums are in another order.
BIT_EXACT = (PLAINLY,)
START, END = "x = image(", "learn(x)"
# The largest value, and how far from float64's a result may be: a part of the largest of its own, or of all gradients;
# and how far where something is rounded to bfloat16, which may round another way.
LARGEST, FAR, FLOOR, ROUGH = 40000, 3e-3, 0.05, 0.1
HALF = "half("
# What normalizes fewer elements cancels nearly all of its gradient.
FEW = 6


class Network:
    """Writes a program, and keeps the shape that its value has."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.parameters = 0
        rng = self.rng
        self.shape = [
            rng.randint(1, 5),
            rng.choice([1, 2, 3, 5, 8, 16, 17, 20, 32]),
            rng.randint(3, 18),
            rng.randint(3, 18),
        ]
        self.lines = [f"{START}{tuple(self.shape)}, {seed})"]

    def program(self) -> None:
        """Layers, and the end."""
        layers = [getattr(self, f"_{name}") for name in (*KINDS, "conv", "pool")]
        for _ in range(self.rng.randint(2, 6)):
            self.rng.choice(layers)()
            if np.prod(self.shape) > LARGEST:
                break
        self.lines.append(END)

    def _put(self, text: str, shape: Sequence[int] | None = None) -> None:
        self.lines.append(f"x = {text}")
        self.shape = list(self.shape if shape is None else shape)

    def _parameter(self, *shape: int) -> str:
        self.parameters += 1
        name = f"w{self.parameters}"
        self.lines.append(f"{name} = parameter({shape}, {self.seed + self.parameters})")
        return name

    def _conv(self) -> None:
        rng, (n, c, h, w) = self.rng, self.shape
        groups = rng.choice([1, 1, *(d for d in range(2, c + 1) if c % d == 0)])
        each = [1, 3, 8, 16, 20, 33] if groups == 1 else [1, 2, 3]
        features, step, around = groups * rng.choice(each), rng.randint(1, 2), rng.randint(0, 1)
        high, wide = rng.randint(1, min(4, h)), rng.randint(1, min(4, w))
        name = self._parameter(features, c // groups, high, wide)
        counts = ((d + 2 * around - k) // step + 1 for d, k in ((h, high), (w, wide)))
        function = self._function("conv2d")
        self._put(f"{function}x, {name}, None, {step}, {around}, 1, {groups})", (n, features, *counts))

    def _function(self, name: str) -> str:
        """The beginning of a call, now and then on halves."""
        return f"{HALF}F.{name}, " if self.rng.random() < 0.25 else f"F.{name}("

    def _transposed(self) -> None:
        rng, (n, c, h, w) = self.rng, self.shape
        features, size, step = rng.choice([1, 3, 16, 20]), rng.randint(1, 5), rng.randint(1, 3)
        around = rng.randint(0, (size - 1) // 2)
        counts = [(d - 1) * step - 2 * around + size for d in (h, w)]
        if min(counts) > 0:
            name = self._parameter(c, features, size, size)
            function = self._function("conv_transpose2d")
            self._put(f"{function}x, {name}, None, {step}, {around})", (n, features, *counts))

    def _pool(self) -> None:
        rng, (n, c, h, w) = self.rng, self.shape
        size, step = rng.randint(1, 3), rng.randint(1, 3)
        around = rng.randint(0, size // 2)
        if min(h, w) + 2 * around >= size:
            kind = rng.choice(["max", "max", "avg"])
            counts = ((d + 2 * around - size) // step + 1 for d in (h, w))
            self._put(f"F.{kind}_pool2d(x, {size}, {step}, {around})", (n, c, *counts))

    def _batch_norm(self) -> None:
        n, c, h, w = self.shape
        if n * h * w >= FEW:
            weight, bias = self._parameter(c), self._parameter(c)
            # NOTE: a weight of nearly 0 leaves rounding errors, which a normalization that follows makes large.
            self._put(f"F.batch_norm(x, None, None, 1 + {weight}, {bias}, True)")

    def _group_norm(self) -> None:
        _, c, h, w = self.shape
        groups = self.rng.choice([d for d in range(1, c + 1) if c % d == 0])
        if c // groups * h * w >= FEW:
            self._put(f"F.group_norm(x, {groups})")

    def _layer_norm(self) -> None:
        if self.shape[-1] >= FEW:
            n = self.shape[-1]
            # NOTE: a row may be constant (of places that a transposed convolution leaves 0, one bias): of a smaller eps
            # each normalization makes its rounding errors 300 times as large.
            self._put(f"F.layer_norm(x, ({n},), 1 + {self._parameter(n)}, None, 0.01)")

    def _slice(self) -> None:
        rng, (n, c, h, w) = self.rng, self.shape
        if min(h, w) > 2:
            first, last, step = rng.randint(0, 1), rng.randint(0, 1), rng.choice([1, 1, 2])
            self._put(f"x[:, :, {first}::{step}, :{w - last}]", (n, c, len(range(first, h, step)), w - last))

    def _join(self) -> None:
        axis = self.rng.randint(1, 3)
        shape = [2 * d if i == axis else d for i, d in enumerate(self.shape)]
        self._put(f"lt.concat([x, x * 0.5], axis={axis})", shape)

    def _turn(self) -> None:
        n, c, h, w = self.shape
        self._put("lt.permute_dims(x, (0, 1, 3, 2))", (n, c, w, h))

    def _pad(self) -> None:
        n, c, h, w = self.shape
        self._put("F.pad(x, (1, 1, 0, 1))", (n, c, h + 1, w + 2))

    def _pointwise(self) -> None:
        self._put(self.rng.choice(["F.relu(x)", "F.relu(x)", "F.silu(x)", "x * x * 0.3 + x", "F.softplus(x) - 0.5"]))

    def _centre(self) -> None:
        axes = self.rng.choice(["(0, 2, 3)", "(2, 3)", "(1, 2, 3)", "(0, 1)", "(0, 3)"])
        self._put(f"x - x.mean({axes}, keepdims=True) * 0.5")


KINDS = ("conv", "transposed", "pool", "batch_norm", "group_norm", "layer_norm", "slice", "join", "turn", "pad",
         "pointwise", "centre")  # fmt: skip


def results(code: Any, way: Mode) -> list[Array] | Exception:
    """The result and the gradients of the image and the parameters; or the error that ended it."""
    dtype = np.float64 if way is EXACT else np.float32
    leaves: list[lt.Tensor] = []
    found: list[Array] = []

    def made(shape: Sequence[int], seed: int, scale: float) -> lt.Tensor:
        x = np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)
        leaves.append(lt.tensor(x.astype(dtype), requires_grad=True))
        return leaves[-1]

    def learn(y: lt.Tensor) -> None:
        ct = np.random.default_rng(len(leaves)).standard_normal(y.shape, np.float32)
        (y * lt.asarray(ct.astype(dtype))).sum().backward()
        lt.sync()
        found.append(y.detach().numpy().copy())
        found.extend(np.zeros(x.shape, dtype) if x.grad is None else x.grad.numpy().copy() for x in leaves)

    def half(function: Any, x: lt.Tensor, w: lt.Tensor, *rest: Any) -> lt.Tensor:
        return function(x.astype(lt.bfloat16), w.astype(lt.bfloat16), *rest).astype(x.dtype)

    space = {
        "lt": lt, "half": half, "F": lt.nn.functional, "learn": learn,
        "image": lambda shape, seed: made(shape, seed, 1),
        "parameter": lambda shape, seed: made(shape, seed, 0.3),
    }  # fmt: skip
    with np.errstate(all="ignore"), mode(way):
        try:
            exec(code, space)
        except Exception as e:  # noqa: BLE001 - compared with what the others do
            return e
        finally:
            space.clear()
    return found


def check_network(lines: Sequence[str] | str) -> Failure | None:
    """Run a program in each way: what differs, or None. SyntaxError for what is no program."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    code, far = compile(text, "<program>", "exec"), ROUGH if HALF in text else FAR
    found = {way: results(code, way) for way in (AS_USED, *BIT_EXACT, ALONE, EXACT)}
    own = found[AS_USED]
    for way, got in found.items():
        if isinstance(got, Exception):
            if is_ours(got) and type(got).__name__ == "LazytInternalError":
                return Failure(f"networks, {way}: an error of lazyt's own", "", str(got))
            if type(got) is not type(own):
                return Failure(f"networks, {way}: raises", "", f"{way}: {got!r}; {AS_USED}: {own!r}")
        elif isinstance(own, Exception):
            return Failure(f"networks, {way}: raises", "", f"{AS_USED}: {own!r}")
        elif way is not AS_USED and (message := _differs(own, got, 0 if way in BIT_EXACT else far)):
            return Failure(f"networks, {way}: values", "", f"{way}, {message}")
    return None


def _differs(own: list[Array], other: list[Array], most: float) -> str:
    """Which of the results differs by more than a part of its scale (0: at all), and by how much; '' if none does."""
    largest = max((float(np.abs(b).max(initial=0)) for b in other[1:]), default=0.0)
    for i, (a, b) in enumerate(zip(own, other, strict=True)):
        name = "the result" if not i else f"gradient {i - 1}"
        if not most:
            if not same_bits(a, b):
                return f"{name} of shape {a.shape}: {np.count_nonzero(a != b)} of {a.size} elements differ"
            continue
        scale = max(float(np.abs(b).max(initial=0)), FLOOR * largest, 1e-3)
        far = float(np.abs(a - b).max(initial=0)) / scale
        if not far < most:
            return f"{name} of shape {a.shape}: {far:.2g} of its scale away"
    return ""


def written(seed: int) -> Network:
    """The writer of the program of a seed, done."""
    w = Network(seed)
    w.program()
    return w


class Networks(CheckedLines):
    """Convolutional networks and their gradients."""

    name = "networks"
    agrees = "itself in other ways, and with float64"
    start, fault = START, "a network whose values or gradients depend on how they are computed"
    checked, written = staticmethod(check_network), staticmethod(written)


register(Networks(), 113)
