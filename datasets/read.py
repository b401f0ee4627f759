"""Reads the data set at a location: a file, a folder, a TOML description, a function, or the name of a shipped set."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w
from concord.datasets import arrays, dataset, labels
from concord.datasets.description import ORIGIN, PARTS, Description, ImageLayout, Preprocessing, record
from concord.datasets.find import TABLES, as_archive, described, find
from concord.datasets.raw import Found, Raw, TooLarge, integers, prepared
from concord.datasets.samples import NO_DATA, DataSet, Samples, Task
from concord.lib.input_axes import Order
from concord.lib.names import cleaned

#: Share of the samples that become the test set where nothing else is said.
SHARE = 0.2


def read_data(location: str, like: str = "", order: Order | None = None) -> DataSet:
    """Read a data set.

    Args:
        location: Path, module:callable, or name of a shipped set.
        like:     Description, as `DataSet.description` has it, that says how to read a location which is no TOML file.
        order:    Order of the axes of a sample; None for that of the description.

    Raises:
        ValueError: there are no such data, they are damaged, or they do not fit their description.
    """
    description = _ordered(described(str(location), like), order)
    found = find(description)
    return found if isinstance(found, DataSet) else _whole(found, description)


def data_of(values, name: str = "arrays", order: Order | None = None) -> DataSet:
    """The data set in arrays.

    Args:
        values: Arrays by name: x_train, y_train, x_test and y_test, or x and y; or a tuple of them in this order.
        name:   Name of the data set.
        order:  Order of the axes of a sample.

    Raises:
        ValueError: these are no arrays, or they do not fit each other.
    """
    description = _ordered(Description(data=name, name=name), order)
    return _whole(arrays.found(as_archive(name, values), description), description)


def _ordered(description: Description, order: Order | None) -> Description:
    """A description with an order of axes, unless that is None."""
    if order is None:
        return description
    if description.preprocessing.layout is not None:
        raise ValueError(f"{description.data}: its description says `layout`, so leave out `--order`")
    return replace(description, preprocessing=replace(description.preprocessing, order=order))


def digest(samples: Samples) -> str:
    """A digest of the bits of samples, their lengths and labels."""
    made = hashlib.sha256(repr((samples.inputs.size, len(samples))).encode())
    for array in samples.inputs, samples.lengths, samples.labels:
        if array is not None:
            made.update(np.ascontiguousarray(array.astype(np.int64) if array.dtype.kind in "iu" else array).data)
    return made.hexdigest()[:32]


def _whole(found: Found, description: Description) -> DataSet:
    """The data set of what a reader found."""
    description = _of_images(found, description)
    parts, notes = _parted(found, description)
    if notes:
        description = replace(description, test=SHARE)
    return _data_set(parts, replace(found, notes=(*found.notes, *notes)), description)


def _of_images(found: Found, description: Description) -> Description:
    """A description that takes files of images as they are read: [channels, rows, columns].

    The layout and shape of a model's description are those of the arrays that it was made from, and are left out.

    Raises:
        ValueError: the description of these files says another layout or shape.
    """
    given = description.preprocessing
    own = next(iter(found.parts.values())).inputs.shape[1:]
    other = given.layout is ImageLayout.HWC or given.shape is not None and len(given.shape) == 3 and given.shape != own
    if not found.image or not other:
        return description
    if not description.borrowed:
        raise ValueError(f"{description.data}: files of images are read as channels, rows, columns, here {list(own)}; "
                         f"leave `{'layout' if given.layout is ImageLayout.HWC else 'shape'}` out")
    return replace(description, preprocessing=replace(given, layout=None, shape=None))


def _parted(found: Found, description: Description) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """Samples by split: train, test and calibration."""
    parts, notes = dict(found.parts), ()
    named = _named(found, description)
    whole = parts.pop("all", None)
    if whole is not None and "train" not in parts:
        parts["train"] = whole
    for key in "test", "calibration":
        if isinstance(name := getattr(description, key), str):
            parts[key] = _one_part(key, name, named, found.scale)
    if isinstance(description.test, str) or (tuple(parts) != ("train",) and description.test is None):
        return parts, notes
    if "train" not in parts or set(parts) - {"train", "calibration"}:
        if "train" in parts and not description.borrowed:
            raise ValueError(f"{description.data}: test = {description.test:g} is a share of the samples, but the data "
                             "have a test part; leave `test` out")
        return parts, notes
    return _split(parts, description)


def _named(found: Found, description: Description) -> Description:
    """A description that names the inputs of a table, so that those of another one may stand in another order.

    It does not where TOML has no such names, as of the column without one that pandas writes first.
    """
    columns = next((raw.columns for raw in found.parts.values() if raw.columns), ())
    can = len(set(columns)) == len(columns) and all(name and name.isprintable() for name in columns)
    return replace(description, inputs=columns) if columns and can and description.inputs is None else description


def _one_part(part: str, name: str, description: Description, scale: float) -> Raw:
    """The samples of a file that the description names for one part; the other parts have a scale if none is said."""
    table = Path(name).suffix.lower() in TABLES
    inputs = description.inputs if table or not isinstance(description.inputs, tuple) else None
    found = find(replace(description, data=name, inputs=inputs, test=None, calibration=None))
    if isinstance(found, DataSet):
        raise ValueError(f"{name}: a file is needed as {part}, not a function that returns a DataSet")
    if description.preprocessing.scale is None and found.scale != scale:
        raise ValueError(f"{name}: files of images are divided by 255 and arrays are not, and {description.data} is of "
                         "the other kind; give both in one form, or `scale` for both below [preprocessing]")
    chosen = found.parts.get(part, found.parts.get("all"))
    if chosen is None:
        raise ValueError(f"{name}: it has no samples for {part}, but {', '.join(found.parts)}")
    return chosen


def _split(parts: dict[str, Raw], description: Description) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """Part samples by a share and a seed; samples without labels are there to test and to calibrate."""
    whole = parts.pop("train")
    if whole.labels is None or description.task is Task.NONE:
        return {"test": whole, "calibration": whole} | parts, ()
    count = len(whole.inputs)
    if description.test is None and count < 2:
        raise ValueError(f"{whole.location}: one sample cannot be parted into training and test samples; give `test = "
                         "1` or `test = 0` in a TOML file")
    share = SHARE if description.test is None else float(description.test)
    tested = min(max(round(share * count), 1), count - 1) if 0 < share < 1 and count > 1 else round(share * count)
    order = np.random.default_rng(description.seed).permutation(count)
    made = {"train": order[tested:], "test": order[:tested]} if share < 1 else {"test": np.arange(count)}
    note = (f"{whole.location}: {tested:,} of {count:,} samples, a share of {share:g} by seed {description.seed}, are "
            "the test set; `test` in a TOML file changes that")
    notes = (note,) if description.test is None else ()
    return {part: whole.part(chosen) for part, chosen in made.items() if len(chosen)} | parts, notes


def _data_set(parts: dict[str, Raw], found: Found, description: Description) -> DataSet:
    """Samples of every part, in binary16."""
    usual, given = labels.task_of(parts), bool(description.classes)
    task = Task.NONE if description.borrowed and usual is Task.NONE else description.task or usual
    made, names = labels.labelled(parts, task, description.classes or found.classes, given)
    shapes, samples, refused = {}, {}, ""
    for part, raw in parts.items():
        whole = integers(raw, description.preprocessing) if found.scale == 1 else None
        try:
            inputs, lengths, shapes[part] = prepared(raw, description, found.scale)
        except TooLarge as error:
            if whole is None:
                raise
            inputs, lengths, shapes[part] = prepared(
                replace(raw, inputs=np.zeros_like(whole.inputs)), description, found.scale)
            refused = str(error)
        samples[part] = Samples(inputs=inputs, lengths=lengths, labels=made[part], classes=names, raw=whole)
    shape = _equal(parts, shapes, made if task is Task.REGRESSION else {})
    samples = _calibrated(samples, description)
    scale = description.preprocessing.scale or ((found.scale,) if found.scale != 1 else None)
    if task is Task.CLASSIFICATION and names != dataset.names(len(names)):
        description = replace(description, classes=names)
    written = record(replace(_named(found, description), task=task,
                             preprocessing=replace(description.preprocessing, scale=scale)))
    origin: dict[str, int | str] = {name: len(samples[name]) for name in PARTS if name in samples}
    if "test" in samples:
        origin["test_digest"] = digest(samples["test"])
    name = _name(description, found)
    texts = any(raw.labels is not None and raw.labels.dtype.kind in "US" for raw in parts.values())
    named = task is Task.CLASSIFICATION and texts and not given
    return DataSet(name=f"data {name}" if name == NO_DATA else name, task=task, shape=shape,
                   notes=tuple(map(cleaned, found.notes)),
                   order=description.preprocessing.order, sorted_classes=named, refused=refused,
                   image=len(shape) == 3 and _is_image(found, description.preprocessing),
                   description=tomli_w.dumps(written | {ORIGIN: origin}),
                   **{part: samples.get(part) for part in PARTS})


def _is_image(found: Found, preprocessing: Preprocessing) -> bool:
    """Whether samples of three axes are images [channels, rows, columns]."""
    return preprocessing.layout is not None or found.image and preprocessing.shape is None


def _equal(parts: dict[str, Raw], shapes: dict[str, tuple[int, ...]], targets: dict) -> tuple[int, ...]:
    """The shape of all parts.

    Raises:
        ValueError: two parts have samples of different shapes, or different numbers of targets.
    """
    (first, shape), *others = shapes.items()
    for part, other in others:
        if other != shape:
            raise ValueError(f"{parts[part].location}: samples of {part} are {list(other)}, but those of {first} are "
                             f"{list(shape)}")
    widths = {part: array.shape[1] for part, array in targets.items() if array is not None}
    if len(set(widths.values())) > 1:
        raise ValueError(f"{parts[min(widths)].location}: parts have different numbers of targets: {widths}")
    return shape


def _calibrated(samples: dict[str, Samples], description: Description) -> dict[str, Samples]:
    """The parts, with as many calibration samples as the description asks for: training samples, if there are some."""
    count = description.calibration
    if not isinstance(count, int):
        return samples
    source = "train" if "train" in samples else "test"
    available = len(samples[source])
    if count > available - (source == "test"):
        raise ValueError(f"{description.data}: calibration = {count}, but there are {available:,} samples of {source}")
    order = np.random.default_rng(description.seed).permutation(available)
    made = samples | {"calibration": samples[source].part(order[:count])}
    if source == "test":  # they are not measured
        made["test"] = samples["test"].part(np.sort(order[count:]))
    return made


def _name(description: Description, found: Found) -> str:
    """The name of the data set, as models and reports call it, without control characters."""
    return cleaned(_plain_name(description, found))


def _plain_name(description: Description, found: Found) -> str:
    if description.name:
        return description.name
    path = description.path(description.data)
    if found.classes == dataset.FASHION and dataset.is_published(path):
        return "fashion-mnist"
    if found.classes == dataset.VOWELS and dataset.is_published(path):
        return "japanese-vowels"
    if path.is_dir():
        return f"folder {path.resolve().name}"
    return description.data if ":" in description.data else path.resolve().stem
