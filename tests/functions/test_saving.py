"""Files: what is saved comes back as it was, nested, of any rank, under any name."""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import DTypeError

KINDS = ["w.npz", "w.safetensors", "w", "file"]


def again(tree: Any, kind: str, folder: Any) -> Any:
    if kind == "file":
        f = io.BytesIO()
        lt.save(tree, f)
        f.seek(0)
        return lt.load(f)
    if kind.endswith("safetensors"):
        pytest.importorskip("safetensors")
    lt.save(tree, folder / kind)
    return lt.load(folder / kind)


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b) or (isinstance(a, dict) and isinstance(b, dict))
    if isinstance(a, lt.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    elif isinstance(a, dict):
        assert [*map(repr, a)] == [*map(repr, b)]
        for k in a:
            same(a[k], b[k])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert repr(a) == repr(b)


x, y = lt.arange(6).reshape(2, 3), lt.asarray(2.5)
TREES = {
    "a tensor": x, "0-d": y, "empty": lt.ones((0, 3)), "bfloat16": lt.ones(3, dtype=lt.bfloat16), "bool": x > 2,
    "flat": {"w": x, "b": y}, "one name by two ways": {"a": {"b": x}, "a.b": y, "a.b~2": x + 1},
    "an empty name": {"": x}, "empty names": {"": {"": x, ".": y}},
    "numbered": {0: x, "0": y, None: 1, 1.5: 2, True: 3},
    "plain": {"i": 3, "big": 10**30, "f": 0.1, "nan": math.nan, "inf": -math.inf, "zero": -0.0, "s": "a.b", "n": None,
              "yes": True, "raw": b"\x00\xff", "c": 1 + 2j, "text": "\u00e4\n"},
    "lists": [x, [y, ()], (1, (x.T, None)), {}, {"k": [{"m": x}]}], "a number": 7, "nothing": None,
    "a view": {"t": x.T, "s": x[:, ::2], "i": x[0, 0]}, "the same twice": [x, x],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tree", TREES.values(), ids=list(TREES))
def test_what_was_saved_comes_back(tree, kind, tmp_path):
    same(tree, again(tree, kind, tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_with_buffers_of_rank_0_and_an_optimizer_loads(kind, tmp_path):
    def made() -> tuple[Any, Any]:
        m = lt.nn.Sequential(lt.nn.Linear(3, 4), lt.nn.BatchNorm1d(4))
        return m, lt.optim.Adam(m.parameters(), lr=0.1)

    m, o = made()
    m(lt.ones((5, 3))).sum().backward()
    o.step()
    found = again(OrderedDict(model=m.state_dict(), optimizer=o.state_dict(), epoch=3), kind, tmp_path)
    n, p = made()
    n.load_state_dict(found["model"])
    p.load_state_dict(found["optimizer"])
    same(m.state_dict(), n.state_dict())
    same(o.state_dict(), p.state_dict())
    assert found["epoch"] == 3


def test_files_of_others_are_flat_dicts(tmp_path):
    np.savez(tmp_path / "a.npz", **{"/w": np.ones(2), "/b.c": np.zeros(())})
    found = lt.load(tmp_path / "a.npz")
    assert found["w"].tolist() == [1.0, 1.0] and found["b.c"].shape == ()
    np.savez(tmp_path / "b.npz", **{"a": np.arange(3), "b": np.ones(2), "group/c": np.zeros(1)})  # names as they are
    assert {k: v.tolist() for k, v in lt.load(tmp_path / "b.npz").items()} == {
        "a": [0, 1, 2], "b": [1.0, 1.0], "group/c": [0.0]}  # fmt: skip
    np.savez(tmp_path / "c.npz", alone=np.ones(2))
    assert list(lt.load(tmp_path / "c.npz")) == ["alone"]
    library = pytest.importorskip("safetensors.numpy")
    library.save_file({"w": np.ones(2), "n": np.array(3)}, tmp_path / "a.safetensors")
    with open(tmp_path / "a.safetensors", "rb") as f:
        found = lt.load(f)
    assert found["w"].shape == (2,) and found["n"].shape == ()
    lt.save({"layer": {"w": lt.ones(2)}, "n": lt.asarray(3)}, tmp_path / "b.safetensors")
    assert {k: v.shape for k, v in library.load_file(tmp_path / "b.safetensors").items()} == {"layer.w": (2,), "n": ()}


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(DTypeError, match=r"tuples of them are saved, not 'set' \(at 'a.0'\)"):
        lt.save({"a": [{1}]}, tmp_path / "a")
    with pytest.raises(DTypeError, match=r"not 'Linear' \(at 'the top'\); save its state_dict\(\)$"):
        lt.save(lt.nn.Linear(1, 1), tmp_path / "a")
    with pytest.raises(DTypeError, match=r"keys are strings, numbers or None, not \(1, 2\)"):
        lt.save({(1, 2): x}, tmp_path / "a")
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(DTypeError, match="'list' at '0' is inside itself"):
        lt.save(inside, tmp_path / "a")
    assert not [*tmp_path.iterdir()]
    with pytest.raises(OSError, match="No such file"):
        lt.load(tmp_path / "none")


# --- files that are damaged, or that a stranger made --------------------------------------------------------------


def npz(entries: dict[str, bytes], **options: Any) -> io.BytesIO:
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", **options) as z:
        for name, raw in entries.items():
            z.writestr(name, raw)
    f.seek(0)
    return f


def npy(a: np.ndarray, old: bytes = b"", new: bytes = b"") -> bytes:
    """An array in NumPy's format, with a text of its header replaced by another in the place of it and of spaces."""
    f = io.BytesIO()
    np.save(f, a)
    old += b" " * (len(new) - len(old))
    assert old in f.getvalue()
    return f.getvalue().replace(old, new.ljust(len(old)))


def tree(text: str) -> dict[str, bytes]:
    return {"__lazyt__.npy": npy(np.frombuffer(text.encode(), np.uint8)), "/a.npy": npy(np.ones(2))}


BAD_TREES = {
    "no JSON": ("[", "damaged: JSONDecodeError"), "a number": ("1", "its tree is damaged, or of a newer lazyt: 1"),
    "nothing": ("null", "its tree is damaged"), "an empty list": ("[]", "its tree is damaged"),
    "an unknown kind": ('["new", 1]', r"of a newer lazyt: \['new', 1\] stands in it"),
    "a kind that is a list": ('[["list"], 1]', "its tree is damaged"),
    "a list of numbers": ('["list", 1]', "its tree is damaged"),
    "a tensor that is not there": ('["tensor", "b"]', r"\['tensor', 'b'\] stands in it"),
    "a tensor by a number": ('["tensor", 1]', "its tree is damaged"),
    "a tensor by a list": ('["tensor", ["a"]]', "its tree is damaged"),
    "a tensor without a name": ('["tensor"]', "its tree is damaged"),
    "a float that is none": ('["float", "x"]', "damaged"), "a float that is a number": ('["float", 1]', "damaged"),
    "a large float": ('["float", "0x1p99999"]', "damaged"), "bytes": ('["bytes", "\\u0100"]', "damaged"),
    "half a complex": ('["complex", ["float", "0x1p0"]]', "its tree is damaged"),
    "a complex of texts": ('["complex", ["is", "1"], ["is", "2"]]', "its tree is damaged"),
    "a dict of no pairs": ('["dict", 1]', "damaged"), "a pair of three": ('["dict", ["a", ["is", 1], 2]]', "damaged"),
    "a key that is a list": ('["dict", [["a"], ["is", 1]]]', "its tree is damaged"),
    "a value that is a list": ('["is", [1]]', "its tree is damaged"),
    "deep": ('["list", ' * 50_000 + "1" + "]" * 50_000, "its tree is nested 50000 deep"),
    "a large integer": ('["is", ' + "9" * 5000 + "]", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "match"), BAD_TREES.values(), ids=list(BAD_TREES))
def test_a_damaged_tree_says_so(text, match):
    with pytest.raises(lt.StateError, match=f"^load: this file: .*{match}"):
        lt.load(npz(tree(text)))


def test_a_recursion_of_the_caller_is_not_the_files():
    def down(n: int) -> Any:
        return down(n - 1) if n else lt.load(npz({"__lazyt__.npy": tree('["list", ["is", 1]]')["__lazyt__.npy"]}))

    def until_it_ends() -> None:
        for n in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
            down(n)

    with pytest.raises(RecursionError):
        until_it_ends()


ONES = npy(np.ones((3, 4), np.float32))
BAD_ARRAYS = {
    "no array": (b"abc", "'a.npy' is no array of numbers in NumPy's format"), "nothing": (b"", "is no array"),
    "a header that is cut": (ONES[:20], "is no array"), "elements that are cut": (ONES[:-1], r"no \(3, 4\) of float32"),
    "a header of 4 GB": (ONES[:6] + b"\2\0\xff\xff\xff\xff" + ONES[12:], "is no array"),
    "a large shape": (npy(np.ones((3, 4)), b"(3, 4), }", b"(3, 40000000), }"), r"holds no \(3, 40000000\)"),
    "a shape beyond 64 bits": (npy(np.ones(3), b"(3,), }", b"(0, %s), }" % (b"9" * 40)), "damaged"),
    "a negative shape": (npy(np.ones(3), b"(3,)", b"(-3)"), "is no array"),
    "objects": (npy(np.ones(3), b"<f8", b"|O8"), "is no array of numbers"),
    "texts": (npy(np.array(["a"])), "is no array of numbers"),
    "records": (npy(np.zeros(2, "f4,f4")), "is no array of numbers"),
    "times": (npy(np.zeros(2, "M8[s]")), "is no array of numbers"),
    "a long double": (npy(np.zeros(2, "f16")), "dtype float128, which no tensor has"),
    "three bytes": (npy(np.ones(3), b"<f8", b"<f3"), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "match"), BAD_ARRAYS.values(), ids=list(BAD_ARRAYS))
def test_a_damaged_array_says_so(raw, match):
    with pytest.raises(lt.StateError, match=match):
        lt.load(npz({"a.npy": raw}))


def test_arrays_of_others_are_read_in_any_order_of_bytes_and_axes():
    a = np.arange(6.0).reshape(2, 3)
    found = lt.load(npz({"f.npy": npy(np.asfortranarray(a)), "b.npy": npy(a.astype(">f4")), "0.npy": npy(np.array(3)),
                         "e.npy": npy(np.ones((0, 3)))}))  # fmt: skip
    assert found["f"].tolist() == found["b"].tolist() == a.tolist() and found["b"].dtype == lt.float32
    assert found["0"].item() == 3 and found["e"].shape == (0, 3)
    packed = io.BytesIO()
    np.savez_compressed(packed, a=np.zeros(10**6), b=a)
    packed.seek(0)
    assert lt.load(packed)["a"].shape == (10**6,)


def test_what_a_small_archive_may_hold_is_bounded():
    f = npz({"a.npy": np.random.default_rng(0).bytes(300_000)}, compression=zipfile.ZIP_DEFLATED).getvalue()
    at = f.index(b"PK\1\2") + 24
    with pytest.raises(lt.StateError, match=r"arrays of it would take more than 268435456 bytes, 64 times those of"):
        lt.load(io.BytesIO(f[:at] + (1 << 28 | 1).to_bytes(4, "little") + f[at + 4 :]))
    assert lt.load(npz(tree('["is", 1]'), compression=zipfile.ZIP_DEFLATED)) == 1
    with pytest.raises(lt.StateError, match=r"arrays of it would take more than 268435456 bytes"):
        lt.load(npz(tree("[" * 10**7), compression=zipfile.ZIP_DEFLATED))
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with pytest.raises(lt.StateError, match=r"'a\.npy' is encrypted, or compressed by another method than deflate"):
            lt.load(npz({"a.npy": ONES}, compression=method))
    # Entries that lie over each other, and sizes that are not there.
    f = npz({"a.npy": ONES}).getvalue()
    at = f.index(b"PK\1\2")
    for size in (1 << 30, (1 << 32) - 2):
        large = f[: at + 20] + size.to_bytes(4, "little") * 2 + f[at + 28 :]
        with pytest.raises(lt.StateError, match=r"it is damaged: entry 'a\.npy' has .* bytes, and the file has"):
            lt.load(io.BytesIO(large))


def test_a_damaged_archive_or_safetensors_file_names_the_file(tmp_path):
    content = npz(tree('["tensor", "a"]')).getvalue()
    for i, damaged in enumerate((content[:-30], content[:50], content.replace(b"\xf0?", b"\xf1?", 1), b"PK\3\4")):
        (tmp_path / f"{i}.npz").write_bytes(damaged)
        with pytest.raises(lt.StateError, match=f"^load: '.*{i}.npz': it is damaged: BadZipFile"):
            lt.load(tmp_path / f"{i}.npz")
    pytest.importorskip("safetensors")
    path = tmp_path / "a.safetensors"
    lt.save({"w": lt.ones(3)}, path)
    content = path.read_bytes()
    for damaged in (content[:-1], content + b"\0", content.replace(b"F32", b"F99"), content.replace(b"[3]", b"[9]"),
                    (1 << 40).to_bytes(8, "little") + content[8:]):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(lt.StateError, match=r"^load: '.*a\.safetensors': it is damaged: SafetensorError"):
            lt.load(path)
