"""Base registers on the golden machine: programs against what numpy computes."""

import numpy as np
from concord.golden.machine import Machine
from concord.spec.host.messages import Message, MessageKind, pack
from concord.spec.host.registers import Control, Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import KEPT
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset

TINY = preset("tiny")  # M = 2


def run(text, words):
    """A machine that has run a program, with these words in InitialVrf at the start."""
    machine = Machine(TINY)
    program = np.array(assemble(text), "<u8")
    for kind, memory, items in ((MessageKind.PROGRAM, 0, program), (MessageKind.WRITE, Mem.INITIAL_VRF, words)):
        machine.send(pack(TINY, Message(kind=kind, memory=memory, count=len(items), payload=items.tobytes())))
    machine.write_register(Register.CONTROL, Control.START)
    assert machine.run() & Status.DONE
    return machine


def test_a_transposition_by_two_nested_loops():
    words = np.arange(2 * 48, dtype="<u2").reshape(48, 2)
    machine = run("""
        s_wr Rows, 2
        loop 6
        loop 8
        v_rd InitialVrf, 0 + Base1
        v_wr AddSubVrf0, 2 + Base2
        end_chain
        s_add Base1, 1
        s_add Base2, 6
        end_loop
        s_add Base2, -47
        end_loop
        end""", words)
    assert machine.read_register(Register.ERROR) == Error.NONE
    moved = machine.memory.vectors[Mem.ADDSUB_VRF0][2:50]
    assert np.array_equal(moved.reshape(8, 6, 2), words.reshape(6, 8, 2).swapaxes(0, 1))
    assert machine.read_register(Register.COUNTERS + 4 * Counter.CHAINS) == 48


def test_more_passes_than_chains_are_kept():
    words = np.arange(2 * 64, dtype="<u2").reshape(64, 2)
    body = "v_rd InitialVrf, 0 + Base1\nv_wr AddSubVrf0, 0 + Base2\nend_chain\ns_add Base1, 1\nend_loop\n"
    machine = run(f"s_wr Rows, 2\nloop 40\ns_wr Base1, 0\nloop 40\n{body}s_add Base2, 1\nend_loop\nend", words)
    assert KEPT < 40 * 40
    assert np.array_equal(machine.memory.vectors[Mem.ADDSUB_VRF0][:40], np.repeat(words[39:40], 40, axis=0))


def test_the_machine_stops_at_the_pass_that_leaves_a_memory():
    words = np.arange(2 * 64, dtype="<u2").reshape(64, 2)
    machine = run("s_wr Rows, 2\nloop 9\nv_rd InitialVrf, 1 + Base3\nv_wr InitialVrf, 0\nend_chain\n"
                  "s_add Base3, 10\nend_loop\nend", words)
    assert (machine.read_register(Register.ERROR), machine.read_register(Register.ERROR_ADDRESS)) == (Error.RANGE, 2)
    assert np.array_equal(machine.memory.vectors[Mem.INITIAL_VRF][0], words[61])
    assert machine.read_register(Register.COUNTERS + 4 * Counter.CHAINS) == 7
