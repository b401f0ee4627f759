"""`nnp verify` finds the first difference where it was made."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.firmware import Firmware, Tiles
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Counter
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests import small_networks
from concord.verification.cutter import MARGIN, Cutter, write_waveform
from concord.verification.diagnosis import first_difference

TINY = preset("tiny")


def session(firmware: Firmware) -> Session:
    return Session(machine("golden", TINY), firmware)


def difference(right: Firmware, wrong: Firmware, sample: np.ndarray):
    """The first difference between golden machines with two firmwares."""
    return first_difference({"golden": session(right), "machine": session(wrong)}, sample, 0)


def with_changed_weight(firmware: Firmware, tile: int, row: int) -> Firmware:
    """The same firmware with one weight changed."""
    mantissas = firmware.tiles.mantissas.copy()
    mantissas[tile, row, 0] ^= 32
    return replace(firmware, tiles=replace(firmware.tiles, mantissas=mantissas))


@pytest.fixture
def recurrent() -> Firmware:
    rng = np.random.default_rng(0)
    return compile_network(networks.recurrent(rng, TINY, [3, 5], block=[True], outputs=4), TINY).firmware


def test_equal_machines(recurrent):
    sample = networks.inputs(np.random.default_rng(1), 4, 3)
    assert first_difference({"golden": session(recurrent), "machine": session(recurrent)}, sample, 0) is None


@pytest.mark.parametrize(
    ("gate", "memory"), list(enumerate(["AddSubVrf1", "MultiplyVrf0", "MultiplyVrf1", "MultiplyVrf0"]))
)
def test_the_gate_with_a_changed_weight_is_found(recurrent, gate, memory):
    # Gates of 5 elements take 6 rows of the tall matrix; x and h take one native vector each.
    tile, row = divmod(6 * gate + 1, TINY.native_dim)
    sample = networks.inputs(np.random.default_rng(2), 4, 3)
    other = session(with_changed_weight(recurrent, 2 * tile, row))
    found = first_difference({"golden": session(recurrent), "machine": other}, sample, 17)
    assert (found.sample, found.step, found.layer, found.word % 4, found.lane) == (17, 0, "lstm0", 0, 1)
    assert found.memory == memory
    assert found.first < found.address
    assert f"sample 17, time step 0: the first difference is in chain {found.chain} of layer lstm0" in str(found)


ENTRIES = """set_iterations 2
v_rd NetQ
mv_mul 0
v_wr_inc VectorRf, 5
v_wr InitialVrf, 0
end_chain
v_rd VectorRf, 6
v_wr NetQ
end_chain
end
"""


def test_a_difference_in_an_entry_is_found():
    tiles = Tiles(mantissas=np.eye(8, dtype=np.int16)[None] * 64, exponents=np.full((1, 8), 1, np.int8),
                  integer=np.zeros(1, bool))
    firmware = Firmware(
        name="entries", config=TINY, data="none", classes=(), inputs=16, outputs=8, loop=None, text=ENTRIES,
        instruction_words=np.array(assemble(ENTRIES), np.uint64), sections=(), vectors={}, tiles=tiles,
        biases=np.zeros((0, 2), np.int32), input_words=8)
    sample = np.full(16, 0x3C00, np.uint16)
    sample[11] = 0x4200
    assert first_difference({"golden": session(firmware), "machine": session(firmware)}, sample, 0) is None
    found = difference(firmware, with_changed_weight(firmware, 0, 3), sample)
    assert (found.address, found.memory, found.word, found.lane) == (4, "VectorRf", 5, 3)
    assert str(found).endswith("wrote VectorRf entry 5 element 3: golden 64, machine 96")
    memories = session(firmware).memories()
    assert memories.keys() == {Mem.VECTOR_RF}
    assert memories[Mem.VECTOR_RF].shape == (48, 9)


def test_cut_programs_run_as_many_chains_as_they_say(recurrent):
    sample = networks.inputs(np.random.default_rng(3), 3, 3)
    cutter = Cutter(recurrent, len(sample))
    whole = session(recurrent)
    whole.infer(sample)
    assert cutter.total == whole.machine.counter(Counter.CHAINS)
    for chains in range(cutter.total + 1):
        part = session(recurrent)
        part.probe(cutter.cut(chains).instruction_words, sample)
        assert part.machine.counter(Counter.CHAINS) == chains


@pytest.mark.parametrize("block", [False, True])
def test_programs_with_loops_over_base_registers_are_cut_too(block):
    firmware = compile_network(small_networks.small(np.random.default_rng(0), TINY, block=block), TINY).firmware
    sample = networks.inputs(np.random.default_rng(3), 4, 2)
    cutter, whole = Cutter(firmware, 4), session(firmware)
    whole.infer(sample)
    assert cutter.total == whole.machine.counter(Counter.CHAINS)
    for chains in range(0, cutter.total + 1, 3):
        part = session(firmware)
        part.probe(cutter.cut(chains).instruction_words, sample)
        assert part.machine.counter(Counter.CHAINS) == chains
    with pytest.raises(ValueError, match="the program has .* chains only"):
        cutter.cut(cutter.total + 1)


def test_a_fault_in_a_loop_over_base_registers_is_found():
    firmware = compile_network(small_networks.small(np.random.default_rng(0), TINY, block=True), TINY).firmware
    sample = networks.inputs(np.random.default_rng(3), 4, 2)
    found = difference(firmware, with_changed_weight(firmware, 2, 0), sample)
    assert found.layer == "rnn3"
    assert found.step == 0


def test_the_whole_program_is_its_own_last_cut(recurrent):
    sample = networks.inputs(np.random.default_rng(4), 3, 3)
    cutter = Cutter(recurrent, len(sample))
    whole = session(recurrent)
    outputs = whole.infer(sample)
    left = session(recurrent).probe(cutter.cut(cutter.total).instruction_words, sample)
    np.testing.assert_array_equal(left[Mem.NET_Q].reshape(-1)[: len(outputs)], outputs)


def test_a_network_without_a_loop():
    firmware = compile_network(networks.mlp(np.random.default_rng(5), TINY, [9, 9, 9], block=True), TINY).firmware
    cutter = Cutter(firmware, 1)
    assert cutter.total == 2
    assert decode(cutter.cut(1).instruction_words[-1]).op == Op.END
    assert cutter.cut(2).instruction_words == firmware.program()


def test_a_waveform_of_the_last_chain_alone(tmp_path):
    """The waveform ends with the shortened program, and begins a little before its last chain."""
    firmware = compile_network(networks.mlp(np.random.default_rng(6), TINY, [40, 24, 16, 9], block=True), TINY).firmware
    sample = networks.inputs(np.random.default_rng(7), 40)
    found = difference(firmware, with_changed_weight(firmware, -1, 0), sample)
    assert found.chain > 0
    write_waveform(MachineKind.LIBRARY, firmware, sample, found.chain, tmp_path / "fault.vcd")
    with machine("library", TINY, trace=tmp_path / "whole.vcd") as traced:
        Session(traced, firmware).execute(Cutter(firmware, 1).cut(found.chain + 1).instruction_words, sample)
    (first, last), (_, end) = (moments(tmp_path / name) for name in ("fault.vcd", "whole.vcd"))
    assert last == end
    chain = last - first - MARGIN
    assert 0 < chain < 600
    assert (tmp_path / "fault.vcd").stat().st_size < (tmp_path / "whole.vcd").stat().st_size / 3


def moments(path) -> tuple[int, int]:
    """First and last clock cycle of a VCD of the library, which has two steps of time in a cycle."""
    times = [int(line[1:]) for line in path.read_text().splitlines() if line.startswith("#")]
    return times[0] // 2, times[-1] // 2
