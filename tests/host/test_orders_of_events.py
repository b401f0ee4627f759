"""Messages and register accesses in unusual orders: gates show a host what golden shows it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from concord.golden.host.messages import input_message, packed_message, program_message, read_message, write_message
from concord.sim.machines.host import QUIET, Machine, machine
from concord.spec.host.registers import Control, Register
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.machines import words

TINY = preset("tiny")
COPY = "s_wr Rows, 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nend"
WRONG = "s_wr Rows, 0\nv_rd NetQ\nv_wr NetQ\nend_chain\nend"
ONE, TWO = (input_message(TINY, words(TINY, numbers)) for numbers in ([1, 2], [3, 4]))
WRITE = write_message(TINY, Mem.INITIAL_VRF, words(TINY, [5, 6]))
READ = read_message(TINY, Mem.INITIAL_VRF, 1)
DAMAGED, SPOILED = (bytes([*message[:-1], message[-1] ^ 1]) for message in (ONE, WRITE))


def program(text: str) -> bytes:
    return program_message(TINY, assemble(text))


#: Orders of events: messages, registers that are written, None for a run, and 0 for a look at a machine that waits.
ORDERS = {
    "damaged after an error": [program(WRONG), Control.START, None, DAMAGED, program(COPY), ONE, Control.START, None,
                               Control.RESET, TWO, Control.START, None],
    "damaged behind a message that waits": [program(COPY), Control.START, None, WRITE, DAMAGED, 0, Control.RESET,
                                            Control.START, None, Control.RESET, READ, ONE, Control.START, None],
    "damaged while a program waits": [program(COPY), Control.START, None, SPOILED, ONE, 0, Control.RESET, READ, None],
    "damaged behind one that the reset drops": [program(COPY), Control.START, None, READ, DAMAGED, WRITE, 0,
                                                Control.RESET, READ, None, Control.RESET, READ, None],
    "a start beside a reset": [program(COPY), ONE, Control.RESET | Control.START, None, TWO, Control.START, None],
    "a start beside a reset of a program": [program(COPY), Control.START, None, Control.RESET | Control.START, None,
                                            TWO, Control.START, None],
    "a program behind the last input of one": [program(COPY), Control.START, None, ONE, program(WRONG), None,
                                               Control.START, None],
    "everything at once": [program(COPY), ONE, Control.START, None, Control(7), TWO, None],
}


def seen(machine: Machine, events: list) -> Iterator[tuple]:
    """What a host sees after each run: STATUS, ERROR and its address, and messages."""
    for event in events:
        match event:
            case 0:
                machine.settle(QUIET)
                yield machine.status(), machine.error()
            case Control():
                machine.settle()
                machine.command(event)
            case None:
                machine.run()
                machine.settle(QUIET)
                yield machine.status(), machine.error(), machine.receive()
            case _:
                machine.send(event)


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_events(order):
    with machine("golden", TINY) as golden, machine("library", TINY) as gates:
        for number, (found, wanted) in enumerate(zip(*(seen(each, ORDERS[order]) for each in (gates, golden)),
                                                     strict=True)):
            for part, (one, other) in enumerate(zip(found, wanted, strict=True)):
                assert one == other, (number, part)


@pytest.mark.parametrize("kind", ["golden", "library"])
def test_registers_that_hold_a_value(kind):
    """They keep it when the machine is reset; DRAM_BASE is there on machines with Dram."""
    for config in TINY, replace(TINY, dram_words=1 << 14, dram_bus=4):
        values = {Register.PEER: 0x1234, Register.DRAM_BASE: 0x5000 * bool(config.dram_words)}
        with machine(kind, config) as each:
            for register, value in values.items():
                each.write_register(register, value or 0x5000)
            each.reset()
            assert {register: each.read_register(register) for register in values} == values


@pytest.mark.parametrize("kind", ["golden", "library"])
def test_bits_of_addresses_that_do_not_count(kind):
    with machine(kind, TINY) as each:
        for address in Register.DIGEST + 1, Register.DIGEST + 3, Register.DIGEST + 0x1000:
            assert each.read_register(address) == TINY.digest
        each.write_register(Register.PEER + 0x1002, 5)
        assert each.read_register(Register.PEER) == 5


@pytest.mark.parametrize("target", ["MvmQ", "NetQ"])
def test_a_program_is_done_when_its_last_product_has_been_counted(target):
    """Programs that are started as soon as the one before is done: no event of a product is lost."""
    text = f"s_wr OutScale, 20\nv_rd InitialVrf, 0\nmv_mul 0, integer\nv_wr {target}\nend_chain\nend"
    tiles = np.full((1, TINY.native_dim, TINY.native_dim), TINY.weights.highest)
    vector = words(TINY, [TINY.activations.highest] * TINY.native_dim)
    found = {}
    for kind in "golden", "library":
        with machine(kind, TINY) as each:
            each.send(packed_message(TINY, tiles, np.zeros(tiles.shape[:2], int), integer=True),
                      write_message(TINY, Mem.INITIAL_VRF, vector), program(text))
            each.settle()
            for _ in range(3):
                each.command(Control.START)
                each.run()
            assert each.error() == (Error.NONE, 0)
            found[kind] = each.events()
    assert found["library"] == found["golden"]
