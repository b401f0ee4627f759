"""Hand-overs of several cores: the C driver on golden, and its example on the gates of an accelerator."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.accelerator_session import accelerator_of
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.handover.accelerator_driver import driver_files
from concord.handover.package import handover
from concord.lib.files import write_all
from concord.sim.machines.accelerator_library import library
from concord.sim.machines.accelerators import accelerator_machine
from concord.sim.machines.host import machine
from concord.sim.stimulus.command_lists import ACCELERATORS
from concord.spec.accelerator.commands import CommandError
from concord.spec.accelerator.registers import AcceleratorRegister
from concord.spec.machine.config import Config, preset
from concord.tests.c_cores import SOURCES, CoresDriver
from concord.tests.c_driver import compile_c

DRAM = replace(preset("tiny"), dram_words=1 << 14, dram_bus=8, matrix_tiles=8)


def perceptron(config: Config) -> tuple[Firmware, list[np.ndarray]]:
    """A perceptron, whose tiles do not fit MatrixRf of DRAM, and samples."""
    rng = np.random.default_rng(1)
    model = networks.mlp(rng, config, [24, 40, 6], block=True)
    return compile_network(model, config).firmware, list(networks.inputs(rng, 7, 24))


def sequences(count: int) -> tuple[Firmware, list[np.ndarray]]:
    """A recurrent network, and samples of 1 to 4 time steps."""
    rng, config = np.random.default_rng(2), preset("tiny")
    model = networks.recurrent(rng, config, [3, 4], block=[False], outputs=3)
    return compile_network(model, config).firmware, [
        networks.inputs(rng, int(steps), 3) for steps in rng.integers(1, 5, count)]


@pytest.mark.parametrize(("made", "cores"), [(perceptron(DRAM), 3), (sequences(70), 2)], ids=["dram", "sequences"])
def test_the_driver_gives_the_bits_of_one_machine(made, cores, tmp_path):
    """70 sequences need more commands than the ring holds, and programs of other lengths between them."""
    firmware, samples = made
    files = handover(firmware, samples[:1], cores=cores)
    write_all(tmp_path, files)
    with accelerator_machine("golden", accelerator_of(firmware.config, cores)) as golden:
        driver = CoresDriver(tmp_path, firmware, golden)
        assert driver.open(files["load.bin"]) == "OK"
        for _ in range(2):
            code, results = driver.infer(samples)
            assert code == "OK"
            np.testing.assert_array_equal(
                results, Session(machine("golden", firmware.config), firmware).infer_all(samples))
            assert driver.infer(samples, spare=-1)[0] == "SPACE"


def test_programs_that_were_prepared_and_did_not_run_do_not_count(tmp_path):
    """A sample that is too long for the buffer ends the call behind two shorter ones."""
    firmware, _ = sequences(1)
    long, *short = (networks.inputs(np.random.default_rng(steps), steps, 3) for steps in (40, 1, 2))
    files = handover(firmware, short, cores=2)
    write_all(tmp_path, files)
    with accelerator_machine("golden", accelerator_of(firmware.config, 2)) as golden:
        driver = CoresDriver(tmp_path, firmware, golden)
        assert driver.open(files["load.bin"]) == "OK"
        wanted = Session(machine("golden", firmware.config), firmware).infer_all(short)
        assert driver.infer([*short, long], spare=-1)[0] == "SPACE"
        code, results = driver.infer(short)
        assert code == "OK"
        np.testing.assert_array_equal(results, wanted)


def test_the_driver_tells_what_failed(tmp_path):
    firmware, samples = sequences(2)
    files = handover(firmware, samples, cores=2)
    write_all(tmp_path, files)
    damaged = bytearray(files["load.bin"])
    damaged[-200] ^= 1
    with accelerator_machine("golden", accelerator_of(firmware.config, 2)) as golden:
        driver = CoresDriver(tmp_path, firmware, golden)
        assert driver.open(bytes(damaged)) == "LIST"
        found = driver.cores.accelerator
        assert (found.error, found.error_origin) == (CommandError.MESSAGE, 0)
        assert driver.open(files["load.bin"]) == "OK"
        assert driver.infer(samples)[0] == "OK"
        golden.write_register(AcceleratorRegister.RING, 64)  # the command processor reads other bytes as commands
        assert driver.infer(samples)[0] == "LIST"
    with accelerator_machine("golden", accelerator_of(firmware.config, 3)) as other:
        driver.port = type(driver)(tmp_path, firmware, other).port
        assert driver.open(files["load.bin"]) == "OTHER_MACHINE"


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Files of a hand-over whose accelerator has one core with Dram, which other tests Verilate, too."""
    folder, one = tmp_path_factory.mktemp("board"), ACCELERATORS["one"]
    firmware, samples = perceptron(one.cores[0])
    files = handover(firmware, samples, library(one).read_bytes(), cores=2)
    write_all(folder, files | driver_files(one))
    for platform in ("linux", "simulation"):
        compile_c(folder, f"example_{platform}", "example_cores.c", f"platform_cores_{platform}.c", *SOURCES)
    return folder


def played(folder):
    """What the example prints on the gates, and its exit code."""
    done = subprocess.run(["./example_simulation", "./nnp.so"], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_example_has_goldens_bits_on_gates(board):
    assert played(board) == (0, "".join(f"example {k}: 6 outputs, 0 differ from golden\n" for k in range(7)))


def test_the_example_sees_a_bit_that_differs(board, tmp_path):
    folder = shutil.copytree(board, tmp_path / "copy")
    source = (folder / "examples.c").read_text()
    number = re.compile(r"\d+").search(source, source.index("result_1[] = {") + len("result_1[] = {"))
    (folder / "examples.c").write_text(source[:number.start()] + str(int(number[0]) ^ 1) + source[number.end():])
    compile_c(folder, "example_simulation", "example_cores.c", "platform_cores_simulation.c", *SOURCES)
    code, text = played(folder)
    assert (code, "example 1: 6 outputs, 1 differ from golden" in text) == (1, True)


def test_linux_reads_the_registers_of_its_device(board, tmp_path):
    for name, size in (("uio", 1 << 16), ("memory", ACCELERATORS["one"].memory_bytes)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    for location, code, said in (
        (f"{tmp_path}/uio,{tmp_path}/memory", 1, "open: The machine has another configuration than the headers.\n"),
        (f"{tmp_path}/uio", 2, f"{tmp_path}/uio: no accelerator is here; call it as: example_cores LOCATION\n"),
    ):
        done = subprocess.run(["./example_linux", location], cwd=board, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, said)


def test_the_page_lists_the_files_of_several_cores():
    firmware, samples = sequences(1)
    files = handover(firmware, samples, cores=4)
    assert set(re.findall(r"^\| `([\w.]+)` \|", files["README.md"], re.MULTILINE)) == files.keys()
    assert "`nnp verilog --preset tiny --cores 4 -o .` writes the accelerator" in files["README.md"]
