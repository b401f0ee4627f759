"""`nnp trace`: what each unit did in each cycle, read back from the files that it writes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.trace_tables import counters, tables
from concord.compiler.network import compile_network
from concord.firmware.cascade import Cascade
from concord.firmware.firmware_file import save_firmware
from concord.firmware.timing import timed
from concord.net.model_file import save_model
from concord.sim.machines.host import HardwareMachine
from concord.sim.machines.library import Library
from concord.sim.machines.scoreboard import play
from concord.sim.machines.timing_library import timing_text
from concord.sim.machines.waves import read_waves
from concord.sim.stimulus.programs import random_program
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp, refused
from concord.traces.perfetto import perfetto_bytes
from concord.traces.record import TracedMachine, record, trace
from concord.traces.signals import SIGNALS
from concord.traces.spans import COUNTERS

CONFIG = preset("serial")


@pytest.fixture(scope="module")
def firmware():
    rng = np.random.default_rng(3)
    return compile_network(networks.mlp(rng, CONFIG, [4, 12, 3], block=False), CONFIG).firmware


def test_slices_of_files_add_up_to_the_counters(firmware, tmp_path):
    """The counters are those of a run without waves; two samples take twice as much."""
    counted = timed(firmware, 1).counters
    once = {counter: counted[counter] for counter in COUNTERS.values()}
    save_firmware(firmware, tmp_path / "mlp.safetensors")
    assert done("trace", tmp_path / "mlp.safetensors", "-o", tmp_path / "mlp.json", "--samples", 2)
    base = tables((tmp_path / "mlp.json").read_text())
    assert counters(base, 1) == {counter: 2 * count for counter, count in once.items()}
    assert sum(once.values()) > once[next(iter(once))] > 0

    (found,) = record(Cascade.of(firmware), 1, 1, TracedMachine.TIMING)
    base = tables(perfetto_bytes([found]))
    assert counters(base, 1) == once
    chains = "select name, count(*) from slices where track = 'decoder' and category = 'chain' group by name"
    layers = [found.layers[k] or "input, output" for k in found.layer]
    assert dict(base.execute(chains)) == {name: layers.count(name) for name in layers}


def test_a_stall_links_to_an_older_chain(firmware, tmp_path):
    save_firmware(firmware, tmp_path / "mlp.safetensors")
    done("trace", tmp_path / "mlp.safetensors", "-o", tmp_path / "mlp.json")
    events = json.loads((tmp_path / "mlp.json").read_text())["traceEvents"]
    stalls = [event["args"] for event in events if "waits for chain" in event.get("args", {})]
    assert stalls
    assert all(stall["waits for chain"] <= stall["chain"] for stall in stalls)
    assert any(stall["waits for chain"] < stall["chain"] for stall in stalls)
    begun, ended = ({event["id"]: event["ts"] for event in events if event["ph"] == kind} for kind in "sf")
    assert begun
    assert begun.keys() == ended.keys()
    assert all(begun[name] < ended[name] for name in begun)


def test_random_programs_add_up_under_back_pressure(tmp_path):
    """Each unit takes as many words as its chains have, in their order, and none waits for a younger chain."""
    for number in range(6):
        file, rng = tmp_path / f"{number}.vcd", np.random.default_rng([5, number])
        case = random_program(CONFIG, rng)
        link = Library(CONFIG, text=timing_text(CONFIG), thorough=True, watch=SIGNALS, seed=number, stall=0.2, gap=0.1)
        link.begin_waves(file)
        on = HardwareMachine(link)
        play(case, on, late=bool(number % 2))
        counted = on.counters()
        on.close()
        parts = SimpleNamespace(modes=lambda config, modes=case.modes: list(modes))
        firmware = SimpleNamespace(config=CONFIG, name="random", tiles=parts, layer_at=lambda address: "")
        found = trace(firmware, case.program, read_waves(file, SIGNALS))
        assert found.counters() == {counter: counted[counter] for counter in COUNTERS.values()}
        assert (found.spans.older <= found.spans.chain).all()


def test_a_model_without_a_name_for_the_file(firmware, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    save_model(networks.mlp(rng, CONFIG, [4, 8, 3], block=False), tmp_path / "small.safetensors")
    said = done("trace", "small.safetensors", "--preset", "serial")
    (page,) = tmp_path.glob("*.html")
    assert page.name in said
    assert "const TRACE = {" in page.read_text()


def test_what_is_refused(firmware, tmp_path):
    save_firmware(firmware, tmp_path / "mlp.safetensors")
    path = tmp_path / "mlp.safetensors"
    stopped = nnp("trace", path, "--most", 100, "-o", tmp_path / "x.html")
    assert stopped.exit_code == 2
    assert "more than 100 cycles" in stopped.stderr
    assert not (tmp_path / "x.html").exists()
    assert ".html, .json, .perfetto-trace" in refused("trace", path, "-o", tmp_path / "x.vcd")
    assert "timing or library" in refused("trace", path, "--machine", "golden")
    with pytest.raises(ValueError, match="is no VCD file"):
        read_waves(path, ["core.fetch.busy"])
