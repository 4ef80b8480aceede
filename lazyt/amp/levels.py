"""The optimization levels of NVIDIA's apex: what "O0" to "O3" mean, and which options fit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import AutocastError
from lazyt.ir import dtypes

if TYPE_CHECKING:
    import numpy as np

# As apex says it.
_UNEXPECTED = (
    "Unexpected optimization level {}. Options are 'O0', 'O1', 'O2', 'O3'.  Note that in `O0`, `O1`, etc., the prefix "
    "O is the letter O, not the number zero."
)


class Options(NamedTuple):
    """What `initialize` does to a model and its optimizers."""

    opt_level: str
    cast_model_type: np.dtype | None  # the dtype of the model's parameters; None: as they are
    patch_functions: np.dtype | None  # the lower dtype of an autocast region around the forward pass; None: no region
    keep_batchnorm_fp32: bool
    master_weights: bool  # whether optimizers update float32 copies of parameters that are cast
    loss_scale: float | None  # None: dynamic


_LEVELS = {
    "O0": Options("O0", dtypes.float32, None, False, False, 1.0),
    "O1": Options("O1", None, dtypes.float16, False, False, None),
    "O2": Options("O2", dtypes.float16, None, True, True, None),
    "O3": Options("O3", dtypes.float16, None, False, False, 1.0),
}


def _flag(name: str, value: Any) -> bool:
    known = {True: True, False: False, "True": True, "False": False}
    if not isinstance(value, bool | str) or value not in known:
        raise AutocastError(f"initialize: {name} is True or False, got {value!r}")
    return known[value]


def _scale(value: Any) -> float | None:
    if value == "dynamic":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise AutocastError(f"initialize: loss_scale is a positive number or 'dynamic', got {value!r}")
    return float(value)


def _narrow(name: str, value: Any) -> np.dtype:
    d = dtypes.as_dtype(value)
    if d not in (*dtypes.HALVES, dtypes.float32):
        raise AutocastError(f"initialize: {name} is float16, bfloat16 or float32, got {d}")
    return d


def options_of(
    opt_level: Any, cast_model_type: Any, patch_functions: Any, keep_batchnorm_fp32: Any, master_weights: Any,
    loss_scale: Any,
) -> Options:  # fmt: skip
    """The level's options, and in their place those that are not None; AutocastError for such as do not fit it."""
    if opt_level not in _LEVELS:
        raise AutocastError(_UNEXPECTED.format(opt_level))
    known = _LEVELS[opt_level]
    if opt_level == "O1":
        for name, value, why in (
            ("cast_model_type", cast_model_type, "the weights themselves stay float32"),
            ("keep_batchnorm_fp32", keep_batchnorm_fp32, "no batch normalization is cast"),
            ("master_weights", master_weights, "the weights themselves stay float32"),
        ):
            if value is not None and not (name == "cast_model_type" and dtypes.as_dtype(value) == dtypes.float32):
                raise AutocastError(f"initialize: opt_level 'O1' takes no {name}, because {why}; got {value!r}")
    elif patch_functions is not None and patch_functions is not False:
        raise AutocastError(
            f"initialize: patch_torch_functions is for opt_level 'O1', not {opt_level!r}; got {patch_functions!r}"
        )
    cast, patch = known.cast_model_type, known.patch_functions
    if opt_level != "O1" and cast_model_type is not None:
        cast = _narrow("cast_model_type", cast_model_type)
    if opt_level == "O1" and patch_functions not in (None, True):
        if patch_functions is False:
            raise AutocastError("initialize: opt_level 'O1' is patch_torch_functions, got False; 'O0' does nothing")
        patch = _narrow("patch_torch_functions", patch_functions)
    keep = (
        known.keep_batchnorm_fp32 if keep_batchnorm_fp32 is None else _flag("keep_batchnorm_fp32", keep_batchnorm_fp32)
    )
    masters = known.master_weights if master_weights is None else _flag("master_weights", master_weights)
    if (keep or masters) and cast == dtypes.float32:
        raise AutocastError(
            f"initialize: keep_batchnorm_fp32 and master_weights are for a model that is cast, and opt_level "
            f"{opt_level!r} keeps it in float32"
        )
    scale = known.loss_scale if loss_scale is None else _scale(loss_scale)
    return Options(opt_level, cast, patch, keep, masters, scale)
