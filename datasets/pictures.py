"""Data sets in folders of images: a folder for each class, whose name is that of the class."""

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from concord.datasets.description import Description
from concord.datasets.raw import Found, Raw, check_size
from concord.lib.names import cleaned

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".gif", ".webp", ".tif", ".tiff"})
#: Formats that are read, by the names that Pillow gives them.
FORMATS = ("PNG", "JPEG", "BMP", "PPM", "GIF", "WEBP", "TIFF")
#: Most pixels of one image.
PIXELS = 2**24
GREY, COLOUR = frozenset({"1", "L", "LA"}), frozenset({"P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"})


def found(folder: Path, description: Description) -> Found:
    """The images of a folder, in an order that the description's seed shuffles; folders train and test are parts.

    Raises:
        ValueError: there are no images, or they cannot be read or have different sizes.
    """
    roots = {part: folder / part for part in ("train", "test") if _folders(folder / part)} or {"all": folder}
    files = {part: _listed(root) for part, root in roots.items()}
    classes = tuple(sorted({cleaned(name) for listed in files.values() for name, _ in listed}))
    if not classes:
        raise ValueError(f"{folder}: it holds no data: neither a folder of images for each class, nor x.npy, nor "
                         "t10k-images-idx3-ubyte.gz, nor JapaneseVowels_TEST.ts")
    rows, columns, channels = _form([path for listed in files.values() for _, path in listed], description)
    parts = {}
    for part, listed in files.items():
        order = np.random.default_rng(description.seed).permutation(len(listed))
        listed = [listed[index] for index in order]
        pixels = np.empty((len(listed), channels, rows, columns), np.uint8)
        for index, (_, path) in enumerate(listed):
            pixels[index] = _pixels(path, (columns, rows), channels)
        labels = np.array([name for name, _ in listed])
        parts[part] = Raw(inputs=pixels, labels=labels, lengths=None, location=str(roots[part]))
    kind = "grey" if channels == 1 else "red, green and blue"
    return Found(parts=parts, classes=classes, scale=1 / 255, image=True, notes=(
        f"{folder}: {sum(map(len, files.values())):,} images of {rows} x {columns} pixels, {kind}",))


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _listed(root: Path) -> list[tuple[str, Path]]:
    """Class and path of each image below a folder."""
    return [(folder.name, path) for folder in _folders(root) for path in sorted(folder.iterdir())
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")]


def _form(paths: list[Path], description: Description) -> tuple[int, int, int]:
    """Rows, columns and channels of all images, from their headers."""
    modes, sizes = set(), Counter()
    examples = {}
    for path in paths:
        with _opened(path) as image:
            modes.add(image.mode)
            sizes[image.size] += 1
            examples.setdefault(image.size, path)
    if description.preprocessing.size:
        rows, columns = description.preprocessing.size
    elif len(sizes) == 1:
        columns, rows = next(iter(sizes))
    else:
        (most, _), (other, _) = sizes.most_common(2)
        raise ValueError(f"{examples[other]}: {other[1]} x {other[0]} pixels, but {examples[most]} has {most[1]} x "
                         f"{most[0]}; give `size = [rows, columns]` below [preprocessing] to scale all of them")
    channels = 1 if modes <= GREY else 3
    check_size(str(paths[0].parents[1]), (len(paths), channels, rows, columns), 1)
    return rows, columns, channels


def _opened(path: Path):
    """An image whose header is read.

    Raises:
        ValueError: it is no image that can be read, or too large.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
            image = Image.open(path, formats=FORMATS)
    except Exception as error:  # Pillow's readers raise errors of many classes for damaged files
        raise ValueError(f"{path}: not an image that can be read ({error})") from error
    columns, rows = image.size
    if columns * rows > PIXELS:
        image.close()
        raise ValueError(f"{path}: {rows} x {columns} pixels; at most {PIXELS:,} are read")
    if image.mode not in GREY | COLOUR:
        image.close()
        raise ValueError(f"{path}: its pixels are of mode {image.mode}; images of 8 bits for each channel are read")
    return image


def _pixels(path: Path, size: tuple[int, int], channels: int) -> np.ndarray:
    """uint8[channels, rows, columns]; transparency is left out."""
    with _opened(path) as image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = image.convert("L" if channels == 1 else "RGB")
                if made.size != size:
                    made = made.resize(size)
                pixels = np.asarray(made)
        except Exception as error:  # see `_opened`
            raise ValueError(f"{path}: not a whole image ({error})") from error
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
