"""Pickled weights: the same model as from safetensors, and nothing that is not a tensor is ever run."""

import collections
import io
import json
import os
import pickle
import shutil
import struct
import zipfile

import pytest
import torch
from commands import call, fails
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from tiny_pretrained import save_marian

from docmt import DocmtError
from docmt.checkpoint.weights import check_pickle, read_pickled_weights


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A transformers directory with a tiny Marian model in safetensors, and its state with tied tables."""
    return save_marian(tmp_path_factory.mktemp("marian"))


def pickled(marian, folder, save):
    """A copy of the directory with pickled weights instead."""
    path, state = marian
    copy = shutil.copytree(path, folder / "pickled")
    (copy / "model.safetensors").unlink()
    save(copy, state)
    return copy


def convert(path, output, *options):
    return call("convert", "huggingface", path, "-o", output, "--target-language", "fra", *options)


def save_shards(copy, state):
    names = sorted(state)
    files = {"pytorch_model-1.bin": names[::2], "pytorch_model-2.bin": names[1::2]}
    for file, part in files.items():
        torch.save({name: state[name] for name in part}, copy / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    (copy / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


SAVED = {
    "zip": lambda copy, state: torch.save(state, copy / "pytorch_model.bin"),
    "before PyTorch 1.6": lambda copy, state: torch.save(
        state, copy / "pytorch_model.bin", _use_new_zipfile_serialization=False
    ),
    "with position numbers": lambda copy, state: torch.save(
        collections.OrderedDict(state, **{"model.encoder.position_ids": torch.arange(9)}), copy / "pytorch_model.bin"
    ),
    "shards": save_shards,
}


@pytest.mark.parametrize("save", SAVED.values(), ids=SAVED)
def test_pickled_weights_make_the_same_model_as_safetensors(save, marian, tmp_path):
    copy = pickled(marian, tmp_path, save)
    assert convert(marian[0], tmp_path / "model").status == 0
    outcome = convert(copy, tmp_path / "ours", "--allow-pickle")
    assert outcome.status == 0, outcome.err
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "model"))
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in theirs)
    assert not list((tmp_path / "ours").glob("*.bin"))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("zipped", [True, False])
def test_half_precision_is_read(kind, zipped, tmp_path):
    tensors = {"a": torch.randn(3, 4).to(kind), "b": torch.randn(5).to(kind)}
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    read = read_pickled_weights(tmp_path / "x.bin")
    assert all(read[name].equal(tensors[name]) and read[name].dtype == kind for name in tensors)


def test_pickles_are_refused_unless_they_are_allowed(marian, tmp_path):
    for name, save in (("pytorch_model.bin", SAVED["zip"]), ("pytorch_model.bin.index.json", SAVED["shards"])):
        copy = pickled(marian, tmp_path, save)
        message = f"weights in {name}, which may hold code and is not opened. Add --allow-pickle"
        fails("convert", "huggingface", copy, "-o", tmp_path / "model", "--target-language", "fra", message=message)
        shutil.rmtree(copy)


class Attack:
    """An object whose loading writes a file."""

    def __init__(self, path, call=os.system):
        self.path, self.call = path, call

    def __reduce__(self):
        return self.call, (f"echo attacked > {self.path}",)


def save_protocol(number):
    return lambda value, file: torch.save(value, file, pickle_protocol=number)


def save_legacy(value, file):
    torch.save(value, file, _use_new_zipfile_serialization=False)


def save_two_pickles(value, file):
    torch.save({}, file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("other/data.pkl", pickle.dumps(value))


def save_compressed(value, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", pickle.dumps(value, 2))


def save_in_later_pickle(value, file):
    """In the list of keys, the last of the pickles of the format before PyTorch 1.6."""
    stream = io.BytesIO()
    torch.save({}, stream, _use_new_zipfile_serialization=False)
    data = stream.getvalue()
    assert data.endswith(pickle.dumps([], 2))
    file.write_bytes(data.removesuffix(pickle.dumps([], 2)) + pickle.dumps([value["x"]], 2))


ATTACKS = {
    "zip": (torch.save, r"may run code: it has 'posix.system', which weights do not need. It is not opened"),
    "protocol 4": (save_protocol(4), "has the pickle operation FRAME, as weights never have"),
    "before PyTorch 1.6": (save_legacy, "may run code: it has 'posix.system'"),
    "a later pickle": (save_in_later_pickle, "may run code: it has 'posix.system'"),
    "two pickles": (save_two_pickles, "has 2 pickles where weights have one"),
    "compressed": (save_compressed, "has a compressed or overlong pickle"),
    "a plain pickle": (lambda value, file: file.write_bytes(pickle.dumps(value)), "is not a file of PyTorch weights"),
}


@pytest.mark.parametrize(("save", "message"), ATTACKS.values(), ids=ATTACKS)
def test_code_in_a_pickle_is_refused_and_not_run(save, message, marian, tmp_path):
    written = tmp_path / "written"
    copy = pickled(
        marian, tmp_path, lambda copy, state: save({**state, "x": Attack(written)}, copy / "pytorch_model.bin")
    )
    fails(
        *("convert", "huggingface", copy, "-o", tmp_path / "model", "--target-language", "fra", "--allow-pickle"),
        message=message,
    )
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pickled"]


REFUSED = {
    "a model": (torch.nn.Linear(2, 2), "may run code: it has 'torch.nn.modules.linear.Linear'"),
    "an array": ({"a": torch.zeros(2).numpy()}, "may run code: it has"),
    "a parameter": ({"a": torch.nn.Parameter(torch.zeros(2))}, "it has 'torch._utils._rebuild_parameter'"),
    "a function of the loader": ({"a": Attack("x", getattr)}, r"may run code: it has '(__builtin__|builtins).getattr'"),
    "a number": ({"a": 1}, "holds int as 'a'. docmt reads tensors only"),
    "a dictionary in a dictionary": ({"model": {"a": torch.zeros(2)}}, "holds dict as 'model'"),
    "a list": ([torch.zeros(2)], "holds a list, not weights by name"),
    "a tensor that says that it is larger": (
        {"a": torch.zeros(1).expand(1000)},
        "has a with more elements than bytes are stored",
    ),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_what_holds_no_tensors_by_name_is_refused(value, message, zipped, tmp_path):
    torch.save(value, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DocmtError, match=message):
        read_pickled_weights(tmp_path / "x.bin")


@pytest.mark.parametrize("zipped", [True, False])
def test_damage_is_named_at_every_length(zipped, tmp_path):
    torch.save({"a": torch.randn(300)}, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    data = (tmp_path / "x.bin").read_bytes()
    for length in range(0, len(data) - 1, 37):
        (tmp_path / "cut.bin").write_bytes(data[:length])
        with pytest.raises(DocmtError, match=r"cut\.bin is"):
            read_pickled_weights(tmp_path / "cut.bin")


def test_a_zip_file_with_two_directories_is_refused(tmp_path):
    """Zip readers find the directory before its end record, or where this says. Here each finds another pickle."""

    def pack(pickled, base=0):
        """Return the entries and the directory of an archive; base: what its positions are counted from."""
        buffer = io.BytesIO(b"\0" * base)
        buffer.seek(base)
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in {"data.pkl": pickled, "version": b"3", "byteorder": b"little"}.items():
                archive.writestr(f"x/{name}", data)
        start = archive.start_dir
        return buffer.getvalue()[base:start], buffer.getvalue()[start:-22], buffer.getvalue()[-22:]

    harmless = pickle.dumps({}, protocol=2)
    harmful = pickle.dumps(Attack("x", os.getenv), protocol=2)
    one, directory, _ = pack(harmful)
    one += b"\0" * 1000  # so that no position of the other one is negative
    base = len(one) + len(directory)
    other, _, _ = pack(harmless, base)
    shift = len(directory) + len(other)
    _, other_directory, _ = pack(harmless, base - shift)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 3, 3, len(other_directory), len(one), 0)
    (tmp_path / "x.bin").write_bytes(one + directory + other + other_directory + end)
    with zipfile.ZipFile(tmp_path / "x.bin") as archive:
        assert archive.read("x/data.pkl") == harmless
    assert torch._C.PyTorchFileReader(str(tmp_path / "x.bin")).get_record("data.pkl") == harmful
    with pytest.raises(DocmtError, match="has a pickle beside the one that its directory names"):
        check_pickle(tmp_path / "x.bin")


def test_other_files_are_not_weights(tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "x.bin")
    with pytest.raises(DocmtError, match="is not a file of PyTorch weights"):
        check_pickle(tmp_path / "x.bin")
    with pytest.raises(DocmtError, match=r"cannot read .*none\.bin: there is no such file"):
        check_pickle(tmp_path / "none.bin")
