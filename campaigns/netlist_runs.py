"""Shipped networks and random programs on the netlists of machines, bit for bit: `nox -s netlist`.

A netlist is what synthesis for a bitstream makes; Verilator runs it instead of the machine's Verilog. Golden's bits
and event counters must come out, and the machine's own Verilog must have the same counters and cycles. What has ended
without a difference is kept in build/netlist, so that a session that was stopped goes on; it runs anew where a file of
Concord or a model has changed.

`--mutate` changes one bit of one lookup table, and must end with a difference; a bit that makes none is followed by
another one.
"""

import hashlib
import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from concord.campaigns.random_regression import CHUNK, STALLS, case, first_difference
from concord.lib.edition import edition
from concord.sim.machines.host import QUIET, TAKEN, HardwareMachine, MachineTimeout, machine
from concord.sim.machines.kinds import MachineKind
from concord.sim.machines.library import Library
from concord.sim.machines.netlist import count, gates, mutated, netlist_of
from concord.spec.host.registers import Status
from concord.spec.machine.machine_file import find_config, machine_name
from concord.verification.batches import Builds
from concord.verification.inputs import InputSource
from concord.verification.verification import prepare, verify_model
from concord.verification.verified import Request
from rich.console import Console

KEPT = Path("build/netlist")
MODELS = Path(__file__).parents[1] / "data" / "models"
#: Shipped networks that run on the netlist of a preset.
NETWORKS = {"ulx3s": ("fashion-mlp-w4a4",), "vision": ("fashion-resnet-w8", "vowels-lstm-w8")}
TRIES = 4  #: Changed bits, one after another, of which one must be found.
MOST = 300_000  #: Clock cycles that a program may take; random ones take some thousands.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a part of the session found.

    Attributes:
        name:     What ran.
        sentence: The first difference; empty if there is none.
        cycles:   Clock cycles that were simulated.
        seconds:  How long it took.
    """

    name: str
    sentence: str = ""
    cycles: int = 0
    seconds: float = 0.0

    def __str__(self):
        speed = f", {self.cycles:,} cycles" if self.cycles else ""
        return f"{self.name}: {self.sentence or 'equal to the bit'}{speed}, {self.seconds:.0f} s"


class Impatient(HardwareMachine):
    """A machine that may take no more than `MOST` cycles, as one with a fault may never end."""

    def settle(self, quiet: int = TAKEN) -> None:
        if not self.link.settle(quiet, QUIET, MOST):
            raise MachineTimeout(f"messages still move after {MOST:,} cycles")

    def run(self, timeout: int = MOST) -> Status:
        return super().run(timeout)


def programs(preset: str, text: str, seed: int, numbers: range, *, beside: bool = True) -> Ended:
    """Run random programs one after another, up to the first difference.

    Args:
        preset:  Preset or TOML file of the machine.
        text:    Verilog of its netlist.
        seed:    Seed of the programs.
        numbers: Numbers of the programs.
        beside:  Whether the machine's own Verilog runs beside, and must count the same cycles.
    """
    begin, config, number = time.monotonic(), find_config(preset), numbers.start // CHUNK
    gap, stall = STALLS[number % len(STALLS)]
    options: dict[str, Any] = {"seed": seed + number, "gap": gap, "stall": stall}
    name = f"{machine_name(preset)}: programs {numbers.start} to {numbers.stop - 1} of seed {seed}"
    with ExitStack() as stack:
        hardware = stack.enter_context(Impatient(Library(config, text=text, **options)))
        plain = stack.enter_context(machine(MachineKind.LIBRARY, config, **options)) if beside else None
        sentence = ""
        for program in numbers:
            one = case(config, seed, program)
            sentence = first_difference(one, hardware, program)
            if isinstance(plain, HardwareMachine) and not sentence:
                first_difference(one, plain, program)
                sentence = _cycles(hardware, plain)
            if sentence:
                sentence = f"program {program}: {sentence}"
                break
        return Ended(name=name, sentence=sentence or "", cycles=hardware.cycles, seconds=time.monotonic() - begin)


def _cycles(netlist: HardwareMachine, plain: HardwareMachine) -> str:
    """A sentence about the first counter in which two machines differ, or about their cycles; empty if none does."""
    left, right = netlist.counters(), plain.counters()
    wrong = [f"{counter.name} is {value} on the netlist and {right[counter]} on the machine's Verilog"
             for counter, value in left.items() if value != right[counter]]
    if netlist.cycles != plain.cycles:
        wrong.append(f"the netlist took {netlist.cycles} cycles, and the machine's Verilog {plain.cycles}")
    return "; ".join(wrong[:1])


def network(name: str, preset: str, samples: int) -> Ended:
    """Run a shipped network on the netlist of a preset, and compare all bits and events with golden's."""
    begin, console, path = time.monotonic(), Console(file=io.StringIO()), MODELS / f"{name}.safetensors"
    source = InputSource(inputs=None, data=None, samples=str(samples), first=0, default=samples)
    request = Request(path=path, location=str(path), source=source, preset=preset, kind=MachineKind.NETLIST, jobs=1,
                      folder=KEPT / "reports", waves=False)
    with Builds(MachineKind.NETLIST, [(find_config(preset),)]) as builds:
        done = verify_model(prepare(request, console), builds, console)
    wrong = done.bits + (done.reference_bits or 0)
    sentence = f"{wrong} bits and {len(done.events)} event counters differ" if wrong or done.events else ""
    return Ended(name=f"{machine_name(preset)}: {name}, {samples} samples", sentence=sentence,
                 seconds=time.monotonic() - begin)


def _found(preset: str, made: dict, seed: int, count: int, console: Console) -> bool:
    """Whether random programs find a changed bit; some bits make no difference, as their inputs never come."""
    changed, said = mutated(made, "nnp", np.random.default_rng(seed))
    done = programs(preset, gates(changed, "nnp"), seed, range(count), beside=False)
    console.print(f"{said}\n{done}", highlight=False, soft_wrap=True, markup=False)
    return bool(done.sentence)


def parts(preset: str, text: str, count: int, samples: int, seed: int, *, plain: bool) -> Iterator[tuple]:
    """What runs on a machine: functions and their arguments. Networks run on whole netlists only."""
    for first in range(0, count, CHUNK):
        yield programs, (preset, text, seed, range(first, min(first + CHUNK, count)))
    for name in () if plain else NETWORKS.get(machine_name(preset), ()):
        yield network, (name, preset, samples)


def kept_path(function, arguments: tuple, text: str) -> Path:
    """The file of what a part found, named after all that decides it: edition, machine, netlist and model among it."""
    name, preset = arguments[:2] if function is network else ("", arguments[0])
    model = hashlib.sha256((MODELS / f"{name}.safetensors").read_bytes()).hexdigest() if name else ""
    described = repr((function.__name__, [each for each in arguments if each is not text], text, edition(),
                      find_config(preset).digest, model))
    return KEPT / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.json"


def kept(function, arguments: tuple, text: str) -> Ended:
    """What a part found, as it was kept, or run now; a difference is not kept."""
    path = kept_path(function, arguments, text)
    if path.exists():
        return Ended(**json.loads(path.read_text()))
    done = function(*arguments)
    if not done.sentence:
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(done)))
    return done


def main(
    preset: Annotated[list[str] | None, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine. May be repeated.",
        show_default="ulx3s and vision")] = None,
    count_of: Annotated[int, typer.Option("--programs", help="Number of random programs, over all machines.")] = 200,
    samples: Annotated[int, typer.Option(help="Number of samples of each network.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the programs, and of the changed bit.")] = 1,
    mutate: Annotated[bool, typer.Option(
        "--mutate", help="Change one bit of one lookup table, which must be found.")] = False,
    plain: Annotated[bool, typer.Option(
        "--plain", help="Netlists without multipliers and block RAM: random programs alone.")] = False,
) -> None:
    """Run networks and programs on netlists; the exit code is 1 if a bit differs, or a changed one is not found."""
    console, wrong = Console(width=None if sys.stdout.isatty() else 120), 0
    presets = preset or list(NETWORKS)
    for one in presets:
        begin = time.monotonic()
        console.print(f"{machine_name(one)}: netlist, which takes minutes where none has been made before",
                      highlight=False)
        made = netlist_of(find_config(one), plain=plain)
        cells = ", ".join(f"{number:,} {kind}" for kind, number in count(made, "nnp").items())
        console.print(f"{machine_name(one)}: {cells}; {time.monotonic() - begin:.0f} s", highlight=False)
        share = -(-count_of // len(presets))
        if mutate:
            wrong += not any(_found(one, made, number, share, console) for number in range(seed, seed + TRIES))
            continue
        text = gates(made, "nnp")
        for function, arguments in parts(one, text, share, samples, seed, plain=plain):
            done = kept(function, arguments, text)
            console.print(str(done), highlight=False, soft_wrap=True, markup=False)
            wrong += bool(done.sentence)
    console.print(f"{wrong} machines on which no changed bit was found" if mutate else f"{wrong} differences")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
