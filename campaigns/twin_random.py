"""Software twins of random networks beside golden: `nox -s twin_random`.

Each network is compiled, and its twin recovered with the names of the firmware and without them. Networks that the
machine cannot hold are drawn again.
"""

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np
from concord.campaigns.makers import networks
from concord.campaigns.makers.any_networks import KINDS, Drawn, draw
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.firmware.firmware import Firmware
from concord.firmware.session import outputs_of
from concord.twin.lib.run import run
from concord.twin.lib.script import Call, Line, Script, SequenceLoop
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.vocabulary import numpy_functions, word_functions


@dataclass(frozen=True, kw_only=True, slots=True)
class TwinOutcome:
    """What became of a network.

    Attributes:
        layers:  Whether it was recovered in layers, with hints and without them.
        wrong:   What is wrong; empty if nothing is.
        tables:  Number of stored tables that the twin reads.
        seconds: Time of both recoveries, s.
    """

    layers: bool
    wrong: str
    tables: int
    seconds: float


def compiled(kind: str, seed: int) -> tuple[Firmware, np.ndarray]:
    """The firmware of a random network, and binary16 patterns uint16[2, ...] of samples.

    Raises:
        ValueError: there is no such network, or the machine cannot compute it, or lacks room for it.
    """
    return _compiled(draw(kind, seed))


def compiled_if_held(kind: str, seed: int) -> tuple[Firmware, np.ndarray] | None:
    """The same, or None where there is no such network, or the machine cannot hold it.

    Raises:
        ValueError: the compiler refuses the network for another reason.
    """
    try:
        drawn = draw(kind, seed)
    except ValueError:
        return None
    try:
        return _compiled(drawn)
    except CannotRun:
        return None


def _compiled(drawn: Drawn) -> tuple[Firmware, np.ndarray]:
    samples = networks.inputs(np.random.default_rng(0), 2, *drawn.shape)
    return compile_network(drawn.model, drawn.config).firmware, samples


def outcome(firmware: Firmware, samples: np.ndarray) -> TwinOutcome:
    """The twins of a network beside golden."""
    wanted, seconds, tables = outputs_of("golden", firmware, samples), 0.0, 0
    for hints, each in (("with hints", firmware), ("without hints", without_hints(firmware))):
        begun = time.perf_counter()
        try:
            script = recover(each)
        except Unrecognised as error:
            return TwinOutcome(layers=False, wrong=f"word by word {hints}: {error}", tables=0, seconds=0)
        seconds += time.perf_counter() - begun
        if not np.array_equal(results(script, samples), wanted):
            return TwinOutcome(layers=True, wrong=f"other bits {hints}", tables=0, seconds=seconds)
        tables = max(tables, sum(call.function == "take" for call in calls(script)))
    return TwinOutcome(layers=True, wrong="", tables=tables, seconds=seconds)


def results(script: Script, samples: np.ndarray) -> np.ndarray:
    """uint16[samples, outputs], the results of a script for samples of binary16 patterns."""
    with np.errstate(all="ignore"):
        found = run(script, samples.view(np.float16), word_functions)
        return numpy_functions.canonical(found).view(np.uint16).reshape(len(samples), -1)


def calls(script: Script) -> list[Call]:
    """All calls of a script, those in loops too."""
    found: list[Call] = []

    def add(lines: tuple[Line, ...]):
        for line in lines:
            if isinstance(line, SequenceLoop):
                add(line.body)
            else:
                found.append(line)

    for routine in (*script.routines, script.main):
        add(routine.body)
    return found


def main():
    """Compare the twins of random networks with golden.

    The exit code is 1 if one is wrong or not in layers, or the machine can hold no network of a kind.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=100, help="number of networks of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    given, bad = parser.parse_args(), 0
    print(f"{'kind':16}  drawn  compiled  layers  wrong  with tables  seconds each")
    for kind in given.kinds:
        found: list[TwinOutcome] = []
        for seed in range(given.seed, given.seed + given.networks):
            made = compiled_if_held(kind, seed)
            if not made:
                continue
            found.append(outcome(*made))
            if found[-1].wrong:
                print(f"{kind}, seed {seed}: {found[-1].wrong}", flush=True)
        wrong = sum(bool(each.wrong) for each in found)
        seconds = sum(each.seconds for each in found) / max(2 * len(found), 1)
        print(f"{kind:16} {given.networks:6} {len(found):9} {sum(each.layers for each in found):7} {wrong:6} "
              f"{sum(each.tables > 0 for each in found):12} {seconds:13.2f}", flush=True)
        bad += wrong + (not found)
        if not found:
            print(f"{kind}: the machine can hold none of the networks")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
