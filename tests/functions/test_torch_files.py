"""`lt.load` of PyTorch's files: what is in them, and that nothing in them is run."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
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


@pytest.mark.parametrize("name", ["dtypes", "views", "checkpoint", "parameters", "legacy_dtypes", "legacy_views"])
def test_values_are_pytorchs(name):
    found = flat(lt.load(PT / f"{name}.pt"))
    with np.load(PT / f"{name.removeprefix('legacy_')}.npz") as want:
        assert list(found) == want.files
        for k, x in found.items():
            half = x.dtype == lt.bfloat16
            assert half or x.dtype == want[k].dtype
            np.testing.assert_array_equal(
                x.detach().numpy().astype(np.float32) if half else x.detach().numpy(), want[k]
            )


def test_floats_of_8_bits_are_pytorchs():
    found = flat(lt.load(PT / "stored_dtypes.pt"))
    with np.load(PT / "stored_dtypes.npz") as want:
        for k, x in found.items():
            assert x.dtype == (lt.float8_e4m3fn if k == "strided" else getattr(lt, k))
            np.testing.assert_array_equal(x.numpy().astype(np.float32), want[k])


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


# --- files that use what an unpickler does ------------------------------------------------------------------------


def tensor_of(storage: bytes = STORAGE) -> bytes:
    return view(0, 1, 1).replace(STORAGE, storage)[:-1]


def interface(address: int) -> bytes:
    """A dict as an object of NumPy's array interface has it."""
    data = b"\x8a\x08" + struct.pack("<q", address) + b"\x89\x86"
    return (b"}" + text("shape") + b"K\x04\x85s" + text("typestr") + text("|u1") + b"s" + text("version") + b"K\x03s"
            + text("data") + data + b"s")  # fmt: skip


def state(name: str, value: bytes) -> bytes:
    return b"}" + text(name) + value + b"sb"


STATES = {
    "of a tensor": tensor_of() + state("array", tensor_of() + state("__array_interface__", interface(4096))),
    "of a tensor, by slots": tensor_of() + b"N}" + text("array") + b"K\x01s\x86b",
    "of a storage": STORAGE + state("budget", b"K\x01"),
    "of a number": b"K\x01" + state("a", b"K\x01"),
    "of a list": b"]" + state("a", b"K\x01"),
    "of a dict": b"}" + state("__class__", b"K\x01"),
    "of a set": b"\x8f" + state("a", b"K\x01"),
    "of a parameter": glob("torch._utils", "_rebuild_parameter") + b"(" + tensor_of() + b"\x88}tR"
    + state("array", b"N"),
}  # fmt: skip


@pytest.mark.parametrize("program", STATES.values(), ids=list(STATES))
def test_nothing_that_a_file_makes_has_attributes(program):
    with pytest.raises(lt.StateError, match=r"^load: this file: it gives (a \w+|1|\[\]) a state, which it has not$"):
        lt.load(file(b"\x80\x02" + program + b"."))


def test_the_state_of_an_ordered_dict_is_dropped():
    made = glob("collections", "OrderedDict") + b")R" + text("a") + b"K\x01s"
    found = lt.load(file(b"\x80\x02" + made + state("_metadata", b"K\x02") + b"."))
    assert type(found) is OrderedDict and found == {"a": 1} and not hasattr(found, "_metadata")


def test_a_memo_number_allocates_nothing():
    assert lt.load(file(b"\x80\x02Nr\x00\x00\x00\x40.")) is None
    assert lt.load(file(b"\x80\x02N" + b"p" + b"9" * 1000 + b"\n.")) is None


LARGE = {
    "a copy of a list in a set": b"(" + b"(" + b"".join(b"J" + struct.pack("<i", n) for n in range(5000)) + b"lq\x00"
    + (glob("builtins", "set") + b"h\x00\x85R") * 600 + b"l.",
    "a copy of a text as bytes": text("x" * 100_000) + b"q\x000(" + (
        glob("_codecs", "encode") + b"h\x00" + text("latin1") + b"\x86R") * 4000 + b"l.",
    "empty sets": b"(" + b"\x8f" * 200_000 + b"l.",
    "tensors that are not there twice": b"(" + glob("torch._utils", "_rebuild_tensor") + b"q\x00("
    + STORAGE + b"K\x00K\x01\x85K\x01\x85tq\x01" + b"R" + b"h\x00h\x01R" * 100_000 + b"l.",
}  # fmt: skip


@pytest.mark.parametrize("program", LARGE.values(), ids=list(LARGE))
def test_objects_of_a_small_file_are_bounded(program):
    with pytest.raises(lt.StateError, match=r"the objects in it would take more than \d+ bytes"):
        lt.load(file(b"\x80\x02" + program))


def doubled(last: bytes) -> bytes:
    """60 tuples, each with the one before twice, and something that looks at the last."""
    return b"K\x01" + b"".join(b"q" + bytes([k]) + b"h" + bytes([k]) + b"\x86" for k in range(60)) + last


SHARED = {
    "a key": (b"}" + doubled(b"N") + b"s.", "a key that is no number and no text: a tuple"),
    "an element of a set": (b"\x8f(" + doubled(b"\x90") + b".", "a key that is no number and no text: a tuple"),
    "a deep key": (b"}N" + b"\x85" * 100_000 + b"Ns.", "a key that is no number and no text: a tuple"),
    "a persistent id": (doubled(b"Q."), r"refers to a tuple, which is no storage"),
    "sizes": (glob("torch", "Size") + doubled(b"\x85R."), r"sizes are integers from 0 on, not a tuple"),
    "a function": (doubled(b")R."), r"calls a tuple with \(\)"),
    "a list as a key": (b"}]Ns.", "no number and no text: "),
    "a name that is no text": (b"K\x01K\x02\x93.", r"asks for 1\.2"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "match"), SHARED.values(), ids=list(SHARED))
def test_errors_about_shared_tuples_are_short(program, match):
    with pytest.raises(lt.StateError, match=match) as e:
        lt.load(file(b"\x80\x02" + program))
    assert len(str(e.value)) < 300


OTHER_OPCODES = {
    "EXT1": b"\x82\x01.", "EXT4": b"\x84\x01\x00\x00\x00.", "NEXT_BUFFER": b"\x97.", "READONLY_BUFFER": b"N\x98.",
    "NEWOBJ_EX": b")}\x92.",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_OPCODES)
def test_other_opcodes_are_named(name):
    with pytest.raises(lt.StateError, match=f"the opcode {name} stands in it, which PyTorch does not write"):
        lt.load(file(b"\x80\x05" + OTHER_OPCODES[name]))


def test_containers_that_hold_themselves_are_read():
    looped = lt.load(file(b"\x80\x02]q\x00(K\x01h\x00\x85h\x00e."))
    assert looped[0] == 1 and looped[1][0] is looped and looped[2] is looped
    inside = lt.load(file(b"\x80\x02}q\x00" + text("a") + b"]h\x00as" + text("b") + tensor_of() + b"s."))
    assert inside["a"][0] is inside and isinstance(inside["a"][0]["b"], lt.Tensor)


def test_tensors_go_to_the_device_that_is_asked_for():
    program = b"\x80\x02" + tensor_of() + b"q\x00" + doubled(b".").replace(b"K\x01", b"h\x00", 1)
    found = lt.load(file(program), map_location="cpu")
    for _ in range(60):
        found = found[0]
    assert found.tolist() == [0.0]
    with pytest.raises(lt.DeviceError):
        lt.load(file(program), map_location="nowhere")


def test_a_bool_is_0_or_1():
    stored = STORAGE.replace(b"FloatStorage", b"BoolStorage")
    found = lt.load(file(b"\x80\x02" + view(0, 4, 1).replace(STORAGE, stored), **{"data/0": b"\x00\x01\x02\xff"}))
    assert found.sum().item() == 3 and found.numpy().view(np.uint8).tolist() == [0, 1, 1, 1]


# --- files from before version 1.6 --------------------------------------------------------------------------------

LEGACY = PT / "legacy.pt"


def legacy(program: bytes, keys: bytes, rest: bytes) -> io.BytesIO:
    start = b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    return io.BytesIO(start + b"\x80\x02" + program + b"\x80\x02" + keys + rest)


def part(pid: bytes) -> bytes:
    return b"(" + text("storage") + glob("torch", "FloatStorage") + text("k") + text("cpu") + b"K\x04" + pid + b"tQ"


ELEMENTS = struct.pack("<q4f", 4, 1, 2, 3, 4)
KEYS = b"(" + text("k") + b"l."


def test_files_from_before_version_1_6_are_read():
    assert lt.load(LEGACY)["w"].tolist() == [1.0, 1.0]
    with open(LEGACY, "rb") as f:
        assert lt.load(f, weights_only=False)["w"].dtype == lt.float32
    whole = lt.load(legacy(view(1, 2, 2).replace(STORAGE, part(b"N")), KEYS, ELEMENTS))
    assert whole.tolist() == [2.0, 4.0]
    inner = part(b"(" + text("v") + b"K\x01K\x02t")
    assert lt.load(legacy(view(0, 2, 1).replace(STORAGE, inner), KEYS, ELEMENTS)).tolist() == [2.0, 3.0]
    pair = b"(" + view(0, 1, 1).replace(STORAGE, part(b"N"))[:-1] * 2 + b"t."
    assert [x.tolist() for x in lt.load(legacy(pair, KEYS, ELEMENTS))] == [[1.0], [1.0]]


VIEW = view(0, 4, 1).replace(STORAGE, part(b"N"))
DAMAGED_LEGACY = {
    "cut": (VIEW, KEYS, ELEMENTS[:-1], "storage k has 16 bytes, and 15 are left"),
    "a size that is too large": (VIEW, KEYS, struct.pack("<q", 1 << 60), "and 0 are left"),
    "a negative size": (VIEW, KEYS, struct.pack("<q", -4) + bytes(16), "storage k has -16 bytes"),
    "no size": (VIEW, KEYS, b"", "it ends before storage k"),
    "no keys": (VIEW, b"N.", ELEMENTS, "has a storage None, to which nothing refers"),
    "another key": (VIEW, b"(" + text("x") + b"l.", ELEMENTS, "has a storage 'x', to which nothing refers"),
    "a key twice": (VIEW, b"(" + text("k") * 2 + b"l.", ELEMENTS, "has a storage 'k', to which nothing refers"),
    "a storage that is missing": (VIEW, b"].", b"", "has no storage k"),
    "a tensor in the keys": (VIEW, VIEW, ELEMENTS, "which is no storage"),
    "a part beyond the storage": (view(0, 2, 1).replace(STORAGE, part(b"(" + text("v") + b"K\x03K\x04t")), KEYS,
                                  ELEMENTS, "ends at element 1 of a storage of 1"),
    "a call": (glob("os", "system") + b"(" + text("true") + b"tR.", KEYS, ELEMENTS, "asks for os.system"),
    "a text of 2 GB": (b"X\xff\xff\xff\x7fabc", b"", b"", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "keys", "rest", "match"), DAMAGED_LEGACY.values(), ids=list(DAMAGED_LEGACY))
def test_damaged_files_from_before_version_1_6_say_so(program, keys, rest, match, tmp_path):
    f = legacy(program, keys, rest)
    with pytest.raises(lt.StateError, match=match):
        lt.load(f)
    (tmp_path / "a.pt").write_bytes(f.getvalue())
    with pytest.raises(lt.StateError, match=f"^load: '.*a.pt': .*{match}"):
        lt.load(tmp_path / "a.pt")


def test_tar_archives_are_refused():
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode="w") as t:
        t.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    f.seek(0)
    with pytest.raises(lt.StateError, match=r"not supported: tar archives, as PyTorch before version 0\.1\.10"):
        lt.load(f)
