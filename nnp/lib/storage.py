"""Files at URLs beside files here: fsspec brings `https://`, `s3://` and others, and is imported for a URL only."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath


def is_url(place: str) -> bool:
    """Whether a place is not a path on this computer."""
    return "://" in place


def file_name(place: str) -> str:
    """The last part of a path or URL, fit for a file here."""
    if not is_url(place):
        return Path(place).name
    return PurePosixPath(place.partition("?")[0]).name.lstrip(".") or "file"


@contextmanager
def fetched(place: str) -> Iterator[Path]:
    """A file to read: a path as it is; of a URL a copy, which lasts as long as the context.

    Raises:
        ValueError: nothing can be fetched from there.
    """
    if not is_url(place):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        path = Path(folder, file_name(place))
        with _sentences(place):
            files, where = _file_system(place)
            files.get_file(where, str(path))
        try:
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), place)) from error


@contextmanager
def written(place: str) -> Iterator[Path]:
    """A file to write: a path as it is; what is written for a URL goes there as the context ends, whole or not at all.

    Raises:
        ValueError: nothing can be written there, which is told before the context begins where that can be known.
    """
    if not is_url(place):
        if Path(place).is_dir():
            raise ValueError(f"{place}: it is a folder; name the file, too")
        yield Path(place)
        return
    with _sentences(place):
        if place.endswith("/"):
            raise ValueError("name the file, too")
        files, where = _file_system(place)
        if place.startswith(("http://", "https://")):
            raise NotImplementedError
    folder = Path(tempfile.mkdtemp(prefix="nnp-"))
    path = folder / file_name(place)
    try:
        yield path
    except BaseException:
        shutil.rmtree(folder)
        raise
    # The file takes its name as the transaction ends, and no earlier.
    with (_sentences(place, f"; {path} holds what was to be there"), path.open("rb") as source, files.transaction,
          files.open(where, "wb") as target):
        shutil.copyfileobj(source, target)
    shutil.rmtree(folder)


def read_model(place: str):
    """The model at a path or URL; as `model.model_file.load_model`."""
    from concord.model.model_file import load_model

    with fetched(place) as path:
        return load_model(path)


def _file_system(place: str):
    """The file system of a URL, and where the file is in it."""
    from fsspec.core import url_to_fs

    return url_to_fs(place)


@contextmanager
def _sentences(place: str, more: str = ""):
    """Errors of file systems, which are of any kind, as sentences about a place."""
    try:
        yield
    except FileNotFoundError as error:
        raise ValueError(f"{place}: there is no such file or folder{more}") from error
    except ImportError as error:
        raise ValueError(f"{place}: this kind of URL needs one more package: {error}{more}") from error
    except NotImplementedError as error:
        raise ValueError(f"{place}: URLs of this kind cannot be written to; use s3:// or file://, or a path{more}"
                         ) from error
    except Exception as error:
        raise ValueError(f"{place}: {error or type(error).__name__}{more}") from error
