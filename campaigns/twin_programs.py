"""Random programs as twins in numpy, compared with golden: `nox -s twin_programs`.

A program and the random contents of all memories become firmware, and the firmware source in numpy, word by word. What
the source returns for several inputs, the outputs and the final content of every memory that the host can read, must
have golden's bits.
"""

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from concord.firmware.firmware import Entries, Firmware, Tiles
from concord.golden.host.messages import words_of
from concord.golden.machine import Machine
from concord.lib.processes import calls
from concord.sim.stimulus.programs import Case, random_program
from concord.sim.stimulus.random_values import random_words
from concord.sim.units import CONFIGURATIONS, WITH_REDUCTIONS, WITH_SOFTMAX
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Register
from concord.spec.isa.memories import VRFS, Mem, depth
from concord.spec.machine.machine_file import find_config
from concord.twin.flow.flow_of import flow_of
from concord.twin.generic.generic import generic, loaded_tiles
from concord.twin.lib.run import arrays, run
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import write_twin
from concord.twin.vocabulary import word_functions
from rich.console import Console

SAMPLES = 2  #: Inputs of each program, which the twin computes as one batch.
CHUNK = 10  #: Programs that a process takes at once.


def main(
    programs: Annotated[int, typer.Option(help="Number of random programs, over all configurations.", min=1)] = 650,
    seed: Annotated[int, typer.Option(help="Seed of the programs.")] = 1,
    config: Annotated[list[str] | None, typer.Option(
        help="Name of a preset, or TOML file of a machine. May be repeated.")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of processes.")] = 1,
) -> None:
    """Turn random programs into twins, and compare them with golden."""
    console, configs = Console(), config or [*CONFIGURATIONS, WITH_SOFTMAX, WITH_REDUCTIONS]
    share = -(-programs // len(configs))
    jobs = [(name, seed, range(first, min(first + CHUNK, share))) for name in configs
            for first in range(0, share, CHUNK)]
    failures = [failure for _, found in calls(chunk, jobs, processes) for failure in found]
    console.print(*failures, sep="\n", markup=False, soft_wrap=True)
    console.print(f"{share * len(configs)} programs, {len(failures)} of them with differing bits")
    raise typer.Exit(bool(failures))


def chunk(config: str, seed: int, programs: range, *, written: bool = True) -> list[str]:
    """A sentence for each program whose twin differs from golden; the other arguments are those of `differences`."""
    failures = []
    for program in programs:
        case = random_program(find_config(config), np.random.default_rng([seed, program]))
        wrong = differences(case, seed, written=written)
        if wrong:
            failures.append(f"{config}, seed {seed}, program {program}: {', '.join(wrong)}")
    return failures


def differences(case: Case, seed: int, *, written: bool = True) -> list[str]:
    """Names of what differs between the twin of a program and golden, for the words of the case and for others.

    Args:
        case:    The program.
        seed:    Seed of the other words.
        written: Whether the source is written and run, which takes longer, or only what the source says is run.
    """
    config, rng = case.config, np.random.default_rng(seed)
    final = [mem for mem in (*VRFS, Mem.VECTOR_RF, Mem.MATRIX_RF) if depth(config, mem)]
    pools = [case.pool, *(random_words(config, rng, case.taken, wild=True) for _ in range(SAMPLES - 1))]
    inputs = np.stack([pool[:case.taken].reshape(-1) for pool in pools]).view(np.float16)
    flow = flow_of(firmware_of(case))
    script, loaded = generic(flow, final), loaded_tiles(flow)
    results = (_source_results if written else _script_results)(script, inputs)
    wrong = []
    for sample, pool in enumerate(pools):
        wanted = golden_results(case, pool, loaded)
        for (name, right), got in zip(wanted.items(), results, strict=True):
            mine = got[sample].view(np.uint16) if right.dtype == np.uint16 else got[sample]
            if not np.array_equal(mine, right):
                wrong.append(f"{name} of input {sample}")
    return wrong


def _source_results(script, inputs):
    with TemporaryDirectory(prefix="twin-") as folder:
        return runpy.run_path(str(write_twin(script, Framework.NUMPY, Path(folder), "program")))["Twin"]()(inputs)


def _script_results(script, inputs):
    with np.errstate(all="ignore"):
        return run(script, inputs, word_functions, arrays(script))


def firmware_of(case: Case) -> Firmware:
    """The firmware that fills the memories as the messages of a case do."""
    config, machine = case.config, Machine(case.config)
    for message in case.memory:
        machine.send(message)
    memory, entries = machine.memory, ()
    if config.vector_rf:
        entries = (Entries(address=0, mantissas=memory.entries.mantissas,
                           exponents=(memory.entries.exponents + config.activations.e_min).astype(np.int8)),)
    tiles = Tiles(mantissas=memory.matrix.mantissas, integer=np.array(case.modes, bool),
                  exponents=(memory.matrix.exponents + config.weights.e_min).astype(np.int8))
    return Firmware(
        name="random", config=config, data="", classes=(), inputs=case.taken * config.mfu_lanes, outputs=1, loop=None,
        text=case.text, instruction_words=np.array(case.program, np.uint64), sections=(), tiles=tiles, entries=entries,
        vectors={mem: np.asarray(words) for mem, words in memory.vectors.items()},
        biases=memory.biases.astype(np.int32))


def golden_results(case: Case, pool: np.ndarray, loaded: list[int]) -> dict[str, np.ndarray]:
    """What golden returns for the words `pool` in NetQ, by name: outputs, if there are any, and final memories.

    Words are uint16[n, M]; VectorRf has mantissas [entries, N] and exponents [entries, 1]; MatrixRf has the values of
    the tiles that the program has loaded.
    """
    machine, config = Machine(case.config), case.config
    for message in case.setup:
        machine.send(message)
    machine.memory.net_in.put(pool[:case.taken])
    machine.start()
    machine.run()
    if machine.read_register(Register.ERROR):
        raise ValueError(f"the program stops with error {machine.read_register(Register.ERROR)}")
    sent = [words_of(config, unpack(config, data, to_machine=False)) for data in machine.receive()]
    found = {"outputs": np.concatenate(sent)} if sent else {}
    found |= {mem.title: np.asarray(machine.memory.vectors[mem]) for mem in VRFS}
    if config.vector_rf:
        entries = machine.memory.entries
        found["mantissas of VectorRf"] = entries.mantissas
        found["exponents of VectorRf"] = entries.exponents[:, None] + config.activations.e_min
    if loaded:
        found["MatrixRf"] = _values(config, machine.memory.matrix, loaded)
    return found


def _values(config, matrix, tiles):
    """float64[tiles, N, N], the integers or real numbers of tiles."""
    units = matrix.exponents[tiles] + config.weights.e_min - config.weights.bits + 1
    integer = np.array(matrix.modes)[tiles, None]
    return np.ldexp(matrix.mantissas[tiles].astype(np.float64), np.where(integer, 0, units)[..., None])


if __name__ == "__main__":
    typer.run(main)
