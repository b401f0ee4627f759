"""Kinds of files that users bring: how a damaged one is made, and which loader reads it."""

import csv
import gzip
import io
import random
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import tomli_w
from concord.campaigns.fuzz.damage import (
    array_changed,
    bytes_changed,
    graph_changed,
    program_changed,
    tensors_changed,
    text_changed,
    value_changed,
)
from concord.campaigns.makers import integer_graphs, networks
from concord.campaigns.makers.image_networks import ROOM
from concord.campaigns.makers.onnx_graphs import network, sequences, written
from concord.compiler.cascade import PartCompiler
from concord.compiler.network import compile_network
from concord.datasets.dataset import DATA
from concord.datasets.read import read_data
from concord.firmware import firmware_file
from concord.frontends.onnx.compare import difference
from concord.frontends.onnx.read import read
from concord.net import graph_file as float_file
from concord.net import model_file
from concord.net.layers.attention import BlockAttention
from concord.net.model import INPUT, Model
from concord.net.qdq.network import keep
from concord.spec.machine.config import Config, preset
from concord.spec.machine.machine_file import read_config
from concord.spec.numbers.formats import Format
from PIL import Image

OPERANDS = Format(bits=8)  #: The machine's, for networks that are quantised already.
X, Y = np.arange(24.0).reshape(8, 3), np.arange(8) % 2
DESCRIPTION = {
    "data": "a.npz", "name": "own", "task": "classification", "inputs": "x", "labels": {"train": "y"}, "test": 0.5,
    "seed": 1, "classes": ["a", "b"], "calibration": 2, "sequence": False, "lengths": "n", "delimiter": ";",
    "preprocessing": {"scale": "1/255", "mean": [1, 2, 3], "std": 2.0, "layout": "chw", "shape": [3], "size": [4, 4]}}
MACHINE = {"based_on": "vision", "weights": {"bits": 6, "symmetric": True, "rule": "ceil"}, "matrix_tiles": 512,
           "native_dim": 16, "mfu_lanes": 4, "multipliers": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        make: Writes a damaged file, or a folder of them, into a folder, and returns its path.
        load: Reads what is at a path, and uses what it has read.
    """

    make: Callable[[Path, random.Random], Path]
    load: Callable[[Path], object]


# -- networks --


@cache
def _graphs() -> tuple:
    return tuple(graph.model() for graph in (network("image"), network("dense"), sequences()))


@cache
def _integer_graphs() -> tuple:
    return (integer_graphs.dense(end=True), integer_graphs.images(), integer_graphs.qonnx(False),
            integer_graphs.clipped())


def _onnx_graph(graphs: Callable[[], tuple], folder: Path, rng: random.Random) -> Path:
    model = rng.choice(graphs())
    for _ in range(rng.choice((1, 1, 2, 3))):
        with suppress(ValueError, IndexError, TypeError):  # earlier damage leaves nothing to damage
            model = graph_changed(model, rng)
    return _written(folder / "a.onnx", model.SerializeToString())


def _onnx_bytes(folder: Path, rng: random.Random) -> Path:
    return _written(folder / "a.onnx", bytes_changed(rng.choice(_graphs()).SerializeToString(), rng))


def _import(path: Path):
    """Import, and compare with onnxruntime: a file that is accepted gives the right answers."""
    imported = read(path)
    try:
        found = difference(imported)
    except ValueError:  # onnxruntime does not run it
        return
    assert found < 1e-4, f"the import differs from onnxruntime by {found}"


def _keep(path: Path):
    """Import, compare, and keep the integers for a machine, which may refuse them."""
    _import(path)
    network = read(path).network
    try:
        keep(network, OPERANDS, OPERANDS)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _run(path: Path):
    """Read an imported network and run it on zeros."""
    network = float_file.load(path)
    if np.prod(network.shape, dtype=object) < 1e6:
        network.run(np.zeros((1, *[1] * network.sequence, *network.shape)))


@cache
def _float_files(folder: Path) -> tuple[bytes, ...]:
    path, found = folder / "whole.safetensors", []
    for graph in network("image"), sequences():
        float_file.save(read(written(folder, graph)).network, path)
        found.append(_taken(path))
    return tuple(found)


def _made() -> tuple[tuple[Model, Config], ...]:
    """Models and their machines: recurrent layers of integers, dense layers in block floating point, and attention."""
    rng, tiny, image = np.random.default_rng(0), preset("tiny"), (8, 1, 3)
    dram = replace(preset("tiny_vector"), dram_words=1000, dram_bus=8, **ROOM)  # makes tiles of vectors
    heads = BlockAttention(name="heads", queries=image, keys=image, values=image, heads=2, block=dram.native_dim,
                           weights_format=dram.weights, input_format=dram.activations)
    return ((networks.recurrent(rng, tiny, [3, 5], block=[False], outputs=4), tiny),
            (networks.mlp(rng, tiny, [13, 9, 5], block=True), tiny),
            (networks.model([heads], sources={"heads": (INPUT,) * 3}), dram))


@cache
def _models(folder: Path) -> tuple[bytes, ...]:
    path = folder / "whole.safetensors"
    found = [(DATA / "models" / f"{name}.safetensors").read_bytes() for name in ("vowels-lstm-w8", "fashion-resnet-w8")]
    for model, _ in _made():
        model_file.save_model(model, path)
        found.append(_taken(path))
    return tuple(found)


@cache
def _firmwares(folder: Path) -> tuple[bytes, ...]:
    path, found = folder / "whole.safetensors", []
    for model, machine in _made():
        firmware_file.save_firmware(compile_network(model, machine).firmware, path)
        found.append(_taken(path))
    return tuple(found)


@cache
def _cascades(folder: Path) -> bytes:
    path, tiny = folder / "whole.safetensors", preset("tiny")
    model = networks.recurrent(np.random.default_rng(0), tiny, [3, 5, 4], block=[False, False])
    firmware_file.save_cascade(PartCompiler(model, [tiny] * 2).compiled(["lstm0"]).cascade, path)
    return _taken(path)


def _tensors(whole: Callable[[Path], bytes | tuple[bytes, ...]], key: str, folder: Path, rng: random.Random) -> Path:
    contents = whole(folder.parent)
    content = contents if isinstance(contents, bytes) else rng.choice(contents)
    if rng.random() < 0.2:
        return _written(folder / "a.safetensors", bytes_changed(content, rng))
    path = _written(folder / "a.safetensors", content)
    tensors_changed(path, key, rng)
    return path


def _program(folder: Path, rng: random.Random) -> Path:
    path = _written(folder / "a.safetensors", rng.choice(_firmwares(folder.parent)))
    program_changed(path, firmware_file.KIND.key, rng)
    return path


# -- data and machines --


def _npz(folder: Path, rng: random.Random) -> Path:
    """An archive with damaged bytes outside or inside, or whole with arrays that do not fit each other."""
    stream, damaged = io.BytesIO(), rng.randrange(3)
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, array in ("x", X), ("y", Y), ("lengths", Y + 1):
            content = _npy_content(array_changed(array, rng) if damaged == 0 and rng.random() < 0.5 else array)
            archive.writestr(f"{name}.npy", bytes_changed(content, rng) if damaged == 1 else content)
    return _written(folder / "a.npz", bytes_changed(stream.getvalue(), rng) if damaged == 2 else stream.getvalue())


def _npy(folder: Path, rng: random.Random) -> Path:
    content = _npy_content(array_changed(X, rng))
    if rng.random() < 0.5:
        # The header is a Python literal.
        content = content[:10] + text_changed(content[10:128].decode(), rng).encode()[:118].ljust(118) + content[128:]
    return _written(folder / "a.npy", bytes_changed(content, rng) if rng.random() < 0.5 else content)


def _csv(folder: Path, rng: random.Random) -> Path:
    stream = io.StringIO()
    rows = [["a", "b", rng.choice(("label", "c"))], *([i, rng.random(), rng.choice("xyz")] for i in range(5))]
    csv.writer(stream, delimiter=rng.choice(",;\t")).writerows(rows)
    return _text(folder / "a.csv", stream.getvalue(), rng)


def _toml_of_data(folder: Path, rng: random.Random) -> Path:
    record = {key: value for key, value in DESCRIPTION.items() if key == "data" or rng.random() < 0.4}
    np.savez(folder / "a.npz", x=X, y=Y, n=Y + 1)
    _csv(folder, rng)
    if rng.random() < 0.2:
        record["data"] = "a.csv"
    return _toml(folder / "own.toml", record, rng)


def _toml_of_machine(folder: Path, rng: random.Random) -> Path:
    return _toml(folder / "own.toml", {key: value for key, value in MACHINE.items() if rng.random() < 0.7}, rng)


def _toml(path: Path, record: dict, rng: random.Random) -> Path:
    if record and rng.random() < 0.6:
        with suppress(TypeError):  # TOML has no null
            return _written(path, tomli_w.dumps(value_changed(record, rng)).encode())
    return _text(path, tomli_w.dumps(record) + "\n", rng)


def _images(folder: Path, rng: random.Random) -> Path:
    for name in "ant", "bee":
        (folder / name).mkdir()
        stream, kind = io.BytesIO(), rng.choice(("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP"))
        pixels = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
        pixels.convert(rng.choice(("RGB", "L"))).save(stream, kind)
        _written(folder / name / "0.png", bytes_changed(stream.getvalue(), rng))
    return folder


def _utterances(folder: Path, rng: random.Random) -> Path:
    lines = ("1,2:3,4:1", "2:3:2", "1,2,3:4,5,6:3")
    _text(folder / "JapaneseVowels_TEST.ts", "@data\n" + "\n".join(rng.choices(lines, k=4)) + "\n", rng)
    return folder


def _idx(folder: Path, rng: random.Random) -> Path:
    pixels, labels = struct.pack(">4I", 0x803, 2, 2, 2) + bytes(8), struct.pack(">2I", 0x801, 2) + bytes([1, 0])
    for name, content in ("images-idx3", pixels), ("labels-idx1", labels):
        content = bytes_changed(content, rng) if rng.random() < 0.5 else content
        packed = gzip.compress(content, mtime=0)
        _written(folder / f"t10k-{name}-ubyte.gz", bytes_changed(packed, rng) if rng.random() < 0.3 else packed)
    return folder


def _text(path: Path, text: str, rng: random.Random) -> Path:
    content = text_changed(text, rng).encode(errors="replace")
    return _written(path, bytes_changed(content, rng) if rng.random() < 0.2 else content)


def _npy_content(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _taken(path: Path) -> bytes:
    content = path.read_bytes()
    path.unlink()
    return content


def _data(path: Path):
    read_data(str(path))


#: The kinds by name, as `--kind` takes them.
KINDS = {
    "onnx-graph": Kind(make=partial(_onnx_graph, _graphs), load=_import),
    "onnx-integers": Kind(make=partial(_onnx_graph, _integer_graphs), load=_keep),
    "onnx-bytes": Kind(make=_onnx_bytes, load=_import),
    "imported": Kind(make=partial(_tensors, _float_files, float_file.KIND.key), load=_run),
    "model": Kind(make=partial(_tensors, _models, model_file.KIND.key), load=model_file.load_model),
    "firmware": Kind(make=partial(_tensors, _firmwares, firmware_file.KIND.key), load=firmware_file.load_firmware),
    "program": Kind(make=_program, load=firmware_file.load_firmware),
    "cascade": Kind(make=partial(_tensors, _cascades, firmware_file.SEVERAL.key), load=firmware_file.load_cascade),
    "npz": Kind(make=_npz, load=_data),
    "npy": Kind(make=_npy, load=_data),
    "csv": Kind(make=_csv, load=_data),
    "data-toml": Kind(make=_toml_of_data, load=_data),
    "machine-toml": Kind(make=_toml_of_machine, load=read_config),
    "images": Kind(make=_images, load=_data),
    "ts": Kind(make=_utterances, load=_data),
    "idx": Kind(make=_idx, load=_data),
}
