"""Measurements of a model on golden and on the Verilated library machine: differing bits, clock cycles, rates."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.compiler.network import Compiled, compile_network
from concord.firmware.firmware import Firmware
from concord.firmware.layer_costs import LayerCost, alone, layer_costs
from concord.firmware.session import Session
from concord.golden.host.messages import words_of
from concord.lib.progress import Show, silent
from concord.net import network
from concord.net.model import Model
from concord.sim.machines.host import Machine, machine
from concord.spec.host.messages import unpack
from concord.spec.machine.config import Config
from concord.verification.batches import Outcome, count_bits, differing_bits, differing_events

KINDS = ("golden", "library")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A model on one preset.

    Attributes:
        model:    The model.
        config:   Configuration of the machine.
        compiled: Firmware and the compiler's findings.
        bits:     Number of bits in which outputs, memories and event counters of both machines differ, and outputs of
            the golden machine from golden layers.
        cycles:   Clock cycles from the first beat of the input to the last beat of the result.
        costs:    Cost of each layer, on the library machine.
        single:   Cost of the measured layer of a single convolution alone, or None.
        seconds:  Wall times: of the compilation, and of an inference on each machine by its kind.
    """

    model: Model
    config: Config
    compiled: Compiled
    bits: int
    cycles: int
    costs: list[LayerCost]
    single: LayerCost | None
    seconds: dict[str, float]

    def useful(self, cost: LayerCost) -> int:
        """Number of products of weights and inputs that layers need; those with padding count, too."""
        return sum(layer.multiplications for layer in self.model.layers if layer.name in cost.layers)

    def of_peak(self, products: int, cycles: int) -> float:
        """Share of the products that the tile engines could compute in as many cycles."""
        config = self.config
        return products / (cycles * config.tile_engines * config.native_dim * config.lanes) if cycles else 0.0


def measure(
    model: Model, config: Config, inputs: np.ndarray, measured: str | None = None, show: Show = silent,
) -> Measurement:
    """Compile a model and run it on both machines.

    Args:
        model:    The model.
        config:   Configuration of the machine.
        inputs:   uint16[samples, inputs].
        measured: Name of the layer that is also measured alone, or None.
        show:     Shows each sample that a machine has run.

    Raises:
        ValueError: the machine cannot run the model.
    """
    began = time.perf_counter()
    compiled = compile_network(model, config)
    seconds, runs = {"compile": time.perf_counter() - began}, {}
    for kind in KINDS:
        with machine(kind, config) as nnp:
            session = Session(nnp, compiled.firmware)
            runs[kind], seconds[kind] = _run(session, inputs, lambda done, kind=kind: show(kind, done, len(inputs), ""))
            if kind == "library":
                costs = layer_costs(session, inputs[0])
                session.infer(inputs[0])
                single = alone(session, measured) if measured else None
                cycles = transfer_to_transfer(nnp, compiled.firmware, inputs[0])
    bits = differing(*runs.values()) + count_bits(runs["golden"].outputs, network.outputs(model, inputs))
    return Measurement(model=model, config=config, compiled=compiled, bits=bits, cycles=cycles, costs=costs,
                       single=single, seconds=seconds)


def _run(session: Session, inputs: np.ndarray, done: Callable[[int], None]) -> tuple[Outcome, float]:
    """What a machine makes of all inputs, and the wall time of an inference."""
    session.infer(inputs[0])  # golden plans each chain when it first runs
    session.counters()
    began, outputs = time.perf_counter(), []
    for sample in inputs:
        outputs.append(session.infer(sample))
        done(len(outputs))
    seconds = (time.perf_counter() - began) / len(inputs)
    return Outcome(outputs=np.stack(outputs), counters=(session.counters(),), memories={0: (session.memories(),)}
                   ), seconds


def differing(left: Outcome, right: Outcome) -> int:
    """Number of bits in which outputs and memories differ, and of event counters that differ."""
    return differing_bits(left, right) + len(differing_events(left, right))


def transfer_to_transfer(nnp: Machine, firmware: Firmware, sample: np.ndarray) -> int:
    """Clock cycles from the first beat of the input to the last beat of the result, of a program that has started."""
    nnp.reset()
    nnp.send(firmware.program_message())
    nnp.start()
    began, left = nnp.cycles, firmware.output_words
    nnp.send(firmware.input_message(sample))
    while left > 0:
        nnp.link.step(1)
        left -= sum(len(words_of(nnp.config, unpack(nnp.config, sent, to_machine=False))) for sent in nnp.receive())
    return nnp.cycles - began
