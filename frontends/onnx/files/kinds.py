"""Files of other tools by their endings, and how each becomes an ONNX file."""

from pathlib import Path

_TF = "python -m tf2onnx.convert"
_TORCH = "write an ONNX file in PyTorch: torch.onnx.export(network.eval(), (example,), 'network.onnx', dynamo=True)"
#: What to do with a file that is no ONNX file.
ADVICE = {
    ".pt2": "a program of torch.export, which PyTorch reads with pickle, so it is not opened here; write an ONNX file "
            "in PyTorch: torch.onnx.export(torch.export.load('{name}'), (), 'network.onnx', dynamo=True)",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"),
                    f"a file of PyTorch, which may hold pickled code, so it is not opened here; {_TORCH}"),
    **dict.fromkeys((".h5", ".hdf5", ".keras"),
                    f"a file of Keras; convert it: {_TF} --keras {{name}} --output network.onnx"),
    ".tflite": f"a file of TensorFlow Lite; convert it: {_TF} --tflite {{name}} --output network.onnx",
    ".pb": f"a graph of TensorFlow; convert its folder: {_TF} --saved-model FOLDER --output network.onnx",
    **dict.fromkeys((".pkl", ".pickle", ".joblib"),
                    "a pickled file, which is not opened here; write an ONNX file: skl2onnx.to_onnx(model, example)"),
    **dict.fromkeys((".npz", ".npy", ".csv", ".tsv", ".toml"),
                    "data or a description, not a network; name it with --data, behind the ONNX file of the network"),
    ".data": "weights of an ONNX file; name that file itself, whose name lacks .data",
}


def check_kind(path: Path):
    """Refuse a file of another tool, and say how it becomes an ONNX file.

    Raises:
        ValueError: it is one, or a folder.
    """
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            raise ValueError(f"{path}: a model of TensorFlow; convert it: {_TF} --saved-model {path} --output "
                             "network.onnx")
        raise ValueError(f"{path}: it is a folder; name the ONNX file in it")
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix.lower() in ADVICE:
        raise ValueError(f"{path}: {ADVICE[path.suffix.lower()].format(name=path.name)}")
