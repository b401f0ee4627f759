"""Files that users bring: paths below folders that the operator named, and uploads under names of the server's own."""

from pathlib import Path

from starlette.datastructures import UploadFile

#: For each thing that a user brings, the endings that an upload may have. A TOML description of data can name other
#: files, so data described by one lie in a folder of the operator.
ENDINGS = {"network": (".onnx", ".safetensors"), "data": (".npz", ".npy", ".csv"), "machine": (".toml",)}
#: Bytes that are copied at once.
PART = 2**20


def below(roots: tuple[Path, ...], text: str) -> Path:
    """The file or folder of a path that a user types, below one of the roots.

    Raises:
        ValueError: there is none; of files outside nothing is said, not even whether they exist.
    """
    if not roots:
        raise ValueError("this server names no folder for paths: upload the file, or start it with --root FOLDER")
    for root in roots:
        try:
            found = (root / text).resolve()
            if found.exists() and found.is_relative_to(root.resolve()):
                return found
        except (OSError, ValueError, RuntimeError):  # a name too long, a null byte, a loop of links
            continue
    raise ValueError(f"{text!r}: there is no such file or folder below {', '.join(map(str, roots))}")


async def kept(upload: UploadFile, what: str, folder: Path) -> str:
    """Copy an upload into a folder, and return its name there; only its ending is the user's.

    Args:
        upload: The file.
        what:   What it is, a key of `ENDINGS`.
        folder: Folder to copy it to.

    Raises:
        ValueError: the ending is none of those.
    """
    ending = Path(upload.filename or "").suffix.lower()
    if ending not in ENDINGS[what]:
        raise ValueError(f"{what}: a file ending with {' or '.join(ENDINGS[what])} is needed, not {ending or 'none'!r}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{what}{ending}"
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        while content := await upload.read(PART):
            file.write(content)
    part.replace(path)
    return path.name
