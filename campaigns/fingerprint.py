"""A fingerprint of all results: commits with equal fingerprints compute the same bits in the same number of cycles.

`nox -s fingerprint -- --out before.json` writes one; `nox -s fingerprint -- --against before.json` takes another and
compares. `--machines` takes the digests of the presets and the hashes of their Verilog alone. Only numbers are hashed,
in the order of registers and addresses, so that renaming does not change them.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.network_prints import MACHINES, counted, digest, joined, network_prints, stored
from concord.campaigns.random_regression import CHUNK, STALLS, case
from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.firmware.cascade import Cascade
from concord.lib.processes import side_by_side
from concord.net.model import Model
from concord.net.model_file import load_model
from concord.sim.machines.host import build, machine
from concord.sim.machines.library import nnp_verilog
from concord.sim.machines.scoreboard import play
from concord.sim.units import CONFIGURATIONS
from concord.spec.machine.config import PRESETS, preset
from concord.verification.batches import run_all
from concord.workflows.presets import compile_for
from rich.console import Console
from rich.table import Table

KINDS = ("golden", "library")
#: Results of a program on a machine; for networks, `ends` and `memories` are left out.
PARTS = ("ends", "outputs", "memories", "events", "times")
SEED = 1  #: Seed of the random programs.
SHOWN = 8  #: Most differing entries that a comparison names.


def one_program(config: str, number: int) -> dict:
    """Hashes of random program number `number`, and of its results on each kind of machine.

    Every program runs on a new machine, so that its stalls depend only on its number.
    """
    one, (gap, stall) = case(preset(config), SEED, number), STALLS[number // CHUNK % len(STALLS)]
    found = {"words": digest([np.array(one.program, np.uint64)]),
             "data": digest([one.pool, *(np.frombuffer(sent, np.uint8) for sent in one.memory)])}
    for kind in KINDS:
        with machine(kind, one.config, seed=SEED + number, gap=gap, stall=stall) as nnp:
            outcome = play(one, nnp, late=number % 2 == 1)
            found["error"] = int(outcome.error)
            found[kind] = {
                "ends": digest([[int(outcome.status), int(outcome.error), outcome.address]]),
                "outputs": digest(np.frombuffer(sent.payload, np.uint8) for sent in outcome.outputs),
                "memories": digest(words for _, words in sorted(outcome.memories.items())),
                **counted(nnp.counters())}
    return found


def some_programs(config: str, first: int, last: int) -> tuple[str, int, list[dict]]:
    """The entries of random programs [first, last) of a configuration."""
    return config, first, [one_program(config, number) for number in range(first, last)]


def programs(count: int, processes: int, console: Console) -> dict:
    """Hashes of `count` random programs, an equal number for each configuration: a total, and one for each program."""
    share = -(-count // len(CONFIGURATIONS))
    jobs = [(config, first, min(first + CHUNK, share))
            for first in range(0, share, CHUNK) for config in CONFIGURATIONS]
    chunks = sorted(side_by_side("random programs", some_programs, jobs, console, processes), key=lambda done: done[1])
    result = {}
    for config in CONFIGURATIONS:
        found = [one for name, _, part in chunks if name == config for one in part]
        errors = Counter(one["error"] for one in found)
        result[config] = {
            "programs": len(found), "errors": {str(error): errors[error] for error in sorted(errors)},
            **{what: joined(one[what] for one in found) for what in ("words", "data")},
            **{kind: {part: joined(one[kind][part] for one in found) for part in PARTS}
               | {"cycles": sum(one[kind]["cycles"] for one in found)} for kind in KINDS},
            "program": {str(number): joined(one[kind][part] for kind in KINDS for part in PARTS)
                        for number, one in enumerate(found)}}
    return result


def network(model: Model, samples: int, processes: int) -> dict:
    """Hashes of a network's results on its test set, for the preset that `nnp verify` chooses."""
    name, compiled = compile_for(model, "")
    part = dataset.load(model.data).first(samples)
    outcomes = run_all(
        Cascade.of(compiled.firmware), part, list(KINDS), jobs=processes, progress=lambda kind, count: None)
    return {"preset": name, "samples": len(part)} | {
        kind: {"outputs": digest([done.outputs]), **counted(done.counters[0])} for kind, done in outcomes.items()}


def firmware(model: Model) -> dict[str, dict[str, str]]:
    """Hashes of a network's program and of the messages that fill its memories, for each preset that can run it."""
    found = {}
    for name, config in PRESETS.items():
        try:
            found[name] = stored(compile_network(model, config).firmware)
        except ValueError:  # the preset cannot run the network
            continue
    return found


def one_machine(name: str) -> tuple[str, dict[str, str]]:
    """The digest of a preset, and the hash of its Verilog; none where hardware does not take the machine."""
    config = preset(name)
    try:
        verilog = digest([np.frombuffer(nnp_verilog(config).encode(), np.uint8)])
    except ValueError:
        verilog = "none"
    return name, {"digest": f"{config.digest:08x}", "verilog": verilog}


def builds(names: set[str], console: Console) -> None:
    """Build the machines one after another, and print how long each build took when it was made."""
    for name in sorted(names):
        built = build("library", preset(name))
        assert built is not None
        folder = built.parent
        console.print(f"{name}: Verilated in {(folder / 'done').read_text().strip()} s")


def show(found: dict, console: Console) -> None:
    """Print everything except the hashes of single programs."""
    table = Table("preset", "digest", "Verilog", title="Machines")
    for name, row in found["machines"].items():
        table.add_row(name, row["digest"], row["verilog"])
    console.print(table)
    if len(found) == 1:
        return
    table = Table("what", "machine", *PARTS, "cycles", title="Fingerprint")
    for name, row in (found["networks"] | found["programs"]).items():
        count = f"{row['samples']} samples" if "samples" in row else f"{row['programs']} programs"
        for kind in KINDS:
            digests = (row[kind].get(part, "") for part in PARTS)
            table.add_row(f"{name}, {count}", kind, *digests, f"{row[kind]['cycles']:,}")
    console.print(table)
    table = Table("network", *PRESETS, title="Program words of the firmware")
    for name, row in found["firmware"].items():
        table.add_row(name, *(row[where]["words"] if where in row else "-" for where in PRESETS))
    console.print(table)
    made = [row for row in found["random networks"].values() if "words" in row]
    cycles = sum(row["library"]["cycles"] for row in made if "library" in row)
    outputs = joined(row["golden"]["outputs"] for row in made)
    console.print(f"random networks: {len(made)} of {len(found['random networks'])} compiled, words "
                  f"{joined(row['words'] for row in made)}, outputs {outputs}, {cycles:,} cycles on presets")
    for name, row in found["programs"].items():
        counts = ", ".join(f"{count} with error {error}" for error, count in row["errors"].items())
        console.print(f"{name}: words {row['words']}, data {row['data']}; {counts}")


def entries(found: dict, where: tuple[str, ...] = ()) -> dict[str, object]:
    """Every value of nested dictionaries under its path."""
    flat = {}
    for key, value in found.items():
        path = (*where, key)
        flat |= entries(value, path) if isinstance(value, dict) else {"/".join(path): value}
    return flat


def difference(old: dict, new: dict) -> str | None:
    """A sentence about entries of an old fingerprint that a new one lacks or has with other values, or None."""
    before, after = entries({part: old[part] for part in old if part in new}), entries(new)
    wrong = [f"{path} was {value} and is {after.get(path, 'missing')}"
             for path, value in before.items() if after.get(path) != value]
    more = f"; and {len(wrong) - SHOWN} more" * (len(wrong) > SHOWN)
    return f"{len(wrong)} of {len(before)} entries differ: {'; '.join(wrong[:SHOWN])}{more}" if wrong else None


def main(
    count: Annotated[int, typer.Option(
        "--programs", help="Number of random programs, over all configurations.")] = 2000,
    drawn: Annotated[int, typer.Option("--networks", help="Number of random networks, over all kinds.")] = 200,
    samples: Annotated[int, typer.Option(help="Number of samples of each shipped network.")] = 200,
    out: Annotated[Path, typer.Option(help="File to write the fingerprint to.")] = Path("build/fingerprint.json"),
    against: Annotated[Path | None, typer.Option(
        exists=True, dir_okay=False, help="File of an earlier fingerprint to compare with.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of simulations that run at the same time.")] = 2,
    *,
    only_machines: Annotated[bool, typer.Option(
        "--machines", help="Digests of the presets, and hashes of their Verilog, alone.")] = False,
) -> None:
    """Compute the fingerprint; the exit code is 1 if it differs from an earlier one."""
    console, began = Console(width=None if sys.stdout.isatty() else 150), time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(against.read_text()) if against else {}
    made = dict(side_by_side("machines", one_machine, [(name,) for name in PRESETS], console, processes))
    found = {"machines": {name: made[name] for name in PRESETS}}
    paths = [] if only_machines else sorted((dataset.DATA / "models").glob("*.safetensors"))
    models = {path.stem: load_model(path) for path in paths}
    if models:
        builds({compile_for(model, "")[0] for model in models.values()} | {*CONFIGURATIONS, *MACHINES}, console)
        found |= {"firmware": {name: firmware(model) for name, model in models.items()},
                  "networks": {name: network(model, samples, processes) for name, model in models.items()},
                  "random networks": network_prints(drawn, processes, console),
                  "programs": programs(count, processes, console)}
    out.write_text(json.dumps(found, indent=1) + "\n")
    show(found, console)
    console.print(f"{out}: written after {time.monotonic() - began:.0f} s", soft_wrap=True)
    if sentence := difference(old, found):
        typer.echo(f"{out} is not {against}: {sentence}", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
