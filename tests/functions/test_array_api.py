"""The Array API standard 2025.12: its surface whole, and what its public test suite taught us."""

from __future__ import annotations

import inspect
import math
import operator
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import AxisError, DeviceError, DTypeError, ScalarRangeError, ShapeError

# The standard's names and signatures, a section a category.
SURFACE = (Path(__file__).parent / "array_api_surface.txt").read_text()
SECTIONS = {
    title.split(":")[0]: [line.strip() for line in body.splitlines() if line.strip()]
    for title, body in re.findall(r"^\[(.*?)\]\n(.*?)(?=^\[|\Z)", SURFACE, re.M | re.S)
}
FUNCTIONS = [
    line.split("#")[0].strip()
    for title in SECTIONS
    if title.endswith("_functions") or title in ("fft", "linalg")
    for line in SECTIONS[title]
]
METHODS = [line.split("#")[0].strip() for line in SECTIONS["array methods"]]
INFO = [line.split("#")[0].strip() for line in SECTIONS["info"] if not line.startswith("__")]


def resolve(name: str, start: object = lt) -> object:
    for part in name.split("."):
        start = getattr(start, part)
    return start


def takes(f: object, signature: str, bound: bool) -> None:
    """Whether f takes what the standard's signature says: positions, keywords and their defaults."""
    name, arguments = re.fullmatch(r"([\w.]+)\((.*)\)", signature).groups()
    wanted = inspect.signature(eval(f"lambda {_without_self(arguments) if bound else arguments}: 0"))
    found = inspect.signature(f)
    for p in wanted.parameters.values():
        if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and p.name in found.parameters):
            assert p.name in found.parameters, f"{name}: no argument {p.name}"
            default = found.parameters[p.name].default
            assert p.default is p.empty or default == p.default, f"{name}: {p.name}={default}, not {p.default}"
        elif p.kind is p.VAR_POSITIONAL:
            assert any(q.kind is q.VAR_POSITIONAL for q in found.parameters.values()), f"{name}: no *{p.name}"
    positional = [p for p in wanted.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found.bind_partial(*positional)


def _without_self(arguments: str) -> str:
    rest = re.sub(r"^self(, )?", "", arguments)
    return re.sub(r"^/(, )?", "", rest)


def test_the_list_is_whole():
    assert len(FUNCTIONS) == 172 and len(METHODS) == 34 and len(INFO) == 5, (len(FUNCTIONS), len(METHODS), len(INFO))


@pytest.mark.parametrize("signature", FUNCTIONS)
def test_functions(signature):
    takes(resolve(signature.split("(")[0]), signature, bound=False)


@pytest.mark.parametrize("signature", METHODS)
def test_methods(signature):
    takes(getattr(lt.ones(2), signature.split("(")[0]), signature, bound=True)


@pytest.mark.parametrize("signature", INFO)
def test_inspection_functions(signature):
    takes(resolve(signature.split("(")[0], lt.__array_namespace_info__()), signature, bound=False)


def test_attributes_operators_constants_dtypes():
    x = lt.ones((2, 2))
    names = [
        *SECTIONS["array attributes"],
        *re.findall(r"__\w+__", " ".join(SECTIONS["array reflected and in-place operators"])),
    ]
    assert not [n for n in names if not hasattr(x, n)]
    assert {n: getattr(lt, n) for n in ("e", "inf", "pi", "newaxis")} == {
        "e": math.e, "inf": math.inf, "pi": math.pi, "newaxis": None,
    }  # fmt: skip
    assert math.isnan(lt.nan)
    for name in SECTIONS["dtypes"][0].split():
        assert lt.zeros(1, dtype=getattr(lt, name)).dtype == getattr(lt, name) == name


def test_namespace():
    x = lt.ones(2)
    assert x.__array_namespace__() is lt is x.__array_namespace__(api_version="2023.12")
    with pytest.raises(ValueError, match=r"not '2019\.12'"):
        x.__array_namespace__(api_version="2019.12")
    assert lt.__array_api_version__ == "2025.12"


def test_inspection():
    info = lt.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert info.default_dtypes(device=info.default_device()) == {
        "real floating": lt.float32, "complex floating": lt.complex64, "integral": lt.int64, "indexing": lt.int64,
    }  # fmt: skip
    assert set(info.dtypes()) == set(SECTIONS["dtypes"][0].split())
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    with pytest.raises(DTypeError, match="kind"):
        info.dtypes(kind=lt.int8)
    with pytest.raises(DTypeError, match="unknown kind 'real'"):
        info.dtypes(kind="real")
    with pytest.raises(DeviceError, match="no such device"):
        info.dtypes(device="tpu")


# --- DLPack ----------------------------------------------------------------------------------------------------------


class Recorded:
    """An object whose `__dlpack__` is a tensor's, with what it was asked."""

    def __init__(self, x: lt.Tensor, **fixed: object) -> None:
        self.x, self.fixed = x, fixed

    def __dlpack__(self, **asked: object) -> object:
        return self.x.__dlpack__(**{**asked, **self.fixed})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 0)])
@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex128"])
def test_dlpack_to_numpy(dtype, copy, version):
    x = (lt.asarray([[0, 1], [2, 3]]) + 0).astype(dtype).T
    lt.sync()
    a = np.from_dlpack(Recorded(x, copy=copy, max_version=version))
    np.testing.assert_array_equal(a, x.numpy(), strict=True)
    # NumPy takes an old capsule, which has no flag, as read-only.
    assert a.flags.writeable == (copy is not False and version in ((1, 0), (2, 0)))
    if a.flags.writeable:
        before = x.tolist()
        a[...] = 1
        assert x.tolist() == before
    elif copy is False:
        assert np.shares_memory(a, x.numpy())


def test_dlpack_refusals():
    x = lt.ones(2)
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(DeviceError, match="no streams"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"not supported: device \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(DTypeError, match="__dlpack__ is required, not 'list'"):
        lt.from_dlpack([1])
    with pytest.raises(DeviceError, match="no such device"):
        lt.from_dlpack(x, device="tpu")
    with pytest.raises(BufferError, match="C-contiguous"):
        lt.from_dlpack(np.ones((2, 3)).T, copy=False)


@pytest.mark.parametrize(
    "asked", [{}, {"max_version": (1, 0)}, {"copy": False}, {"copy": False, "max_version": (1, 1)}]
)
def test_dlpack_has_bfloat16(asked):
    x = lt.asarray([1.5, -2.0, 3.25]).astype(lt.bfloat16)
    y = lt.from_dlpack(Recorded(x, **asked))
    assert y.dtype == lt.bfloat16 and y.tolist() == [1.5, -2.0, 3.25]
    torch = pytest.importorskip("torch")
    assert torch.from_dlpack(Recorded(x, **asked)).dtype == torch.bfloat16
    z = lt.from_dlpack(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16).T)
    assert z.dtype == lt.bfloat16 and z.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_the_memory_as_a_buffer():
    x = lt.arange(4) * 2
    seen = x.__buffer__(0)
    assert seen.tolist() == [0, 2, 4, 6] and seen.readonly
    assert not x.is_pending
    x[0] = 9
    assert seen.tolist() == [0, 2, 4, 6] and x.tolist() == [9, 2, 4, 6]
    with pytest.raises(BufferError, match="not supported: writable memory"):
        x.__buffer__(1)
    with pytest.raises(BufferError, match="not supported: bfloat16"):
        x.astype(lt.bfloat16).__buffer__(0)
    for convert in (int, float, complex, operator.index):
        with pytest.raises(lt.NotOneElement, match=r"only tensors of one element convert .*, not shape \(4,\)") as e:
            convert(x)
        assert isinstance(e.value, TypeError), "as NumPy's"
    if sys.version_info >= (3, 12):
        assert bytes(lt.asarray([1, 2], dtype=lt.uint8)) == b"\x01\x02"
        assert memoryview(lt.ones((2, 3))).shape == (2, 3)
    else:  # where Python does not ask for it, NumPy's interface serves
        assert np.asarray(lt.asarray([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize(
    "array",
    [np.array([object()]), np.array(["a"]), np.array([b"x"]), np.array(["2020-01-01"], "M8[D]"), np.array([1], "m8[s]"),
     np.zeros(2, [("a", int)]), ["a"], [None]],
)  # fmt: skip
def test_what_is_no_number_is_refused_by_name(array):
    name = re.escape(str(np.asarray(array).dtype))
    with pytest.raises(DTypeError, match=f"NumPy dtype {name}"):
        lt.asarray(array)


@pytest.mark.parametrize(
    "make",
    [lambda: lt.ones((1 << 31, 1 << 31, 4)), lambda: lt.zeros(1 << 61), lambda: lt.arange(1 << 63),
     lambda: lt.eye(1 << 32), lambda: lt.broadcast_to(lt.ones(1), (1 << 40, 1 << 30)),
     lambda: lt.ones((1 << 20, 1)) * lt.ones((1, 1 << 44)),
     lambda: lt.tile(lt.ones(1 << 20), (1 << 50,))],
)  # fmt: skip
def test_a_size_that_no_address_reaches_is_refused_when_recorded(make):
    with lt.no_sync(), pytest.raises(ShapeError, match=r"is \d{19,} bytes, more than 9223372036854775807 at most"):
        make()


def test_widths_of_a_pad_that_no_memory_holds_are_refused_when_recorded():
    with lt.no_sync(), pytest.raises(lt.OutOfMemory, match=r"pad: extents or widths \(4611686018427387904, "):
        lt.pad(lt.ones(3), (1 << 62, 1 << 62))


def test_sizes_up_to_there_may_be_recorded():
    assert lt.ones((1 << 30, 1 << 30)).shape == (1 << 30, 1 << 30)
    assert lt.zeros((0, 1 << 62)).shape == (0, 1 << 62)


def test_from_dlpack():
    a = np.arange(4.0)
    shared, copied = lt.from_dlpack(a, copy=False), lt.from_dlpack(a)
    a[0] = 9.0
    assert shared.tolist() == [9.0, 1.0, 2.0, 3.0] and copied.tolist() == [0.0, 1.0, 2.0, 3.0]
    shared[0] = 5.0
    assert a[0] == 9.0 and shared.tolist()[0] == 5.0
    assert lt.from_dlpack(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    x = lt.ones(2)
    assert lt.from_dlpack(x) is x and lt.from_dlpack(x, copy=False, device="cpu") is x
    y = lt.from_dlpack(x, copy=True)
    y[0] = 7.0
    assert x.tolist() == [1.0, 1.0]


class Elsewhere(Recorded):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_from_dlpack_of_another_device():
    x = Elsewhere(lt.asarray([1.0, 2.0]))
    with pytest.raises(DeviceError, match=r"memory of DLPack device \(2, 0\)"):
        lt.from_dlpack(x)
    # Asked for the CPU, its owner copies there.
    assert lt.from_dlpack(x, device="cpu").tolist() == [1.0, 2.0]


def test_asarray_copy():
    a = np.arange(4.0)
    with pytest.raises(ValueError, match="copy=False"):
        lt.asarray(a, dtype=lt.float32, copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        lt.asarray(a[::2], copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        lt.asarray([1.0], copy=False)
    assert lt.asarray(a, dtype=lt.float64, copy=False).tolist() == a.tolist()


# --- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_finfo(dtype):
    info = lt.finfo(lt.zeros(1, dtype=dtype))
    assert [type(v) for v in (info.bits, info.eps, info.max, info.min, info.smallest_normal)] == [int] + [float] * 4
    assert info == lt.finfo(dtype) and info.min == -info.max and info.tiny == info.smallest_normal
    if dtype != "bfloat16":
        want = np.finfo(dtype)
        assert (info.dtype, info.bits, info.eps, info.max) == (want.dtype, want.bits, want.eps, want.max)
        assert info.smallest_subnormal == want.smallest_subnormal
    with pytest.raises(DTypeError, match="finfo: a floating dtype"):
        lt.finfo(lt.int8)


def test_dtype_functions():
    assert lt.iinfo(lt.zeros(1, dtype=lt.uint16)).max == 65535 and type(lt.iinfo(lt.int8).min) is int
    assert lt.isdtype(lt.int8, ("bool", lt.int8)) and not lt.isdtype(lt.bool, "numeric")
    assert lt.result_type(lt.zeros(1, dtype=lt.int8), lt.uint8, 1) == lt.int16
    assert lt.result_type(lt.float32, 1j) == lt.complex64
    assert lt.can_cast(lt.zeros(1, dtype=lt.uint8), lt.int16) and not lt.can_cast(lt.complex64, lt.float64)


def test_complex_scalars_again_and_again():
    x = lt.asarray([1.0, 2.0])
    for z in (1j, 2 - 1j, 3j):
        np.testing.assert_array_equal((x * z + z).numpy(), x.numpy() * z + z)
        np.testing.assert_array_equal((z - x).numpy(), z - x.numpy())


# --- shapes, indices and errors, known when recorded -----------------------------------------------------------------


def test_shapes_as_lists_and_numpy_integers():
    x = lt.reshape(lt.arange(6), [np.int64(2), 3])
    with lt.no_sync():
        assert lt.zeros([2, np.int8(3)]).shape == lt.broadcast_to(lt.ones(3), [2, 3]).shape == (2, 3)
        assert lt.broadcast_shapes((2, 1), (3,)) == (2, 3)
        assert x[np.int32(1), np.uint8(0)].shape == () and x[np.array([1, 0])].shape == (2, 3)
        assert lt.permute_dims(x, [1, 0]).shape == (3, 2)
    assert x[np.int32(1), np.array(2)].item() == 5


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: lt.expand_dims(x, axis=3), AxisError),
        (lambda x: lt.sum(x, axis=-3), AxisError),
        (lambda x: lt.matmul(x, x), ShapeError),
        (lambda x: lt.repeat(x, lt.asarray([1, 2, 3])), ShapeError),
        (lambda x: lt.squeeze(x, axis=0), ShapeError),
        (lambda x: lt.reshape(x, (5,)), ShapeError),
        (lambda x: lt.concat([x, lt.ones((2, 4))], axis=0), ShapeError),
        (lambda x: x[2], IndexError),
        (lambda x: x[lt.zeros((3,), dtype=lt.bool)], IndexError),
        (lambda x: lt.bitwise_and(x, x), TypeError),
        (lambda x: lt.linalg.pinv(x, rtol=lt.ones(2)), ShapeError),
    ],
)
def test_errors_are_raised_when_recorded(call, error):
    x = lt.ones((2, 3)) + 1
    with lt.no_sync(), pytest.raises(error):
        call(x)
    assert x.is_pending


def test_an_axis_out_of_range_is_both_errors():
    assert issubclass(AxisError, ValueError) and issubclass(AxisError, IndexError)


@pytest.mark.parametrize(
    ("cause", "call"),
    [
        ("nonzero", lt.nonzero),
        ("unique_all", lt.unique_all),
        ("unique_values", lt.unique_values),
        ("boolean index", lambda x: x[x > 1]),
        ("__index__", lambda x: range(3)[x[0]]),
        ("complex()", lambda x: complex(x[0])),
    ],
)
def test_shapes_that_depend_on_data_sync_with_their_cause(cause, call):
    x = lt.asarray([1, 2, 0]) + 0
    call(x)
    assert lt.last_sync().cause == cause


@pytest.mark.parametrize(
    ("shape", "mask"),
    [((1,), (0,)), ((1, 3), (0,)), ((2, 3), (0, 3)), ((2, 3), (2, 0)), ((0, 3), (0, 3)), ((0, 3), (0,))],
)
def test_a_mask_of_extent_zero_names_nothing(shape, mask):
    a = np.ones(shape)
    x, key = lt.asarray(a), np.zeros(mask, bool)
    for k in (key, lt.asarray(key), lt.zeros(mask, dtype=lt.bool)):
        assert x[k].shape == a[key].shape == x[k].numpy().shape
        x[k] = 5.0
        np.testing.assert_array_equal(x.numpy(), a)


# --- one by one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, -2, 2**63 - 1, 2**63, -(2**70)])
def test_diagonals_far_outside(k):
    a = np.arange(6).reshape(2, 3)
    near = max(min(k, 9), -9)
    np.testing.assert_array_equal(lt.eye(2, 3, k=k).numpy(), np.eye(2, 3, near))
    np.testing.assert_array_equal(lt.tril(lt.asarray(a), k=k).numpy(), np.tril(a, near))
    np.testing.assert_array_equal(lt.triu(lt.asarray(a), k=k).numpy(), np.triu(a, near))


def test_a_tolerance_for_each_matrix():
    a = np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 0.3])])
    rtol = np.array([0.2, 0.2])
    assert lt.linalg.matrix_rank(lt.asarray(a), rtol=lt.asarray(rtol)).tolist() == [1, 2]
    assert lt.linalg.matrix_rank(lt.asarray(a), rtol=0.05).tolist() == [2, 2]
    found = lt.linalg.pinv(lt.asarray(a), rtol=lt.asarray(rtol)).numpy()
    np.testing.assert_allclose(found, np.linalg.pinv(a, rcond=rtol))


def test_a_new_tolerance_plans_nothing():
    a = lt.asarray(np.diag([1.0, 0.5, 0.1]))
    for rtol in (0.2, 0.3, 0.05):
        lt.linalg.matrix_rank(a, rtol=rtol).item()
    with lt.expect(compiles=0):
        assert lt.linalg.matrix_rank(a, rtol=0.7).item() == 1
    assert not lt.last_sync().plans


@pytest.mark.parametrize(
    "program",
    [
        lambda x, xp: [0.1, 0.2] - x,
        lambda x, xp: (0.1, 0.2) * x,
        lambda x, xp: x == [0.1, 0.2],
        lambda x, xp: xp.add(x, [0.1, 0.2]),
        lambda x, xp: xp.isin(x, [0.1]),
        lambda x, xp: xp.concatenate([x, [0.1]]),
        lambda x, xp: xp.vstack([x, [0.1, 0.3]]),
        lambda x, xp: xp.stack([[0.1, 0.3], x]),
        lambda x, xp: xp.interp(x, [0.1, 0.3], [0.7, 0.9]),
        lambda x, xp: xp.average(x, weights=[0.1, 0.3]),
        lambda x, xp: xp.polyval([0.1, 0.7], x),
        lambda x, xp: xp.histogram(x, bins=[0.1, 0.15, 0.2])[1],
        lambda x, xp: xp.diff(x, prepend=[0.1]),
        lambda x, xp: xp.asarray([[x[0], 0.1], [0.2, 0.3]]),
        lambda x, xp: xp.where(x > 0.15, x, [0.1, 0.1]),
    ],
)
def test_lists_of_floats_are_as_wide_as_what_they_give_with_an_array(program):
    a = np.array([0.1, 0.2])
    np.testing.assert_allclose(program(lt.asarray(a), lt).numpy(), program(a, np), rtol=1e-14)
    assert lt.add(lt.ones(2), [0.1, 0.2]).dtype == lt.float32


@pytest.mark.parametrize(("obj", "dtype"), [(300, lt.uint8), ([1, -1], lt.uint16), (2**70, None), ([1, 2**64], None)])
def test_integers_that_a_dtype_does_not_hold_do_not_wrap(obj, dtype):
    with pytest.raises(ScalarRangeError, match="asarray: "):
        lt.asarray(obj, dtype=dtype)


def test_other_byte_orders_are_read():
    a = np.array([1.5, -2.0], ">f4")
    x = lt.asarray(a)
    assert x.dtype == lt.float32 == lt.zeros(1, dtype=">f4").dtype and x.tolist() == [1.5, -2.0]
    assert lt.asarray([1, 2], dtype=">i2").tolist() == [1, 2]
