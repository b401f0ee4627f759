"""Waves of chosen signals: a machine that writes no others, and what a VCD file says of them in each clock cycle.

A signal has a name such as `core.fetch.busy`: the submodules from the machine on, without the numbers that keep names
apart in Verilog, and the signal.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_OFF, _ON = "/*verilator tracing_off*/", "/*verilator tracing_on*/"
_END = b"$enddefinitions $end"
#: A scope that begins, one that ends, or identifier and name of a variable.
_DEFINITION = re.compile(r"\$scope\s+\w+\s+(\S+)|\$(upscope)|\$var\s+\w+\s+\d+\s+(\S+)\s+(\S+)")


def watched(text: str, signals: Collection[str]) -> str:
    """Verilog `text` of a machine `nnp`, of which Verilator traces only the clock and these signals."""
    names = defaultdict(set, {"nnp": {"clk"}})
    for signal in signals:
        module, _, name = signal.rpartition(".")
        names[f"nnp.{module}"].add(name)

    def marked(module: re.Match) -> str:
        wanted = names.get(_plain(module[2]), ())
        body = re.sub(
            r"^  (?:reg|wire|input|output) (?:\[[^\]]+\] )?(\w+) ?(?:=.*)?;$",
            lambda found: f"{_ON}{found[0]}{_OFF}" if found[1] in wanted else found[0],
            module[3],
            flags=re.MULTILINE,
        )
        body = re.sub(r"^  \\nnp\S+ +\S+ +\(", lambda found: _ON + found[0], body, flags=re.MULTILINE)
        return f"{module[1]}{_OFF}{body}{_ON}"

    return re.sub(r"(^module (\S+) ?\([^;]*\);\n)(.*?^endmodule)", marked, text, flags=re.MULTILINE | re.DOTALL)


def _plain(name: str) -> str:
    """A name in Verilog without what keeps it apart from others."""
    return re.sub(r"\$\d+", "", name.removeprefix("\\"))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Waves:
    """Signals of a machine in each clock cycle of a file.

    Attributes:
        cycles:  Number of clock cycles.
        changes: For each signal by its name, the cycles from which on it has a value, and these values.
    """

    cycles: int
    changes: dict[str, tuple[np.ndarray, np.ndarray]]

    def __contains__(self, name: str) -> bool:
        return name in self.changes

    def between(self, name: str, first: int, stop: int) -> np.ndarray:
        """int64[stop - first], the values of a signal in cycles `first` to `stop` - 1, as flip-flops see it.

        Raises:
            KeyError: the file does not have the signal.
        """
        cycles, values = self.changes[name]
        indices = np.clip(np.searchsorted(cycles, np.arange(first, stop), side="right") - 1, 0, None)
        return values[indices]


def read_waves(path: Path, signals: Collection[str]) -> Waves:
    """Read these signals of the one machine in a VCD file, such as Verilator writes; absent ones are left out.

    Raises:
        ValueError: the file is none, or holds no machine or several ones.
    """
    with path.open("rb") as file:
        header = bytearray()
        for line in file:
            header += line
            if line.strip().endswith(_END):
                break
        else:
            raise ValueError(f"{path} is no VCD file: its definitions have no end")
        clocks, names = _variables(bytes(header), path, frozenset(signals))
        times, found = _changes(file, {clocks, *names})
    times, (at, ticks) = np.asarray(times), (np.asarray(part) for part in found[clocks])
    rises = times[at[ticks == 1]]
    changes = {}
    for identifier, of in names.items():
        at, values = (np.asarray(part, np.int64) for part in found[identifier])
        cycles = np.searchsorted(rises, times[at], side="right")  # an edge does not see what changes with it
        last = np.append(cycles[1:] != cycles[:-1], True) if len(cycles) else slice(0)
        changes |= dict.fromkeys(of, (cycles[last], values[last]))
    return Waves(cycles=len(rises), changes=changes)


def _variables(header: bytes, path: Path, signals: Collection[str]) -> tuple[bytes, dict[bytes, list[str]]]:
    """The identifier of the clock, and the signals of each identifier."""
    scopes, clocks, names, tops = [], {}, defaultdict(list), set()
    for scope, ends, identifier, name in _DEFINITION.findall(header.decode(errors="replace")):
        if scope:
            scopes.append(_plain(scope))
        elif ends:
            scopes.pop()
        elif name == "clk":
            clocks[".".join(scopes)] = identifier.encode()
        elif "core" in scopes:
            core = scopes.index("core")
            full = ".".join([*scopes[core:], name])
            if full in signals:
                tops.add(".".join(scopes[:core]))
                names[identifier.encode()].append(full)
    if len(tops) != 1 or not tops <= clocks.keys():
        what = "no machine with its signals" if not tops else f"machines {', '.join(sorted(tops))}"
        raise ValueError(
            f"{path} holds {what}; a trace is made of waves of one machine, as `nnp run --machine cocotb "
            "--waves FILE` writes them"
        )
    return clocks[tops.pop()], names


def _changes(file, identifiers: Collection[bytes]) -> tuple[list[int], dict[bytes, tuple[list, list]]]:
    """The times of a file, and for each identifier the numbers of the times at which it changes, and its values."""
    times, found = [], {identifier: ([], []) for identifier in identifiers}
    for line in file:
        kind = line[:1]
        if kind == b"#":
            times.append(int(line[1:]))
        elif kind == b"b":
            value, _, identifier = line[1:].partition(b" ")
            if (pair := found.get(identifier.rstrip())) is not None:
                pair[0].append(len(times) - 1)
                pair[1].append(int(value.replace(b"x", b"0").replace(b"z", b"0"), 2))
        elif kind in b"01xz" and (pair := found.get(line[1:].rstrip())) is not None:
            pair[0].append(len(times) - 1)
            pair[1].append(int(kind == b"1"))
    return times, found
