"""The table of memories: each row leads to a depth and to counters, and codes and counters stay what they were."""

from dataclasses import fields

import pytest
from concord.hw.lib import payloads
from concord.hw.lib.message_payloads import header
from concord.hw.lib.payloads import INDEX, MVM, NET, OPERANDS
from concord.spec.host.registers import EVENTS, READS, TIMES, WRITES, Counter, counters
from concord.spec.isa import memories
from concord.spec.isa.instructions import Instruction, Op, encode
from concord.spec.isa.memories import (
    MEMORY_NAMES,
    OPERAND_MEMORIES,
    QUEUES,
    STAGE_MEMORIES,
    VRFS,
    Mem,
    MemoryKind,
    depth,
    present,
)
from concord.spec.isa.operations import MFUS, Operation
from concord.spec.isa.rules import Violation, check_word
from concord.spec.machine.config import PRESETS, Config, preset

#: The codes from 1 on, as programs and firmware files hold them.
CODES = ("INITIAL_VRF", "ADDSUB_VRF0", "ADDSUB_VRF1", "MULTIPLY_VRF0", "MULTIPLY_VRF1", "NET_Q", "MVM_Q", "MATRIX_RF",
         "BIAS_RF", "VECTOR_RF")
#: The counters from 0 on, as hosts find them.
COUNTERS = (
    "INSTRUCTIONS", "CHAINS", *(f"READ_{name}" for name in CODES[:7]), *(f"WRITE_{name}" for name in CODES[:7]),
    "ADD0", "ACT0", "MUL0", "ADD1", "ACT1", "MUL1", "BEATS", "TILES", "VECTORS", "ROWS_LOADED",
    "OVERFLOW_PARTIAL", "OVERFLOW_PRODUCT", "OVERFLOW_OUTPUT", "EXCESS_PARTIAL", "EXCESS_PRODUCT", "EXCESS_OUTPUT",
    "LAZY_STEPS", "LAZY_CHANGES", "LAZY_ROUNDED", "LAZY_SATURATIONS",
    "CYCLES", "FETCH_BUSY", "FETCH_WAIT", "MVM_BUSY", "MVM_WAIT_OPERAND", "MVM_WAIT_OUTPUT", "MFU_BUSY",
    "MFU_WAIT_OPERAND", "MFU_WAIT_OUTPUT", "COPY_BUSY", "COPY_WAIT", "READ_VECTOR_RF", "WRITE_VECTOR_RF", "POOL",
    "MVM_CONFLICT", "GATHER_BUSY", "GATHER_WAIT")


def test_codes_stay():
    assert tuple(Mem(code).name for code in range(1, len(CODES) + 1)) == CODES
    assert max(Mem) < 1 << header(preset("tiny")).members["memory"], "a message's header has room for the code"


def test_counters_stay_and_leave_no_gap():
    assert tuple(Counter(number).name for number in range(len(COUNTERS))) == COUNTERS
    assert sorted(Counter) == list(range(len(Counter)))
    assert sorted(EVENTS + TIMES) == sorted(Counter)
    assert tuple(map(Counter, (*range(36, 47), *range(50, 53)))) == TIMES


@pytest.mark.parametrize("mem", Mem)
def test_a_row_leads_to_a_depth_and_to_counters(mem):
    assert mem.size in {field.name for field in fields(Config)}
    for config in PRESETS.values():
        assert depth(config, mem) == depth(config, int(mem)) == getattr(config, mem.size)
    assert MEMORY_NAMES[mem] == mem.title
    assert (mem in READS) == (mem in WRITES) == (mem.kind not in (MemoryKind.MATRIX, MemoryKind.BIAS))
    if mem in READS:
        assert (READS[mem].name, WRITES[mem].name) == (f"READ_{mem.name}", f"WRITE_{mem.name}")
        assert mem.title in READS[mem].meaning
        assert mem.title in WRITES[mem].meaning


def test_stages_with_operands_have_a_memory_in_each_unit():
    assert set(OPERAND_MEMORIES) == {operation.stage for operation in Operation if operation.operand}
    assert all(len(mems) == MFUS for mems in OPERAND_MEMORIES.values())
    assert set(STAGE_MEMORIES) == {mem for mem in Mem if mem.feeds} <= set(VRFS)


def test_vector_memories_come_first_on_the_wires():
    assert [INDEX[mem] for mem in VRFS] == list(range(len(VRFS)))
    assert [INDEX[mem] for mem in QUEUES] == [NET, MVM] == [len(VRFS), len(VRFS) + 1]
    assert [VRFS[index] for index in OPERANDS] == list(STAGE_MEMORIES)


def test_a_memory_that_a_machine_lacks_is_in_none_of_its_tables(monkeypatch):
    """InitialVrf stands for a memory whose depth may be 0."""
    machine, size = preset("tiny"), Mem.INITIAL_VRF.size
    whole = present(machine), payloads.indices(machine), counters(machine)
    monkeypatch.setattr(type(machine), "lacks", lambda self, name: name == size)
    memories.present.cache_clear()
    assert set(whole[0]) - set(present(machine)) == set(whole[1]) - set(payloads.indices(machine)) == {Mem.INITIAL_VRF}
    assert set(whole[2]) - set(counters(machine)) == {Counter.READ_INITIAL_VRF, Counter.WRITE_INITIAL_VRF}
    assert Mem.INITIAL_VRF not in memories.addressed(machine)
    with pytest.raises(Violation, match="there is no memory 1"):
        check_word(machine, encode(Instruction(op=Op.V_RD, mem=Mem.INITIAL_VRF)), 0)
    monkeypatch.undo()
    memories.present.cache_clear()
    assert present(machine) == whole[0] == memories.ON_CHIP
