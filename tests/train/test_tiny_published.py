"""Files and inputs of the trained networks of MLPerf Tiny, without the published ones."""

import sys

import numpy as np
import pytest
from concord.benchmarks.tiny_published import (
    CALIBRATION,
    PUBLISHED,
    feature_folder,
    keywords,
    onnx_file,
    seeded,
)

SHAPE = (1, 2, 3)


def write_features(folder, count=120):
    folder.mkdir()
    values = np.random.default_rng(0).integers(-128, 128, (count, 6), dtype=np.int8)
    lines = []
    for number, value in enumerate(values):
        name = f"tst_{number:06d}_Go_1.bin"
        value.tofile(folder / name)
        lines.append(f"{name}, 12, {number % 12}\n")
    (folder / "y_labels.csv").write_text("".join(lines))
    return values


def test_features_are_dequantized_and_calibrated_on_some_of_them(tmp_path):
    values = write_features(tmp_path / "kws01")
    data, chosen = keywords(feature_folder(tmp_path), SHAPE)
    real = data.test.inputs.view(np.float16)
    assert np.array_equal(real, ((values - 83.0) * 0.5847).astype(np.float16))
    assert data.test.labels.tolist() == [number % 12 for number in range(120)]
    assert chosen.sum() == CALIBRATION == len(data.calibration)
    assert np.array_equal(data.calibration.inputs, data.test.inputs[chosen])


@pytest.mark.parametrize("line", ["missing.bin,12,1", "tst_000000_Go_1.bin,12", "tst_000000_Go_1.bin,12,12",
                                  "tst_000000_Go_1.bin,12,x"])
def test_bad_lines_of_labels_are_named(tmp_path, line):
    write_features(tmp_path / "kws01", 2)
    (tmp_path / "kws01" / "y_labels.csv").write_text(f"tst_000001_Go_1.bin,12,3\n{line}\n")
    with pytest.raises(ValueError, match="y_labels.csv, line 2: "):
        keywords(tmp_path / "kws01", SHAPE)


def test_features_of_another_size_are_refused(tmp_path):
    write_features(tmp_path / "kws01", 2)
    with pytest.raises(ValueError, match="line 1: .* of 490 bytes"):
        keywords(tmp_path / "kws01", (1, 49, 10))


def test_no_features_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="no folder kws01 .*energyrunner"):
        feature_folder(tmp_path)


def test_files_are_found_below_a_folder_or_said_to_be_missing(tmp_path):
    network, inner = PUBLISHED["ad"], tmp_path / "models" / "trained_models"
    inner.mkdir(parents=True)
    with pytest.raises(ValueError, match="neither ad01_fp32.onnx nor ad01_fp32.tflite .*mlcommons/tiny"):
        onnx_file(network, tmp_path, tmp_path / "out", sys.executable)
    (inner / "ad01_fp32.tflite").write_bytes(b"none")
    with pytest.raises(ValueError, match="false has no tf2onnx .*--group zoo"):
        onnx_file(network, tmp_path, tmp_path / "out", "/bin/false")
    with pytest.raises(ValueError, match="tf2onnx cannot convert it"):
        onnx_file(network, tmp_path, tmp_path / "out", "/bin/true")
    (inner / "ad01_fp32.onnx").write_bytes(b"")
    assert onnx_file(network, tmp_path, tmp_path / "out", "/bin/false") == inner / "ad01_fp32.onnx"
    assert not list((tmp_path / "out").iterdir())


def test_a_missing_python_is_a_sentence(tmp_path):
    (tmp_path / "ad01_fp32.tflite").write_bytes(b"none")
    with pytest.raises(ValueError, match="no tf2onnx"):
        onnx_file(PUBLISHED["ad"], tmp_path, tmp_path / "out", str(tmp_path / "python"))


@pytest.mark.parametrize(("name", "lowest", "highest"), [
    ("resnet", 0, 255), ("vww", 0, 1), ("ad", -70, 0), ("kws", -124, 26)])
def test_inputs_from_a_seed_have_the_range_of_the_preprocessing(name, lowest, highest):
    shape = (640,) if name == "ad" else (3, 16, 16)
    data = seeded(name, shape, 3)
    real = data.test.inputs.view(np.float16)
    assert real.shape == (3, np.prod(shape))
    assert lowest <= real.min()
    assert real.max() <= highest
    assert real.max() - real.min() > (highest - lowest) / 2
    assert len(data.calibration) == CALIBRATION
