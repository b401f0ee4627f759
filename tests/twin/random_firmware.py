"""Random programs as firmware, and what golden makes of them."""

import numpy as np
from concord.golden.host.firmware import Entries, Firmware, Tiles
from concord.golden.host.messages import words_of
from concord.golden.machine import Machine
from concord.sim.stimulus.programs import Case
from concord.spec.memories import VRFS
from concord.spec.messages import unpack
from concord.spec.registers import Register


def firmware_of(case: Case) -> Firmware:
    """The firmware that fills the memories as the messages of a case do."""
    config, machine = case.config, Machine(case.config)
    for message in case.memory:
        machine.send(message)
    memory, entries = machine.memory, ()
    if config.vector_rf:
        entries = (Entries(address=0, mantissas=memory.entries.mantissas.astype(np.int16),
                           exponents=(memory.entries.exponents + config.activations.e_min).astype(np.int8)),)
    tiles = Tiles(mantissas=memory.matrix.mantissas, integer=np.array(case.modes, bool),
                  exponents=(memory.matrix.exponents + config.weights.e_min).astype(np.int8))
    return Firmware(
        name="random", config=config, data="", classes=(), inputs=case.taken * config.mfu_lanes, outputs=1, loop=None,
        text=case.text, instruction_words=np.array(case.program, np.uint64), sections=(), tiles=tiles, entries=entries,
        vectors={mem: memory.vectors[mem] for mem in VRFS}, biases=memory.biases.astype(np.int32))


def golden_results(case: Case, pool: np.ndarray) -> tuple[np.ndarray, Machine]:
    """Output words uint16[n, M] of a case with other words for NetQ, and the machine after it."""
    machine = Machine(case.config)
    for message in case.setup:
        machine.send(message)
    machine.memory.net_in.put(pool[:case.taken])
    machine.start()
    machine.run()
    assert machine.read_register(Register.ERROR) == 0
    messages = [words_of(case.config, unpack(case.config, data, to_machine=False)) for data in machine.receive()]
    return np.concatenate([np.zeros((0, case.config.mfu_lanes), np.uint16), *messages]), machine
