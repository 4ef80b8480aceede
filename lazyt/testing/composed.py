"""Calls of NumPy functions that are not in the operation table: lazyt composes them from others.

`{F1}` stands for an operand: the letter says which kinds (`KINDS`), the digit how many axes at least, a second one how
many at most. `{Y}` broadcasts with the first operand, `{P}` has its shape, `{A}` is one of its axes, `{K}` a number.
"""

from __future__ import annotations

KINDS = {"X": "fiu", "F": "f", "I": "iu", "B": "b", "C": "fiuc", "Q": "fiub", "Z": "c", "G": "fc"}

# In float64 from the start: the rounded products of halves may leave a matrix whose determinant is their errors.
_GRAM = "xp.astype({F22}, 'float64') @ xp.astype({F22}, 'float64').T"

COMPOSED: tuple[str, ...] = (
    # other names
    "absolute({C0})", "amax({X1}, axis={A})", "amin({X1}, axis={A})", "arccos({F0})", "arccosh({F0})", "arcsin({F0})",
    "arcsinh({F0})", "arctan({F0})", "arctan2({F0}, {P})", "arctanh({F0})", "concatenate([{X1}, {P}], axis={A})",
    "conjugate({C0})", "fabs({F0})", "mod({X0}, {Y})", "invert({I0})", "bitwise_not({I0})", "left_shift({I0}, {K})",
    "right_shift({I0}, {K})", "power({F0}, {K})", "rint({F0})", "true_divide({X0}, {Y})", "cumsum({X1}, axis={A})",
    "cumprod({X1}, axis={A})", "deg2rad({F0})", "rad2deg({F0})", "divmod({X0}, 3)", "around({F0}, {K})", "fix({F0})",
    # comparisons
    "allclose({F0}, {Y})", "isclose({F0}, {Y})", "isclose({F0}, {Y}, equal_nan=True)", "array_equal({X0}, {P})",
    "array_equiv({X0}, {P})", "isneginf({F0})", "isposinf({F0})", "iscomplex({C0})", "isreal({C0})",
    # single elements
    "bitwise_count({I0})", "cbrt({F0})", "float_power({F0}, {K})", "frexp({F0})", "gcd({I0}, {Y})", "lcm({I0}, {K})",
    "i0({F0})", "ldexp({F0}, {K})", "logaddexp2({F0}, {P})", "modf({F0})", "sinc({F0})", "spacing({F0})",
    "heaviside({F0}, 0.5)", "nan_to_num({F0})", "angle({C0})", "unwrap({F1}, axis={A})", "copysign({F0}, {Y})",
    # shapes
    "append({X1}, {P}, axis={A})", "atleast_1d({Q0})", "atleast_2d({Q0})", "atleast_3d({Q0})",
    "column_stack([{X1}, {P}])", "hstack([{X1}, {P}])", "vstack([{X1}, {P}])", "dstack([{X1}, {P}])",
    "block([{X1}, {P}])", "diagflat({X12})", "fliplr({X2})", "flipud({X1})", "rot90({X2}, {K})",
    "resize({X1}, (3, {K}))", "array_split({X1}, 2, axis={A})", "hsplit({X1}, [1])", "vsplit({X2}, [1])",
    "dsplit({X3}, [1])", "delete({X1}, 0, axis={A})", "insert({X1}, 0, 3, axis={A})", "broadcast_arrays({X0}, {P})",
    "copy({Q0})", "meshgrid({X11}, {P})", "full_like({X0}, 3)", "ones_like({Q0})", "zeros_like({Q0})",
    "matvec({F22}, {F22}[0])", "vecmat({F22}[:, 0], {F22})", "trim_zeros({X11})",
    # orders and searches
    "median({F1}, axis={A})", "median({X1})", "percentile({F1}, 30.0, axis={A})", "quantile({F1}, 0.6, axis={A})",
    "lexsort(({X1}, {P}), axis={A})", "sort_complex({X11})", "argwhere({Q1})", "flatnonzero({Q1})", "nonzero({Q1})",
    "unique({X0})", "sort(xp.unique_values({X0}))", "unique_counts({X0})", "unique_inverse({X0})", "unique_all({I0})",
    "digitize({F0}, np.array([-1.0, 0.0, 2.5]))", "union1d({I1}, {P})", "intersect1d({I1}, {P})",
    "setdiff1d({I1}, {P})", "setxor1d({I1}, {P})", "bincount(xp.ravel({I1}) % 7)",
    "compress([True, False], {X1}, axis={A})", "extract({X1} > 0, {P})", "partition({X1}, 0, axis={A})[..., :1]",
    "take({X1}, [0, -1], axis={A})", "choose({B0}.astype('int64'), [2, 3])",
    # statistics
    "average({F1}, axis={A})", "average({F1}, weights=xp.abs({P}) + 1)", "cov({F22})", "corrcoef({F22})",
    "nanargmax({F1}, axis={A})", "nanargmin({F1}, axis={A})", "nancumsum({F1}, axis={A})", "nancumprod({F1}, axis={A})",
    "nanmedian({F1}, axis={A})", "nanpercentile({F1}, 40.0, axis={A})", "nanquantile({F1}, 0.3, axis={A})",
    "nanprod({F1}, axis={A})", "nanstd({F1}, axis={A})", "nanvar({F1}, axis={A})", "histogram({F1}, 4, (-3.0, 3.0))",
    "histogram2d({F11}, {P}, 3, [(-2.0, 2.0), (-3.0, 3.0)])", "histogram_bin_edges({I1}, 3, (0, 6))",
    # signals and polynomials
    "convolve({F11}, np.array([1.0, -2.0]))", "correlate({F11}, np.array([1.0, -2.0]), 'same')", "diff({X1}, axis={A})",
    "ediff1d({X1})", "gradient({F11})", "gradient({F2}, axis={A})",
    "interp({F0}, np.array([-2.0, 0.0, 3.0]), np.array([1.0, 0.0, 4.0]))", "trapezoid({F1}, axis={A})",
    "polyadd({F11}, {P})", "polyder({F11})", "polyint({F11})", "polymul(xp.abs({F11}) + 1, np.array([1.0, 2.0]))",
    "polysub({F11}, {P})", "polyval([1.0, -2.0, 0.5], {F0})", "vander({F11}, 3)", "vdot({F11}, {P})",
    "sliding_window_view({X11}, 1)",
    # choices
    "select([{F0} > 1, {P} > 0], [{P}, {P} * 2], -1)", "piecewise({F0}, [{P} > 0], [3, 5])", "packbits({B1}, axis={A})",
    "unpackbits(xp.astype({B1}, 'uint8'), axis={A})", "unravel_index({I0} % 6, (2, 3))",
    "ravel_multi_index(({I0} % 2, {P} % 2), (2, 3))", "ix_({I11}, {P})", "rollaxis({X1}, {A})",
    "moveaxis({X1}, {A}, 0)", "swapaxes({X1}, {A}, 0)", "transpose({Q0})", "ravel({Q0})",
    "apply_over_axes(xp.sum, {F1}, [{A}])", "tril_indices_from({X22})", "triu_indices_from({X22})",
    # transforms and matrices: what does not depend on a choice of sign
    "fft.fftshift({C1})", "fft.ifftshift({C1})", "fft.fft({F1}, axis={A})", "fft.ifft({C1}, axis={A})",
    "fft.rfft({F1}, axis={A})", "fft.fftn({F1})", "linalg.svdvals({F22})", "linalg.norm({G1}, axis={A})",
    "linalg.matrix_norm({F22})", "linalg.eigvalsh({F22} @ {F22}.T)", "abs(xp.linalg.qr({F22})[1])",
    "linalg.svd({F22})[1]", "linalg.pinv({F22})", "linalg.matrix_rank({F22})",
    f"linalg.cond({_GRAM} + 9 * xp.eye({{F22}}.shape[0]))",
    f"linalg.inv({_GRAM} + 9 * xp.eye({{F22}}.shape[0]))",
    f"linalg.slogdet({_GRAM} + xp.eye({{F22}}.shape[0]))",
    "linalg.matrix_power({F22} @ {F22}.T, 2)",
    # creation
    "array({Q0})", "linspace(0, 1, {K} + 3)", "logspace(0, 1, {K} + 2)", "geomspace(1, 8, {K} + 2)", "identity({K})",
    "hanning({K} + 1)", "hamming({K} + 1)", "bartlett({K} + 1)", "blackman({K} + 1)", "kaiser({K} + 2, 2.0)",
    "tril_indices({K})", "triu_indices({K})", "diag_indices({K})",
)  # fmt: skip
