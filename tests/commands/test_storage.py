"""Models at URLs: every command reads them, they are written completely or not at all, and errors are sentences."""

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import onnx
import pytest
from concord.datasets.dataset import DATA
from concord.net.model_file import load_model, save_model
from concord.nnp.main import app
from concord.workflows import storage
from typer.testing import CliRunner

MLP, LSTM = (DATA / "models" / f"{name}.safetensors" for name in ("fashion-mlp-w4a4", "vowels-lstm-w8"))


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *_):
        """Write no log."""


@pytest.fixture(scope="module")
def server():
    """The URL of a folder with the shipped models."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=DATA / "models")) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.fixture
def memory():
    """An empty memory file system of fsspec."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    return files


def nnp(*words, code=0):
    """The output of a command, which must end with exit code `code`."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


def test_models_come_over_http(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = f"{server}/{LSTM.name}"
    options = ("--samples", 3)
    assert nnp("predict", url, *options) == nnp("predict", LSTM, *options)
    assert nnp("overflow", url, *options) == nnp("overflow", LSTM, *options)
    nnp("compile", url)
    assert [path.name for path in tmp_path.iterdir()] == ["vowels-lstm-w8.vision.safetensors"]
    nnp("export", url, tmp_path / "copy.safetensors")
    assert (tmp_path / "copy.safetensors").read_bytes() == LSTM.read_bytes()


def test_verify_knows_a_model_by_its_url(server, monkeypatch):
    def prepare(request, console):
        raise ValueError(f"{request.path.stem} of {request.location}: {load_model(request.path).name}")

    monkeypatch.setattr("concord.verification.whole.prepare", prepare)
    url = f"{server}/{LSTM.name}"
    assert nnp("verify", url, code=2) == f"nnp: vowels-lstm-w8 of {url}: vowels-lstm-w8\n"


def test_export_writes_to_urls(memory):
    nnp("export", MLP, "memory://models/mlp.safetensors", "--qonnx", "memory://models/mlp.onnx", "--batch", 5)
    assert memory.cat_file("/models/mlp.safetensors") == MLP.read_bytes()
    graph = onnx.load_from_string(memory.cat_file("/models/mlp.onnx")).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    assert nnp("predict", "memory://models/mlp.safetensors") == nnp("predict", MLP)


def test_training_writes_to_a_url(memory, monkeypatch):
    def train(out, **_):
        save_model(load_model(LSTM), out)
        return load_model(out)

    monkeypatch.setattr(pytest.importorskip("concord.train.runs.recurrent"), "train_recurrent", train)
    assert "memory://models/new: accuracy FP32" in nnp("train", "lstm", "--out", "memory://models/new")
    assert storage.read_model("memory://models/new").name == "vowels-lstm-w8"


def test_file_urls(tmp_path):
    url = f"file://{tmp_path}/model.safetensors"
    nnp("export", MLP, url)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == MLP.read_bytes()
    np.testing.assert_array_equal(storage.read_model(url).layers[0].weights, load_model(MLP).layers[0].weights)


@pytest.mark.parametrize(("location", "name"), [
    ("https://host/a/m.safetensors?key=/1", "m.safetensors"), ("s3://bucket/..", "file"), ("a/m.onnx", "m.onnx")])
def test_names_of_files(location, name):
    assert storage.file_name(location) == name


def test_local_paths_need_no_fsspec(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    nnp("export", MLP, tmp_path / "copy")
    assert nnp("predict", tmp_path / "copy") == nnp("predict", MLP)


def test_an_interrupted_file_does_not_appear(memory):
    def interrupted():
        with storage.written("memory://half") as path:
            path.write_bytes(b"half")
            raise RuntimeError(path)

    with pytest.raises(RuntimeError) as stopped:
        interrupted()
    assert not memory.exists("/half")
    assert not stopped.value.args[0].parent.exists()


def test_a_failing_upload_keeps_the_file_here(memory, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("concord.workflows.storage.shutil.copyfileobj", fail)
    with pytest.raises(ValueError, match="memory://new: the disk is full; .*/new holds what was to be there"), (
            storage.written("memory://new")) as path:
        path.write_bytes(b"whole")
    assert path.read_bytes() == b"whole"
    assert not memory.exists("/new")
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize(("words", "sentence"), [
    (("predict", "{server}/none.safetensors"), "{server}/none.safetensors: there is no such file or folder"),
    (("predict", "http://127.0.0.1:1/m"), "http://127.0.0.1:1/m: Cannot connect to host 127.0.0.1:1"),
    (("predict", "http://nowhere.invalid/m"), "http://nowhere.invalid/m: Cannot connect to host nowhere.invalid"),
    (("overflow", "memory://none"), "memory://none: there is no such file or folder"),
    (("compile", "s3://bucket/m"), "s3://bucket/m: this kind of URL needs one more package: Install s3fs"),
    (("verify", "carrier-pigeon://m"), "carrier-pigeon://m: Protocol not known: carrier-pigeon"),
    (("predict", "{server}/"), "{server}/: not a whole safetensors file"),
    (("export", MLP, "{server}/m"), "{server}/m: URLs of this kind cannot be written to; use s3:// or file://"),
    (("export", MLP, "s3://bucket/m"), "s3://bucket/m: this kind of URL needs one more package: Install s3fs"),
    (("export", MLP, "memory://models/"), "memory://models/: name the file, too"),
    (("export", MLP, DATA), f"{DATA}: it is a folder; name the file, too"),
    (("export", MLP, "file://{folder}/none/m"), "file://{folder}/none/m: there is no such file or folder"),
    (("export", MLP, "{folder}/none/m"), "{folder}/none/m: there is no folder {folder}/none; make it first"),
    (("export", MLP, "--qonnx", "{folder}/none/m"), "{folder}/none/m: there is no folder {folder}/none; make it first"),
    (("export", MLP), "nothing to export to: name a DESTINATION, --qonnx FILE, or both"),
    (("export", MLP, "--qonnx", "{folder}/m", "--batch", 0), "--batch 0: one sample at least"),
    (("export", LSTM, "{folder}/m", "--qonnx", "{folder}/q"), "layer 'lstm1' (LSTM, integer) has no QONNX form"),
    (("export", "none", "{folder}/m"), "none: there is no such model file"),
])
def test_bad_places_are_sentences(words, sentence, server, memory, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "folder").mkdir()
    names = {"server": server, "folder": tmp_path / "folder"}
    message = nnp(*(str(word).format(**names) for word in words), code=2)
    assert message.startswith("nnp: ")
    assert sentence.format(**names) in message
    assert not list((tmp_path / "folder").iterdir())
    assert not memory.find("/")


def test_export_without_onnx(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith("concord.compiler.qonnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = nnp("export", MLP, tmp_path / "m", "--qonnx", tmp_path / "q", code=2)
    assert "ONNX files need onnx, which is not installed: pip install 'concord-nnp[front]'" in message
    assert not list(tmp_path.iterdir())
