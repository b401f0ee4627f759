"""The files that bring firmware to a board hold the messages of the golden model, byte for byte."""

import hashlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.golden.machine import Machine
from concord.handover.package import handover
from concord.spec.host.messages import MessageKind, unpack
from concord.spec.host.registers import Register
from concord.spec.machine.config import PRESETS, preset, preset_name


def made(config):
    """Firmware of a recurrent network, and the files of its hand-over with sequences of different lengths."""
    rng = np.random.default_rng(1)
    firmware = compile_network(networks.recurrent(rng, config, [3, 4], block=[False], outputs=3), config).firmware
    samples = [networks.inputs(rng, steps, 3) for steps in (1, 4, 4, 2)]
    return firmware, samples, handover(firmware, samples)


@pytest.fixture(scope="module", params=["tiny", "serial", "wide"])
def files(request):
    return made(preset(request.param))


def test_the_page_names_the_command_that_writes_the_machine(files):
    name, page = preset_name(files[0].config), files[2]["README.md"]
    assert f"`nnp verilog --preset {name} -o .` writes the machine into this folder, `nnp.v`. Its" in page


def test_the_table_of_an_embedding_goes_with_its_network():
    firmware, samples, _ = made(preset("tiny"))
    table = np.arange(33, dtype=np.float32).reshape(11, 3)
    files = handover(replace(firmware, table=table), samples)
    assert np.array_equal(np.load(io.BytesIO(files["table.npy"])), table)
    assert "the 11 rows of `table.npy`" in " ".join(files["README.md"].split())


def test_the_page_of_a_machine_of_ones_own_says_so():
    page = made(replace(preset("tiny"), clock_mhz=51))[2]["README.md"]
    wanted = "`nnp verilog --preset MACHINE.toml -o .` writes the machine into this folder, `nnp.v`; MACHINE.toml is"
    assert wanted in page


@pytest.mark.parametrize("name", ["load", "input", "output"])
def test_index_and_hex_are_those_of_the_bytes(files, name):
    firmware, _, contents = files
    size, content, index = firmware.config.message_bytes, contents[f"{name}.bin"], json.loads(contents[f"{name}.json"])
    assert index["beat_bytes"] == size
    ends = [row["end"] for row in index["messages"]]
    assert [row["first"] for row in index["messages"]] == [0, *ends[:-1]]
    assert ends[-1] == len(content)
    for row in index["messages"]:
        message = unpack(firmware.config, content[row["first"]:row["end"]], to_machine=name != "output")
        assert (message.kind.name, message.address, message.count) == (row["kind"], row["address"], row["count"])
    beats = [line.split("_") for line in contents[f"{name}.hex"].splitlines()]
    assert b"".join(bytes.fromhex(data)[::-1] for _, _, data in beats) == content
    assert [size * (k + 1) for k, (last, _, _) in enumerate(beats) if int(last)] == ends
    assert {int(keep, 16) for _, keep, _ in beats} == {(1 << size) - 1}


def test_golden_answers_the_input_with_the_output(files):
    firmware, _, contents = files
    machine, waiting, answers = Machine(firmware.config), messages(contents, "input"), []
    for message in messages(contents, "load"):
        machine.send(message)
    for line in contents["runs.hex"].splitlines():
        setup, inputs, answer = (int(word, 16) * firmware.config.message_bytes for word in line.split())
        while setup:
            setup -= len(waiting[0])
            machine.send(waiting.pop(0))
        machine.start()
        while inputs:
            inputs -= len(waiting[0])
            machine.send(waiting.pop(0))
        machine.run()
        assert machine.read_register(Register.ERROR) == 0
        answers.append(b"".join(machine.receive()))
        assert len(answers[-1]) == answer
    assert waiting == []
    assert b"".join(answers) == contents["output.bin"]


def test_the_manifest_has_the_digest_of_every_file(files):
    firmware, samples, contents = files
    manifest = json.loads(contents["manifest.json"])
    assert manifest["machine"]["digest"] == f"{firmware.config.digest:08x}"
    assert [example["steps"] for example in manifest["examples"]] == [len(sample) for sample in samples]
    assert manifest["files"].keys() == contents.keys() - {"manifest.json"}
    for name, row in manifest["files"].items():
        content = contents[name] if isinstance(contents[name], bytes) else contents[name].encode()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (row["bytes"], row["sha256"])


def test_only_a_new_number_of_steps_needs_a_new_program(files):
    _, _, contents = files
    kinds = [row["kind"] for row in json.loads(contents["input.json"])["messages"]]
    run = [MessageKind.INPUT.name]
    program = [MessageKind.PROGRAM.name]
    assert kinds == [*run, *program, *run, *run, *program, *run]


def messages(contents, name: str) -> list[bytes]:
    """The messages of a stream, by its index."""
    rows = json.loads(contents[f"{name}.json"])["messages"]
    return [contents[f"{name}.bin"][row["first"]:row["end"]] for row in rows]


def test_a_machine_without_hardware_is_refused():
    config = PRESETS["brainwave_s10"]
    firmware = compile_network(networks.mlp(np.random.default_rng(0), config, [4, 3], block=True), config).firmware
    with pytest.raises(ValueError, match="power of two"):
        handover(firmware, [np.zeros(4, np.uint16)])
