"""`lt.load` of PyTorch's files: what is in them, and that nothing in them is run."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import NotSupportedError

PT = Path(__file__).parents[1] / "golden" / "pt"


def flat(tree: Any, name: str = "") -> dict[str, Any]:
    if isinstance(tree, lt.Tensor):
        return {name: tree}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {k: v for key, x in parts for k, v in flat(x, f"{name}/{key}" if name else str(key)).items()}


@pytest.mark.parametrize("name", ["dtypes", "views", "checkpoint", "parameters"])
def test_values_are_pytorchs(name):
    found = flat(lt.load(PT / f"{name}.pt"))
    with np.load(PT / f"{name}.npz") as want:
        assert list(found) == want.files
        for k, x in found.items():
            half = x.dtype == lt.bfloat16
            assert half or x.dtype == want[k].dtype
            np.testing.assert_array_equal(
                x.detach().numpy().astype(np.float32) if half else x.detach().numpy(), want[k]
            )


def test_what_is_around_tensors_is_as_it_was():
    with open(PT / "checkpoint.pt", "rb") as f:
        found = lt.load(f, map_location="cpu", weights_only=True)
    assert isinstance(found["model"], OrderedDict) and found["epoch"] == 3 and found["name"] == "a.b"
    assert (found["best"], found["done"], found["none"], found["raw"]) == (0.5, False, None, b"\x00\xff")
    assert found["shape"] == (2, 3) and found["dtype"] == lt.float32 and found["big"] == 10**30
    assert type(found["list"]) is list and type(found["list"][1]) is tuple and found["list"][1][1] == "t"
    p = lt.load(PT / "parameters.pt")
    assert p["w"].requires_grad and not p["tied"][0].requires_grad and p["tied"][0] is p["tied"][1]


def test_a_checkpoint_of_pytorchs_goes_on_here():
    found = lt.load(PT / "checkpoint.pt")
    model = lt.nn.Sequential(lt.nn.Linear(3, 4), lt.nn.BatchNorm1d(4))
    model.load_state_dict(found["model"])
    optimizer = lt.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(found["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.01
    model(lt.ones((5, 3))).sum().backward()
    optimizer.step()
    assert optimizer.state[model[0].weight]["step"] == 2


@pytest.mark.parametrize("weights_only", [False, None])
@pytest.mark.parametrize("name", ["checkpoint.pt", "dtypes.pt", "parameters.pt"])
def test_what_can_be_read_without_running_it_always_is(name, weights_only):
    assert repr(lt.load(PT / name, weights_only=weights_only)) == repr(lt.load(PT / name))
    found = io.BytesIO()
    lt.save({"model": {"w": lt.ones(2)}, "epochs": [1, 2.5]}, found)
    found.seek(0)
    assert lt.load(found, weights_only=weights_only)["epochs"] == [1, 2.5]


def test_formats_that_are_refused():
    with pytest.raises(ValueError, match=r"asks for torch.nn.modules.linear.Linear, which is neither a tensor"):
        lt.load(PT / "module.pt")
    with pytest.raises(ValueError, match=r"asks for torch.nn.modules.linear.Linear, which is neither a tensor"):
        lt.load(PT / "module.pt", weights_only=False)
    with pytest.raises(
        ValueError, match=r"neither an .npz, nor a .safetensors, nor a .pt file: it begins with b'nothing'"
    ):
        lt.load(io.BytesIO(b"nothing"))


# --- files that a stranger made -----------------------------------------------------------------------------------

RAN: list[str] = []


def boom(*args: Any) -> None:
    RAN.append("boom")


def file(program: bytes, **entries: bytes) -> io.BytesIO:
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr("a/data.pkl", program)
        for name, raw in {"data/0": bytes(16), **entries}.items():
            z.writestr(f"a/{name}", raw)
    f.seek(0)
    return f


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def glob(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


HERE = __name__
STORAGE = b"(" + text("storage") + glob("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x04tQ"


def view(offset: int, size: int, stride: int) -> bytes:
    ints = b"".join(b"(" + b"J" + struct.pack("<i", n) + b"t" for n in (size, stride))
    hooks = b"\x89" + glob("collections", "OrderedDict") + b"(tR"
    start = b"J" + struct.pack("<i", offset)
    return glob("torch._utils", "_rebuild_tensor_v2") + b"(" + STORAGE + start + ints + hooks + b"tR."


def test_the_programs_of_these_tests_are_read():
    assert lt.load(file(b"\x80\x02" + view(1, 3, 1))).tolist() == [0, 0, 0]


PROGRAMS = {
    "a call": glob("os", "system") + b"(" + text("true") + b"tR.",
    "a call by inst": b"(" + text("x") + b"i" + f"{HERE}\nboom\n.".encode(),
    "a call by obj": b"(" + glob(HERE, "boom") + text("x") + b"o.",
    "a class": glob("builtins", "object") + b")\x81.",
    "a name of protocol 4": b"\x80\x04" + text("builtins") + text("eval") + b"\x93" + b"(" + text("boom()") + b"tR.",
    "a name with dots": b"\x80\x04" + text("torch") + text("_utils.os.system") + b"\x93.",
    "getattr": glob("builtins", "getattr") + b"(" + glob("torch", "FloatStorage") + text("__class__") + b"tR.",
    "a name that is only looked up": b"(" + glob(HERE, "boom") + b"l.",
    "torch.load": glob("torch", "load") + b"(tR.",
    "a copyreg function": glob("copyreg", "_reconstructor") + b"(tR.",
    "numpy": glob("numpy.core.multiarray", "_reconstruct") + b"(tR.",
}  # fmt: skip


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_nothing_is_called_and_the_name_is_said(program, weights_only):
    with pytest.raises(pickle.UnpicklingError, match=r"asks for [\w.]+, which is neither a tensor nor a container"):
        lt.load(file(program), weights_only=weights_only)
    assert not RAN


DAMAGED = {
    "a state of a function": (glob("torch._utils", "_rebuild_tensor_v2") + b"}b.", "a function a state"),
    "a state of a dtype": (glob("torch", "float32") + b"}b.", "a dtype a state"),
    "a function as a value": (b"(" + glob("torch._utils", "_rebuild_tensor") + b"l.", "which is no value"),
    "a class as a value": (glob("collections", "OrderedDict") + b".", "which is no value"),
    "another reference": (b"(" + text("module") + text("x") + b"tQ.", "which is no storage"),
    "a reference that is text": (b"Pabc\n.", "which is no storage"),
    "a tensor of text": (glob("torch._utils", "_rebuild_tensor") + b"(" + text("s") + b"K\x00))tR.",
                         "made of a storage"),
    "no program": (b"", "damaged"),
    "a program that ends": (b"(", "damaged"),
    "too few arguments": (glob("torch._utils", "_rebuild_tensor_v2") + b")R.", "damaged"),
    "beyond the storage": (view(2, 3, 1), r"sizes \(3,\) ends at element 4 of a storage of 4"),
    "far beyond it": (view(0, 2, 2**31 - 1), "ends at element"),
    "before it": (view(-1, 2, 1), "offsets are integers from 0 on"),
    "backwards": (view(3, 2, -1), "strides are integers from 0 on"),
    "a size that is negative": (view(0, -2, 1), "sizes are integers from 0 on"),
    "a tensor as a key": (b"}" + view(0, 1, 1)[:-1] + b"K\x01s.", "a key that is no number"),
    "deep": (b"(" * 5000 + b"t" * 5000 + b".", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_files_say_so(program, match):
    with pytest.raises(ValueError, match=match):
        lt.load(file(program))


def test_damaged_archives_say_so():
    missing, packed = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(missing, "w") as z:
        z.writestr("a/data.pkl", view(0, 1, 1))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a/data.pkl", b"N.")
    for f, match in (missing, "no entry 'a/data/0'"), (packed, "is compressed, which PyTorch's never are"):
        f.seek(0)
        with pytest.raises(ValueError, match=match):
            lt.load(f)
    with pytest.raises(ValueError, match="no whole number of float32"):
        lt.load(file(view(0, 1, 1), **{"data/0": b"abc"}))
    with pytest.raises(NotSupportedError, match="TorchScript files"):
        lt.load(file(b"N.", **{"constants.pkl": b""}))
    big = lt.load(file(view(0, 2, 1), byteorder=b"big", **{"data/0": struct.pack(">4f", 1, 2, 3, 4)}))
    assert big.tolist() == [1, 2]


def repeated(times: int, metadata: bytes = b"") -> bytes:
    """A view that has one element of the storage so often, in two dimensions."""
    ints = b"(" + b"J" + struct.pack("<i", times) + b"J" + struct.pack("<i", times) + b"t" + b"(K\x00K\x00t"
    hooks = b"\x89" + glob("collections", "OrderedDict") + b"(tR" + metadata
    return glob("torch._utils", "_rebuild_tensor_v2") + b"(" + STORAGE + b"K\x00" + ints + hooks + b"tR"


NEGATIVE = b"}" + text("neg") + b"\x88s"
TOO_MUCH = {
    "an expanded view": repeated(1 << 30) + b".",
    "one that would be copied while it is read": repeated(1 << 15, NEGATIVE) + b".",
    "many views of one storage": b"(" + repeated(4096) * 5 + b"l.",
}


@pytest.mark.parametrize("program", TOO_MUCH.values(), ids=list(TOO_MUCH))
def test_a_small_file_gets_no_unbounded_memory(program):
    with pytest.raises(
        ValueError, match=r"would take more than 268435456 bytes, 16 times those of the file .*x[.]clone"
    ):
        lt.load(file(program))


def test_expanded_views_are_read_within_the_bound():
    found = lt.load(file(repeated(100) + b".", **{"data/0": struct.pack("<4f", 3, 0, 0, 0)}))
    assert found.shape == (100, 100) and found.sum().item() == 30000.0


def test_tuples_of_the_same_tuples_take_no_longer_than_the_file():
    # Each takes the one before twice: 2 ** 60 leaves, in 400 bytes.
    doubled = b"".join(b"q" + bytes([k]) + b"h" + bytes([k]) + b"\x86" for k in range(60))
    found = lt.load(file(b"\x80\x02K\x01" + doubled + b"."))
    for _ in range(60):
        assert found[0] is found[1] or found[0] == 1
        found = found[0]
    assert found == 1
