"""Files: what is saved comes back as it was, nested, of any rank, under any name."""

from __future__ import annotations

import io
import math
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
