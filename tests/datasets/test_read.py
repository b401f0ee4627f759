"""Data sets in every form: the same samples, whichever file they stand in."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from concord.datasets import dataset
from concord.datasets.measures import measure
from concord.datasets.read import SHARE, digest, read_data
from concord.datasets.samples import DataSet, Samples, Task
from PIL import Image

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 6)).astype(np.float32), np.arange(20) % 4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def described(text: str, name: str = "own.toml") -> DataSet:
    """The data set of a TOML text in the current folder."""
    with open(name, "w") as file:
        file.write(text)
    return read_data(name)


def numbers(samples: Samples) -> np.ndarray:
    return samples.inputs.view(np.float16)


def write_csv(name: str, x, labels, columns=None, delimiter=","):
    columns = columns or [*(f"p{index}" for index in range(x.shape[1])), "label"]
    lines = [delimiter.join(columns)]
    lines += [delimiter.join([*map(repr, row), str(label)]) for row, label in zip(x.tolist(), labels, strict=True)]
    with open(name, "w") as file:
        file.write("\n".join(lines) + "\n")


def test_the_same_samples_in_every_form():
    np.savez("a.npz", x_train=X[:12], y_train=Y[:12], x_test=X[12:], y_test=Y[12:])
    wanted = read_data("a.npz")
    assert (wanted.name, wanted.task, wanted.shape) == ("a", Task.CLASSIFICATION, (6,))
    assert np.array_equal(numbers(wanted.train), X[:12].astype(np.float16))
    assert np.array_equal(wanted.test.labels, Y[12:])
    assert wanted.classes == ("class 0", "class 1", "class 2", "class 3")
    np.savez_compressed("odd.npz", tr=X[:12], labels_of_tr=Y[:12], te=X[12:], labels_of_te=Y[12:])
    np.savez("train.npz", x=X[:12], y=Y[:12])
    np.savez("test.npz", x=X[12:], y=Y[12:])
    for part, slices in ("train", slice(12)), ("test", slice(12, None)):
        np.save(f"{part}_x.npy", X[slices])
        np.save(f"{part}_y.npy", Y[slices].astype(np.float64))
        write_csv(f"{part}.csv", X[slices], Y[slices])
        write_csv(f"{part}.tsv", X[slices], Y[slices], delimiter="\t")
    with open("own_data.py", "w") as file:
        file.write("import numpy as np\n"
                   "def parts():\n    f = np.load('a.npz')\n"
                   "    return (f['x_train'], f['y_train']), (f['x_test'], f['y_test'])\n"
                   "def flat():\n    return [a for pair in parts() for a in pair]\n"
                   "def named():\n    return dict(np.load('a.npz'), source='here')\n")
    split = 'inputs = {train = "tr", test = "te"}\nlabels = {train = "labels_of_tr", test = "labels_of_te"}\n'
    files = split.replace("labels_of_tr", "train_y.npy").replace("labels_of_te", "test_y.npy").replace(
        '"tr"', '"train_x.npy"').replace('"te"', '"test_x.npy"')
    for found in (
        described(f'data = "odd.npz"\n{split}'),
        described('data = "train.npz"\ntest = "test.npz"\n'),
        described(f'{files}task = "classification"\n'),
        described('data = "train.csv"\ntest = "test.csv"\n'),
        described('data = "train.tsv"\ntest = "test.tsv"\nlabels = "label"\n'),
        *map(read_data, ("own_data:parts", "own_data:flat", "own_data:named")),
    ):
        assert digest(found.train) == digest(wanted.train), found.description
        assert digest(found.test) == digest(wanted.test), found.description
        assert (found.classes, found.shape, found.task) == (wanted.classes, wanted.shape, wanted.task)


def test_a_folder_of_arrays():
    np.save("x.npy", X)
    np.save("y.npy", Y)
    np.savez("a.npz", x=X, y=Y)
    assert digest(read_data(".").test) == digest(read_data("a.npz").test)


def test_samples_are_parted_by_a_seed():
    np.savez("a.npz", x=X, y=Y)
    found = read_data("a.npz")
    assert (len(found.train), len(found.test)) == (16, round(20 * SHARE))
    rows = np.concatenate([numbers(found.train), numbers(found.test)])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(X.astype(np.float16), axis=0))
    assert "a.npz, x: 4 of 20 samples, a share of 0.2 by seed 0, are the test set" in found.notes[-1]
    assert digest(read_data("a.npz").test) == digest(found.test)
    assert digest(described('data = "a.npz"\nseed = 1\n').test) != digest(found.test)
    assert len(described('data = "a.npz"\ntest = 0.5\n').test) == 10
    everything = described('data = "a.npz"\ntest = 1\n')
    assert everything.train is None
    assert np.array_equal(numbers(everything.test), X.astype(np.float16))
    assert described('data = "a.npz"\ntest = 0\n').test is None


def test_without_labels_samples_test_and_calibrate():
    np.save("x.npy", X)
    found = read_data("x.npy")
    assert (found.task, found.train, found.test.labels) == (Task.NONE, None, None)
    assert digest(found.test) == digest(found.calibration)
    np.savez("a.npz", x=X, y=Y)
    assert described('data = "a.npz"\ntask = "none"\n').test.labels is None


def test_calibration_samples_are_of_the_training_set_or_not_measured():
    np.savez("a.npz", x=X, y=Y)
    found = described('data = "a.npz"\ncalibration = 5\n')
    assert {len(found.calibration), len(found.train)} == {5, 16}
    found = described('data = "a.npz"\ntest = 1\ncalibration = 5\n')
    assert {len(found.calibration), len(found.test)} == {5, 15}
    rows = np.concatenate([numbers(found.calibration), numbers(found.test)])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(X.astype(np.float16), axis=0))
    np.savez("c.npz", x=X[:3])
    found = described('data = "a.npz"\ncalibration = "c.npz"\n')
    assert np.array_equal(numbers(found.calibration), X[:3].astype(np.float16))


def test_preprocessing_is_scale_then_mean_then_std():
    pixels = RNG.integers(0, 256, (6, 4, 5, 3)).astype(np.uint8)
    np.savez("a.npz", x=pixels, y=Y[:6])
    found = described('data = "a.npz"\ntest = 1\n[preprocessing]\nscale = "1/255"\nmean = [0.5, 0.4, 0.3]\n'
                      'std = [0.25, 0.5, 1]\nlayout = "hwc"\n')
    assert found.shape == (3, 4, 5)
    wanted = (pixels / 255 - [0.5, 0.4, 0.3]) / [0.25, 0.5, 1]
    assert np.array_equal(numbers(found.test), wanted.transpose(0, 3, 1, 2).reshape(6, -1).astype(np.float16))
    flat = described('data = "a.npz"\ntest = 1\n[preprocessing]\nshape = [60]\n')
    assert np.array_equal(numbers(flat.test), pixels.reshape(6, -1).astype(np.float16))


def test_sequences_of_different_lengths_end_with_padding():
    steps, lengths = RNG.normal(size=(4, 5, 3)), np.array([5, 2, 1, 4])
    steps[1, 2:] = np.nan  # padding, whatever it is
    np.savez("a.npz", x_test=steps, y_test=Y[:4], lengths_test=lengths)
    found = read_data("a.npz")
    assert (found.sequence, found.shape) == (True, (3,))
    assert found.test.inputs.shape == (4, 5, 3)
    assert found.test.lengths.tolist() == [5, 2, 1, 4]
    assert not found.test.inputs[1, 2:].any()
    assert np.array_equal(numbers(found.test)[1, :2], steps[1, :2].astype(np.float16))


def test_rows_of_images_are_sequences_for_a_recurrent_network():
    np.savez("a.npz", x=RNG.random((6, 1, 4, 5)), y=Y[:6])
    for found in read_data("a.npz").as_sequences(), described(
            'data = "a.npz"\nsequence = true\n[preprocessing]\nshape = [20]\n').as_sequences():
        assert found.sequence
    assert read_data("a.npz").as_sequences().test.inputs.shape == (1, 4, 5)
    np.savez("b.npz", x=X, y=Y)
    with pytest.raises(ValueError, match=r"with `shape = \[time, numbers\]`"):
        read_data("b.npz").as_sequences()


def test_tasks():
    np.savez("a.npz", x=X, y=X[:, :2])
    found = read_data("a.npz")
    assert (found.task, found.test.labels.dtype, found.test.labels.shape) == (Task.REGRESSION, np.float32, (4, 2))
    np.savez("b.npz", x=X, y=np.eye(4)[Y])
    np.savez("c.npz", x=X, y=Y)
    assert read_data("b.npz").task is Task.CLASSIFICATION
    assert digest(read_data("b.npz").test) == digest(read_data("c.npz").test)
    assert described('data = "c.npz"\ntask = "regression"\n').test.labels.shape == (4, 1)
    np.savez("d.npz", x_train=X, x_test=X, y_test=Y == 3)
    found = described('data = "d.npz"\ntask = "anomaly"\n')
    assert found.classes == ("normal", "anomaly")
    assert found.train.labels is None
    assert found.test.labels.sum() == 5


def test_one_hot_rows_are_those_of_all_parts():
    """Labels of time steps stay labels of time steps where each test sample has a single 1."""
    steps, ones = np.array([[0, 1, 1], [1, 0, 0]]), np.array([[0, 1, 0], [0, 0, 1]])
    np.savez("a.npz", x_train=X[:2].reshape(2, 3, 2), y_train=steps, x_test=X[:2].reshape(2, 3, 2), y_test=ones)
    found = read_data("a.npz")
    assert (found.task, found.train.labels.tolist()) == (Task.CLASSIFICATION, steps.tolist())
    assert found.test.labels.tolist() == ones.tolist()


@pytest.mark.parametrize("axes", [(), (1,), (1, 1)])
def test_axes_of_length_one_behind_a_label_do_not_count(axes):
    np.savez("a.npz", x_test=X.reshape(20, 6, 1, 1), y_test=Y.reshape(20, *axes))
    found = read_data("a.npz")
    assert (found.task, found.test.labels.tolist(), found.test.steps) == (Task.CLASSIFICATION, Y.tolist(), 1)
    outputs = np.random.default_rng(1).normal(size=(20, 4))
    assert measure(found.task, outputs, found.test)["accuracy"] == np.mean(outputs.argmax(axis=1) == Y)


def test_classes_of_names():
    names = np.array(["cat", "ant", "bee", "ant"])
    np.savez("a.npz", x=X[:4], y=names)
    found = described('data = "a.npz"\ntest = 1\n')
    assert found.classes == ("ant", "bee", "cat")
    assert found.test.labels.tolist() == [2, 0, 1, 0]
    found = described('data = "a.npz"\ntest = 1\nclasses = ["cat", "bee", "ant", "dog"]\n')
    assert found.test.labels.tolist() == [0, 2, 1, 2]


def test_signs_are_names_of_classes():
    """As scikit-learn has them: -1 and 1."""
    np.savez("a.npz", x=X[:4], y=np.array([1, -1, -1, 1]))
    found = described('data = "a.npz"\ntest = 1\n')
    assert found.classes == ("-1", "1")
    assert found.test.labels.tolist() == [1, 0, 0, 1]


def test_more_than_256_classes():
    np.savez("a.npz", x=np.zeros((300, 2)), y=np.arange(300))
    found = described('data = "a.npz"\ntest = 1\n')
    assert found.test.labels.dtype == np.int32
    assert (found.test.labels == np.arange(300)).all()


def test_columns_by_name():
    write_csv("a.csv", X, Y * 0.5, columns=["a", "b", "c", "d", "e", "f", "speed"], delimiter=";")
    found = described('data = "a.csv"\ninputs = ["c", "a"]\nlabels = "speed"\ntest = 1\n')
    assert (found.task, found.shape) == (Task.REGRESSION, (2,))
    assert np.array_equal(numbers(found.test), X[:, [2, 0]].astype(np.float16))
    found = described('data = "a.csv"\nlabels = ["speed", "f"]\ntest = 1\n')
    assert found.test.labels.shape == (20, 2)
    assert "without labels, as no column is called label" in read_data("a.csv").notes[0]


@pytest.mark.parametrize("data", ["a.csv", "a.toml"])
def test_columns_of_another_table_are_found_by_name(data, folder):
    """In whichever order they stand there, as a test set, or as data for a model."""
    write_csv("a.csv", X, Y)
    (folder / "a.toml").write_text('data = "a.csv"\n')
    order, names = [5, 0, 3, 1, 2, 4], ["p5", "p0", "p3", "p1", "p2", "p4"]
    write_csv("b.csv", X[:, order], Y, [*names, "label"])
    write_csv("c.csv", np.hstack([X[:, order], X[:, :1]]), Y, [*names, "id", "label"])
    write_csv("d.csv", X[:, 1:], Y, ["p1", "p2", "p3", "p4", "p5", "label"])
    made = read_data(data)
    for name in "b.csv", "c.csv":
        assert np.array_equal(numbers(described(f'data = "a.csv"\ntest = "{name}"\n').test), X.astype(np.float16))
        assert np.array_equal(numbers(read_data(name, made.description).test), X.astype(np.float16))
    for read in (lambda: described('data = "a.csv"\ntest = "d.csv"\n'), lambda: read_data("d.csv", made.description)):
        with pytest.raises(ValueError, match=r"d.csv: there is no column 'p0'"):
            read()
    write_csv("e.csv", X, Y, [*"uvwxyz", "label"])
    found = read_data("e.csv", made.description)
    assert np.array_equal(numbers(found.test), X.astype(np.float16))
    assert "e.csv: its columns are taken in their order, as none has a name of the model's" in " ".join(found.notes)
    np.savez("e.npz", x=X, y=Y)
    for found in described('data = "a.csv"\ntest = "e.npz"\n'), read_data("e.npz", made.description):
        assert np.array_equal(numbers(found.test), X.astype(np.float16))


@pytest.mark.parametrize("name", ["", "a\tb"])
def test_columns_without_a_proper_name_are_taken_in_their_order(name):
    write_csv("a.csv", X, Y, [name, "p1", "p2", "p3", "p4", "p5", "label"], ";")
    made = read_data("a.csv")
    assert np.array_equal(numbers(read_data("a.csv", made.description).test), numbers(made.test))


@pytest.mark.parametrize(("name", "text"), [
    ("a.csv", '"width, in m, at the top";b;label\n1;2;0\n'), ("a.csv", '"a;b;c;""d"""\tb\tlabel\n1\t2\t0\n'),
    ("a.tsv", "width, in m, at the top\tb\tlabel\n1\t2\t0\n"), ("a.tsv", "a;b;label\n1;2;0\n")])
def test_delimiters_in_names_of_columns_are_none(name, text):
    Path(name).write_text(text)
    assert numbers(described(f'data = "{name}"\ntest = 1\n').test).tolist() == [[1, 2]]


def test_underscores_make_no_numbers():
    """Python reads 1_0 as 10, but a table of classes 1_0 and 2_0 has texts."""
    write_csv("a.csv", X[:4], ["1_0", "2_0", "1_0", "2_0"])
    found = described('data = "a.csv"\ntest = 1\n')
    assert (found.classes, found.test.labels.tolist()) == (("1_0", "2_0"), [0, 1, 0, 1])
    Path("b.csv").write_text("a,label\n1_000,0\n2,1\n")
    with pytest.raises(ValueError, match=r"b.csv, line 2, column 'a': '1_000' is no number"):
        read_data("b.csv")


def test_a_folder_of_images(folder):
    pixels = {}
    for part, count in ("train", 3), ("test", 2):
        for name in "ant", "bee":
            (folder / "insects" / part / name).mkdir(parents=True)
            (folder / "insects" / part / name / "notes.txt").write_text("left out")
            for index in range(count):
                pixels[part, name, index] = RNG.integers(0, 256, (4, 5)).astype(np.uint8)
                Image.fromarray(pixels[part, name, index]).save(folder / "insects" / part / name / f"{index}.png")
    found = read_data("insects")
    assert (found.name, found.classes, found.shape) == ("folder insects", ("ant", "bee"), (1, 4, 5))
    assert (len(found.train), len(found.test)) == (6, 4)
    rows = {(found.classes[label], tuple(row)) for label, row in zip(
        found.test.labels.tolist(), numbers(found.test).tolist(), strict=True)}
    assert rows == {(name, tuple((image.ravel() / 255).astype(np.float16).tolist()))
                    for (part, name, _), image in pixels.items() if part == "test"}
    assert sorted(np.unique(read_data("insects/train").train.labels)) == [0, 1]
    Image.new("RGB", (10, 8), (255, 0, 0)).save(folder / "insects" / "test" / "bee" / "red.jpg")
    found = described('data = "insects"\n[preprocessing]\nsize = [2, 3]\n')
    assert found.shape == (3, 2, 3)
    channels = numbers(found.test).reshape(-1, 3, 6).mean(axis=2).tolist()
    assert [image for image in channels if image[0] > 0.9 and image[1:] == pytest.approx([0, 0], abs=0.02)]


@pytest.mark.parametrize("inner", ['layout = "hwc"', 'shape = [3, 2, 3]', 'layout = "hwc"\nshape = [3, 2, 3]'])
def test_files_of_images_have_channels_first_whatever_a_model_says(folder, inner):
    """A model of arrays [rows, columns, channels] predicts pictures, whose pixels must not change places."""
    pixels = RNG.integers(0, 256, (3, 2, 3)).astype(np.uint8)
    (folder / "insects" / "ant").mkdir(parents=True)
    Image.fromarray(pixels).save(folder / "insects" / "ant" / "0.png")
    found = read_data("insects", f'data = "a.npz"\n[preprocessing]\n{inner}\nscale = 1\n')
    assert (found.shape, found.image) == ((3, 3, 2), True)
    assert numbers(found.test).tolist() == [pixels.transpose(2, 0, 1).reshape(-1).tolist()]
    with pytest.raises(ValueError, match="insects: files of images are read as channels, rows, columns, here"):
        described(f'data = "insects"\ntest = 1\n[preprocessing]\n{inner}\n')


@pytest.mark.parametrize("key", ["test", "calibration"])
def test_files_of_images_beside_arrays_need_a_scale(key, folder):
    """As the former are divided by 255 where none is said, and the latter are not."""
    pixels = RNG.integers(0, 256, (2, 1, 2, 2)).astype(np.uint8)
    for index in 0, 1:
        (folder / "insects" / str(index)).mkdir(parents=True)
        Image.fromarray(pixels[index, 0]).save(folder / "insects" / str(index) / "0.png")
    np.savez("a.npz", x=pixels, y=np.array(["0", "1"]))
    for data, other in (("a.npz", "insects"), ("insects", "a.npz")):
        with pytest.raises(ValueError, match=rf"{other}: files of images are divided by 255 and arrays.*{data} is of"):
            described(f'data = "{data}"\n{key} = "{other}"\n')
        found = described(f'data = "{data}"\n{key} = "{other}"\n[preprocessing]\nscale = 1\n').parts()[key]
        assert sorted(numbers(found).reshape(-1).tolist()) == sorted(pixels.reshape(-1).tolist())


def test_folders_of_anomalies_are_marked_by_their_names(folder):
    """And not by the place of a name in the alphabet, in which anomaly = 0 and normal = 1."""
    for name, grey in ("normal", 0), ("anomaly", 255):
        (folder / "parts" / name).mkdir(parents=True)
        Image.new("L", (2, 2), grey).save(folder / "parts" / name / "0.png")
    found = described('data = "parts"\ntask = "anomaly"\ntest = 1\n')
    assert found.classes == ("normal", "anomaly")
    assert found.test.labels.tolist() == numbers(found.test)[:, 0].tolist()
    (folder / "parts" / "normal").rename(folder / "parts" / "good")
    with pytest.raises(ValueError, match=r"'good' is not one of the classes normal, anomaly.*write `classes`"):
        described('data = "parts"\ntask = "anomaly"\ntest = 1\n')
    found = described('data = "parts"\ntask = "anomaly"\ntest = 1\nclasses = ["good", "anomaly"]\n')
    assert found.test.labels.tolist() == numbers(found.test)[:, 0].tolist()


def test_no_data_set_has_the_name_of_none():
    np.savez("none.npz", x_train=X[:12], y_train=Y[:12], x_test=X[12:], y_test=Y[12:])
    assert read_data("none.npz").name == "data none"


@pytest.mark.parametrize("name", dataset.SHIPPED)
def test_shipped_sets_by_name_and_by_folder(name):
    shipped, found = dataset.load(name), read_data(name)
    assert found.name == name
    assert digest(found.test) == digest(shipped)
    assert found.classes == shipped.classes
    if name == "fashion-mnist":
        assert digest(read_data(str(dataset.DATA / name)).test) == digest(shipped)


def test_a_data_set_of_a_function_is_taken_as_it_is():
    with open("whole_data.py", "w") as file:
        file.write("from concord.datasets.read import read_data\ndef made():\n    return read_data('a.npz')\n")
    np.savez("a.npz", x=X, y=Y)
    assert digest(read_data("whole_data:made").train) == digest(read_data("a.npz").train)


def test_a_description_reads_the_same_again():
    np.savez("a.npz", x=X, y=Y)
    text = ('data = "a.npz"\nname = "own"\ntest = 0.3\nseed = 3\ncalibration = 4\nclasses = ["a", "b", "c", "d"]\n'
            '[preprocessing]\nscale = 0.5\nmean = [1, 2, 3, 4, 5, 6]\nshape = [2, 3]\n')
    text = text.replace("[1, 2, 3, 4, 5, 6]", "[1, 2, 3]")
    found = described(text)
    again = described(found.description, "again.toml")
    assert again.description == found.description
    assert digest(again.test) == digest(found.test) == tomllib.loads(found.description)["origin"]["test_digest"]


def test_other_data_are_read_as_the_description_of_a_model_says():
    np.savez("a.npz", x=X, y=Y)
    np.savez("b.npz", x=X[:5] + 1, y=Y[:5])
    model = described('data = "a.npz"\ntest = 0.3\nname = "own"\n[preprocessing]\nscale = 0.5\n').description
    assert digest(read_data("a.npz", model).test) == tomllib.loads(model)["origin"]["test_digest"]
    found = read_data("b.npz", model)
    assert (found.name, len(found.test), found.train) == ("b", 5, None)
    assert np.array_equal(numbers(found.test), ((X[:5] + 1).astype(np.float64) * 0.5).astype(np.float16))
    np.save("c.npy", X[:3])
    assert read_data("c.npy", model).task is Task.NONE
    np.savez("d.npz", x_train=X[:12], y_train=Y[:12], x_test=X[12:], y_test=Y[12:])
    assert (len(read_data("d.npz", model).train), len(read_data("d.npz", model).test)) == (12, 8)


def test_a_table_is_read_as_the_description_of_arrays_says():
    """A model that was trained on arrays with a name for each part is measured on a CSV file, too."""
    Path("a.csv").write_text("u,v,label\n1,2,0\n3,4,1\n")
    found = read_data("a.csv", 'data = "a.npz"\n[inputs]\ntest = "p"\n[labels]\ntest = "q"\n'
                               '[preprocessing]\nscale = 0.5\n')
    assert np.array_equal(numbers(found.test), np.array([[0.5, 1], [1.5, 2]], np.float16))
    assert found.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize("key", ["test", "calibration"])
def test_nothing_that_a_model_names_is_opened_or_run(key, folder):
    (folder / "trap_data.py").write_text("raise SystemExit('it was run')\n")
    np.savez("a.npz", x=X, y=Y)
    for name in "trap_data:made", "none.npz":
        found = read_data("a.npz", f'data = "a.npz"\n{key} = "{name}"\n')
        assert len(found.test) == (20 if key == "test" else 4)
