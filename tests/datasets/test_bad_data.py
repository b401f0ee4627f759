"""Data that are damaged or do not fit: one sentence that names the location, and nothing is unpickled."""

import contextlib
import csv
import gzip
import io
import pickle
import re
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from concord.campaigns.fuzz.damage import bytes_changed
from concord.datasets import dataset, raw
from concord.datasets.description import parse
from concord.datasets.read import read_data
from concord.datasets.samples import DataSet
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

X, Y = np.arange(24.0).reshape(8, 3), np.arange(8) % 2
CSV = "a,b,label\n1,2,0\n3,4,1\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(location: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_data(location)


class Fires:
    """A pickle of this would run code."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


def test_nothing_is_unpickled(folder):
    np.savez("a.npz", x=np.array([Fires(), Fires()]), y=Y[:2], allow_pickle=True)
    refused("a.npz", "a.npz, x: not a whole .npy file of numbers (it holds Python objects, which are not unpickled")
    np.save("x.npy", np.array([Fires()]), allow_pickle=True)
    refused("x.npy", "x.npy: not a whole .npy file of numbers (it holds Python objects")
    for name in "b.npz", "b.npy":
        (folder / name).write_bytes(pickle.dumps(Fires()))
        refused(name, f"{name}: not a whole")
    (folder / "c.pkl").write_bytes(b"")
    refused("c.pkl", "c.pkl: this kind of file is not read; data are a .toml, .npz")


@pytest.mark.parametrize(("arrays", "sentence"), [
    ({"x": X, "y": Y[:5]}, "a.npz, x: 8 samples, but 5 labels"),
    ({"x": X.astype(str), "y": Y}, "a.npz, x: inputs are numbers, not <U32"),
    ({"x": X * 1j, "y": Y}, "a.npz, x: numbers or texts are needed, not complex128"),
    ({"x": X[:0], "y": Y[:0]}, "a.npz, x: at least one sample is needed, not float64[0, 3]"),
    ({"x": np.array(3.0)}, "a.npz: an array [samples, ...] is needed, not a single value"),
    ({"a": X, "b": Y}, "it holds a, b, and no x_train, x_test or x; name the arrays in a TOML file, as `inputs = "),
    ({"x": np.where(X == 7, np.nan, X), "y": Y}, "a.npz, x, sample 2, element [1]: nan is no finite number"),
    ({"x": np.where(X == 7, np.inf, X), "y": Y}, "a.npz, x, sample 2, element [1]: inf is no finite number"),
    ({"x": X * 1e5, "y": Y}, "is too large for binary16 (65,504) after preprocessing; give `scale`"),
    ({"x": X, "y": Y - 1}, "label -1 is not one of the classes 0..65535; for real numbers say `task = \"regression\"`"),
    ({"x": X, "y": np.full(8, 2**64 - 1, np.uint64)}, "is not one of the classes 0..65535"),
    ({"x": X, "y": np.where(Y, np.nan, 0.5)}, "its label is not finite: [nan]"),
    ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, "samples of test are [2], but those of train are"),
    ({"x_train": X, "y_train": Y, "x_test": X}, "a.npz, x_test: classification needs labels, and the part test has"),
    ({"x": X[:, None], "y": Y, "lengths": Y}, "a.npz, x, sample 6: its length 0 is not in 1..1"),
    ({"x": X[:1], "y": Y[:1]}, "one sample cannot be parted into training and test samples"),
    ({"x": X, "y": np.ones((8, 2, 2), int), }, None),
])
def test_arrays_that_do_not_fit(arrays, sentence):
    np.savez("a.npz", **arrays)
    if sentence is None:
        assert read_data("a.npz").test.labels.shape[1] == 4
    else:
        refused("a.npz", sentence)


@pytest.mark.parametrize(("text", "sentence"), [
    ("data = ", "own.toml: not TOML"),
    ("test = 0.2", "own.toml: it names no data: write `data = \"FILE\"`"),
    ('data = "none.npz"', "none.npz: there is no such file or folder"),
    ('data = "a.npz"\nlabel = "y"', "own.toml: there is no key label; there are data, name, task, inputs, labels"),
    ('data = "a.npz"\ntask = "sorting"', "task = 'sorting', but one of classification, regression, anomaly, none is"),
    ('data = "a.npz"\ntest = 1.5', "own.toml: test = 1.5, but a path, or a share in 0..1 is needed"),
    ('data = "a.npz"\ntest = true', "but a path, or a share in 0..1 is needed"),
    ('data = "a.npz"\nclasses = ["a", "a"]', "but a list of different names is needed"),
    ('data = "a.npz"\nclasses = [[false]]', "but a list of different names is needed"),
    ('data = "a.npz"\nclasses = ["a"]', "a.npz, x, sample 3: label 1 is not one of the classes 0..0"),
    ('data = "a.npz"\ninputs = "z"', "a.npz: there is no z; there are x, y"),
    ('data = "a.npz"\ninputs = ["x", "y"]', "several names stand for columns of a CSV file"),
    ('data = "a.npz"\nlabels = {train = "z"}', "a.npz: there is no z; there are x, y"),
    ('data = "a.npz"\ninputs = {first = "x"}', "or a table of names for train, test and calibration is needed"),
    ('data = "a.npz"\npreprocessing = 3', "preprocessing is a table: write [preprocessing]"),
    ('data = "a.npz"\n[preprocessing]\nscal = 3', "there is no key preprocessing.scal; there are scale, mean, std"),
    ('data = "a.npz"\n[preprocessing]\nscale = "1/0"', "preprocessing.scale = '1/0', but a number, a fraction such as"),
    ('data = "a.npz"\n[preprocessing]\nscale = inf', "preprocessing.scale = inf, but a number"),
    ('data = "a.npz"\n[preprocessing]\nstd = [1, 0, 1]', "but a number that is not 0, or a list of such numbers is"),
    ('data = "a.npz"\n[preprocessing]\nmean = [1, 2]', "mean has 2 numbers; one is needed, or one for each channel of"),
    ('data = "a.npz"\n[preprocessing]\nshape = [2, 2]', "shape = [2, 2] has 4 numbers, but one sample has 3, [3]"),
    ('data = "a.npz"\n[preprocessing]\nlayout = "hwc"', 'layout "hwc" is for images [rows, columns, channels], and a'),
    ('data = "a.npz"\nsequence = true', "a.npz, x: sequences are numbers [samples, time, ...], and one sample is []"),
    ('data = "a.npz"\ncalibration = 9', "a.npz: calibration = 9, but there are 6 samples of train"),
    ('data = "a.npz"\ntest = "b.npz"', "b.npz: there is no such file or folder"),
    ('inputs = "x.npy"', "x.npy: there is no such file"),
])
def test_descriptions_that_do_not_fit(text, sentence, folder):
    np.savez("a.npz", x=X[:, 0] if "sequence" in text else X, y=Y)
    (folder / "own.toml").write_text(text)
    refused("own.toml", sentence)


def test_regression_of_texts(folder):
    np.savez("a.npz", x=X, y=Y.astype(str))
    (folder / "own.toml").write_text('data = "a.npz"\ntask = "regression"')
    refused("own.toml", "a.npz, x: regression needs numbers as labels, not texts")


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "a.csv: it is empty; its first line must name the columns"),
    ("a,b,label\n", "a.csv: it has no line below the names of its columns"),
    ("1,2,3\n4,5,6\n", "a.csv, line 1: it holds numbers; it must name the columns"),
    ("a,a,label\n1,2,3\n", "a.csv, line 1: two columns are called 'a'"),
    (CSV + "5,x,0\n", "a.csv, line 4, column 'b': 'x' is no number"),
    (CSV + "5,,0\n", "a.csv, line 4, column 'b': '' is no number"),
    (CSV + "5,nan,0\n", "a.csv, line 4, column 'b': nan is no finite number; repair it or leave the line out"),
    (CSV + "5,6\n", "a.csv, line 4: 2 values, but line 1 names 3 columns"),
    (CSV + "5,6,\n", "a.csv, line 4, column 'label': the label is missing"),
    (CSV + '5,"6,0\n', "a.csv: not a CSV file ("),
    (CSV + "5,6,-1\n", "a.csv, line 4: label -1 is not one of the classes"),
    ("label\n1\n2\n", "a.csv: no column is left for the inputs"),
])
def test_tables_that_do_not_fit(text, sentence, folder):
    (folder / "a.csv").write_text(text)
    refused("a.csv", sentence)


def test_columns_that_are_not_there(folder):
    (folder / "a.csv").write_text(CSV)
    for text, sentence in ((
            'inputs = ["a", "z"]', "a.csv: there is no column 'z'; there are a, b, label"), (
            'labels = "z"', "a.csv: there is no column 'z'"), (
            'labels = "labl"', "a.csv: there is no column 'labl' (did you mean 'label'?); there are a, b, label"), (
            'inputs = ["a"]\nlabels = "a"', "a.csv: column 'a' is both an input and a label"), (
            'lengths = "b"', "a.csv: a CSV file has no sequences of different lengths; leave `lengths` out"), (
            'inputs = {train = "a"}', "inputs of a CSV file is the name of a column or a list of them")):
        (folder / "own.toml").write_text(f'data = "a.csv"\n{text}\n')
        refused("own.toml", sentence)
    (folder / "a.csv").write_bytes(b"a,b\n\xff\xfe,3\n")
    refused("a.csv", "a.csv: not a text in UTF-8")


@pytest.mark.parametrize("key", ["inputs", "labels", "lengths"])
def test_names_of_arrays_beside_one_array(key, folder):
    np.save("x.npy", np.zeros((4, 3)))
    np.save("y.npy", np.arange(4))
    (folder / "own.toml").write_text(f'data = "x.npy"\n{key} = "y.npy"\n')
    refused("own.toml", f"own.toml: `{key}` names an array, but `data` is the only array in x.npy; leave `data` out")


def test_images_that_do_not_fit(folder):
    (folder / "set" / "ant").mkdir(parents=True)
    refused("set", "set: it holds no data: neither a folder of images for each class, nor x.npy")
    (folder / "set" / "ant" / "0.png").write_text("no image")
    refused("set", "set/ant/0.png: not an image that can be read")
    Image.effect_noise((4, 5), 90).save(folder / "set" / "ant" / "0.png")
    content = (folder / "set" / "ant" / "0.png").read_bytes()
    Image.new("L", (5, 4)).save(folder / "set" / "ant" / "1.png")
    refused("set", "pixels, but set/ant/0.png has 5 x 4; give `size = [rows, columns]` below [preprocessing]")
    (folder / "set" / "ant" / "1.png").write_bytes(content[:60])
    refused("set", "set/ant/1.png: not a")
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(folder / "set" / "ant" / "1.png")
    refused("set", "1.png: its pixels are of mode I;16; images of 8 bits for each channel are read")


def test_bombs_are_refused_before_they_are_read(folder, monkeypatch):
    monkeypatch.setattr(raw, "LIMIT", 2**20)
    monkeypatch.setattr(dataset, "LIMIT", 2**20)
    np.savez_compressed("a.npz", x=np.zeros((2**9, 2**9)))
    refused("a.npz", "a.npz, x: an array [512, 512] of 8 bytes each takes more than")
    (folder / "b").mkdir()
    header = struct.pack(">4I", 0x803, 2, 2**10, 2**10)
    (folder / "b" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(2**21)))
    refused("b", "t10k-images-idx3-ubyte.gz: not a whole IDX file (more than")
    (folder / "c" / "ant").mkdir(parents=True)
    Image.new("1", (5000, 5000)).save(folder / "c" / "ant" / "0.png")
    refused("c", "c/ant/0.png: 5000 x 5000 pixels; at most 16,777,216 are read")
    header = b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (60000,), }".ljust(118)
    (folder / "x.npy").write_bytes(header)
    refused("x.npy", "x.npy: not a whole .npy file of numbers (float64[60000] does not fit into 128 bytes")


def test_idx_files_that_promise_more_than_they_hold(folder):
    """No memory is taken for what a header promises, nor for what a stream holds beyond it."""
    labels = gzip.compress(struct.pack(">2I", 0x801, 2) + bytes(2))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(labels)
    path = folder / "t10k-images-idx3-ubyte.gz"
    for sizes, content, sentence in (
        ((2, 30000, 30000), bytes(8), "its header promises 1,800,000,000 bytes, but it has 8"),
        ((2, 2, 2), bytes(10**7), "its header promises 8 bytes, but it has more"),
        ((2, 2**20, 2**20), bytes(8), "more than 4 GiB")):
        path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, *sizes) + content))
        tracemalloc.start()
        refused(".", f"t10k-images-idx3-ubyte.gz: not a whole IDX file ({sentence}")
        assert tracemalloc.get_traced_memory()[1] < 8e6
        tracemalloc.stop()


@pytest.mark.parametrize(("kind", "size"), [(0x09, 1), (0x0B, 2), (0x0C, 4), (0x0D, 4), (0x0E, 8)])
def test_idx_files_of_other_numbers(kind, size, folder):
    """Signed bytes, too, whose -1 would be read as 255."""
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, 2) + bytes(2)))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(
        struct.pack(">4I", kind << 8 | 3, 2, 2, 2) + bytes(8 * size)))
    refused(str(folder), f"t10k-images-idx3-ubyte.gz: it begins with 00 00 {kind:02x}, but IDX files of bytes")


def test_names_that_are_too_long():
    refused(f"{'a' * 5000}.npz", "a.npz: it cannot be read (File name too long)")


def test_numbers_of_too_many_digits(folder):
    (folder / "own.toml").write_text(f"seed = {'9' * 5000}\n")
    refused("own.toml", "own.toml: not TOML (Exceeds the limit")


def test_functions_that_fail(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    (folder / "bad_data.py").write_text("import numpy as np\n"
                                        "def fails():\n    return 1 / 0\n"
                                        "def none():\n    return None\n"
                                        "def three():\n    return [1], [2], [3]\n"
                                        "def ragged():\n    return [[1], [1, 2]], [0, 1]\n"
                                        "def objects():\n    return np.array([{}, {}]), [0, 1]\n")
    for name, sentence in (
        ("fails", "calling it fails with ZeroDivisionError (division by zero); it is called without arguments"),
        ("none", "there is a NoneType, but a DataSet, a dict of arrays"),
        ("three", "bad_data:three: there are 3 values, but"),
        ("ragged", "x: list is no array of numbers"),
        ("objects", "numbers or texts are needed, not object; arrays of Python objects are not read"),
        ("missing", "module 'bad_data' has no function or class 'missing'")):
        refused(f"bad_data:{name}", sentence)
    refused("no_such_module:f", "no_such_module:f: module 'no_such_module' cannot be imported")


def zipped(content: bytes, compression: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("x.npy", content)
        archive.writestr("y.npy", content)
    return stream.getvalue()


def as_npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def changed(content: bytes, data) -> bytes:
    """A file with damaged bytes, or a whole one."""
    return bytes_changed(content, data.draw(st.randoms())) if data.draw(st.booleans()) else content


def reads_or_refuses(location: str):
    """A data set, or an error of ours: a ValueError with a sentence."""
    with contextlib.suppress(ValueError):
        assert isinstance(read_data(location), DataSet)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[
    HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def test_a_header_that_python_cannot_parse(folder):
    (folder / "a.npy").write_bytes(as_npy(X)[:10] + b"{" * 118)
    refused("a.npy", "a.npy: not a whole .npy file of numbers (")


@FUZZ
@given(st.data())
def test_damaged_arrays(data):
    content = as_npy(X)
    if name := data.draw(st.sampled_from(["a.npz", ""])):
        content = zipped(content, data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
    with open(name or "a.npy", "wb") as file:
        file.write(changed(content, data))
    reads_or_refuses(name or "a.npy")


@FUZZ
@example([["0", "0", "0"], ["0", "9.3e18", "0"]], ",")  # no int64
@given(st.lists(st.lists(st.one_of(st.text(max_size=4), st.floats().map(str), st.integers(0, 3).map(str)), min_size=1,
                         max_size=4), max_size=5), st.sampled_from(",;\t"))
def test_any_table(rows, delimiter):
    with open("a.csv", "w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file, delimiter=delimiter).writerows([["a", "b", "label"], *rows])
    reads_or_refuses("a.csv")


@FUZZ
@given(st.data())
def test_damaged_texts(data):
    text = (b'data = "a.npz"\ntask = "classification"\ninputs = "x"\nlabels = {train = "y"}\ntest = 0.5\nseed = 1\n'
            b'[preprocessing]\nscale = "1/255"\nmean = [1, 2, 3]\nlayout = "chw"\nshape = [3]\n')
    np.savez("a.npz", x=X, y=Y)
    for name, content in ("own.toml", text), ("a.csv", CSV.encode()), ("JapaneseVowels_TEST.ts", b"1,2:3,4:1\n2:3:2\n"):
        with open(name, "wb") as file:
            file.write(changed(content, data))
    reads_or_refuses("own.toml")
    reads_or_refuses("a.csv")
    reads_or_refuses(".")


@FUZZ
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
                    max_leaves=4), st.data())
def test_values_of_any_kind_in_a_description(value, data):
    import tomli_w

    key = data.draw(st.sampled_from(["data", "name", "task", "inputs", "labels", "lengths", "classes", "test", "seed",
                                     "calibration", "sequence", "delimiter"]))
    inner = data.draw(st.sampled_from(["scale", "mean", "std", "layout", "shape", "size"]))
    for record in {key: value}, {"preprocessing": {inner: value}}:
        try:
            text = tomli_w.dumps(record)
        except TypeError:  # TOML has no null
            continue
        with contextlib.suppress(ValueError):
            parse(text, "own.toml", dataset.DATA)


@FUZZ
@given(st.data())
def test_damaged_idx_files_and_images(folder, data):
    (folder / "idx").mkdir(exist_ok=True)
    (folder / "images" / "ant").mkdir(parents=True, exist_ok=True)
    pixels, labels = struct.pack(">4I", 0x803, 2, 2, 2) + bytes(8), struct.pack(">2I", 0x801, 2) + bytes([1, 0])
    for name, content in ("images-idx3", pixels), ("labels-idx1", labels):
        packed = changed(gzip.compress(changed(content, data) if data.draw(st.booleans()) else content), data)
        (folder / "idx" / f"t10k-{name}-ubyte.gz").write_bytes(packed)
    stream, kind = io.BytesIO(), data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP"]))
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(stream, kind)
    (folder / "images" / "ant" / "0.png").write_bytes(changed(stream.getvalue(), data))
    reads_or_refuses("idx")
    reads_or_refuses("images")
