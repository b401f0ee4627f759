"""Lint of whole machines: the Verilog of every preset, of random machines, of accelerators and of the units of a core
that trains has no warning but those that are waived.

`nox -s lint_machines -- --machines 40 --seed 7` lints other random machines.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from concord.handover.integration import package, verilog_files
from concord.hw.accelerator.accelerator import Accelerator as AcceleratorTop
from concord.hw.nnp import NNP
from concord.hw.units import component, in_trainers
from concord.lib.processes import CORES, calls
from concord.sim.machines.build import environment
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.machine.config import PRESETS, Config
from concord.spec.numbers.formats import Format, Rule
from concord.spec.trainer.config import TrainerConfig
from concord.workflows.presets import is_hardware
from rich.console import Console


def random_machine(seed: int) -> Config:
    """A small machine for which hardware can be generated; any of its attributes may differ from those of a preset."""
    rng = Random(seed)
    while True:
        try:
            config = Config(**_attributes(rng))
            config.require_hardware()
        except ValueError:  # the attributes do not go together
            continue
        return config


def _attributes(rng: Random) -> dict:
    engines, depth = rng.choice((1, 2, 4)), lambda: rng.randint(3, 80)
    weights = Format.floating(rng.randint(2, 3), 0) if rng.random() < 0.2 else _format(rng)
    return {
        "native_dim": rng.choice((2, 4, 8, 16)), "lanes": rng.choice((1, 2, 4, 8)), "tile_engines": engines,
        "multipliers": 0 if weights.precision else rng.choice((0, 3, 40)), "mfu_lanes": rng.choice((2, 4)),
        "weights": weights, "activations": _format(rng), "acc_int": rng.randint(4, 40), "acc_frac": rng.randint(8, 40),
        "bias_bits": rng.randint(2, 32), "product_bits": rng.randint(4, 32), "output_bits": rng.randint(4, 32),
        "count_overflows": rng.random() < 0.5, "vector_rf": engines * rng.choice((0, 7, 16)),
        "matrix_tiles": engines * rng.randint(4, 20), "instructions": rng.randint(20, 300),
        **{name: depth() for name in ("initial_vrf", "addsub_vrf", "multiply_vrf", "net_in", "net_out", "mvmq_words",
                                      "bias_words", "accumulator_rows", "operand_columns")},
        "chain_queue": rng.randint(1, 9), "message_bytes": rng.choice((4, 8, 16)),
        "lazy_update": rng.random() < 0.2, "softmax_words": rng.choice((0, 0, 5)),
        "more_functions": rng.random() < 0.2, "mfu_registers": rng.choice((0, 0, 3)),
        "partial_sums": rng.choice((0, 0, 0, 5)),
        **(_outside(rng) if rng.random() < 0.3 else {})}


def _outside(rng: Random) -> dict:
    return {"dram_words": rng.randint(1000, 1 << 20), "dram_bus": rng.choice((4, 8, 16, 32, 64))}


def _format(rng: Random) -> Format:
    low = rng.randint(-15, 0)
    return Format(bits=rng.randint(2, 9), symmetric=rng.random() < 0.5, e_min=low, e_max=low + rng.randint(0, 15),
                  rule=rng.choice(list(Rule)))


def warnings(files: Mapping[str, str], name: str = "nnp") -> str:
    """What Verilator prints about the files that `nnp verilog` writes for a top of this name."""
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            Path(folder, file).write_text(text)
        words = ["verilator", "--lint-only", "--top-module", name, f"{name}.vlt", f"{name}.v"]
        return subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False).stderr


def linted(config: Config | Accelerator | str) -> str:
    """The warnings about the Verilog of a machine, an accelerator, or a unit of a core that trains."""
    if isinstance(config, Config):
        return warnings(package(NNP(config), "nnp", "", config))
    if isinstance(config, Accelerator):
        return warnings(verilog_files(AcceleratorTop(config), "accelerator", "", config), "accelerator")
    return warnings(verilog_files(component(config, PRESETS["tiny"]), config, "", TrainerConfig()), config)


def main(
    machines: Annotated[int, typer.Option(help="Number of random machines.", min=0)] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the first random machine; each further one has the next.")] = 1,
    processes: Annotated[int, typer.Option("-n", help="Number of processes.")] = CORES,
) -> None:
    """Lint the Verilog of every preset, of random machines, and of cores that train, alone and together."""
    chosen: dict[str, Any] = {name: config for name, config in PRESETS.items() if is_hardware(config)}
    chosen |= {f"random machine {number}": random_machine(number) for number in range(seed, seed + machines)}
    chosen |= {"two cores that train": Accelerator(cores=(TrainerConfig(),) * 2, memory_bytes=1 << 30),
               "a core that trains beside trainer": Accelerator(cores=(TrainerConfig(), PRESETS["trainer"]),
                                                                memory_bytes=1 << 30)}
    chosen |= {name: name for name in in_trainers()}
    names = {config: name for name, config in chosen.items()}
    console, faulty = Console(), 0
    for (config,), found in calls(linted, [(config,) for config in names], processes):
        faulty += bool(found)
        console.print(f"{names[config]}: {found or 'no warnings'}", markup=False, highlight=False)
        if found:
            console.print(f"  {config}", markup=False, highlight=False)
    console.print(f"{len(names)} machines, {faulty} with warnings")
    raise typer.Exit(faulty > 0)


if __name__ == "__main__":
    typer.run(main)
