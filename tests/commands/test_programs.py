"""Hand-written programs from the command line: images, three machines, and messages about programs that stop."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from concord.firmware.firmware import Firmware, Section, Tiles
from concord.firmware.firmware_file import load_firmware, save_firmware
from concord.firmware.session import Session, Stopped, stopped
from concord.sim.machines.host import machine
from concord.sim.machines.kinds import SOON
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.command_line import done, nnp, refused

TINY = preset("tiny")
LAYER = """
# y = 2 relu(W x + b)
s_wr Rows, 8
v_rd NetQ
mv_mul 2
vv_add0 0
v_relu0
vv_mul0 3
v_wr NetQ
end_chain
end
"""
COPY = "s_wr Rows, 3\nv_rd NetQ\nv_wr NetQ\nend_chain\nend\n"
COUNTED = """
s_wr Rows, 8
loop 1
v_rd NetQ
mv_mul 0
v_wr MvmQ
end_chain
end_loop
v_rd MvmQ
v_wr NetQ
end_chain
end
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.txt").write_text(LAYER)
    (tmp_path / "copy.txt").write_text(COPY)
    np.save("w.npy", np.arange(64).reshape(8, 8) % 7 - 3.0)
    np.save("b.npy", np.arange(8) - 3)
    np.save("two.npy", np.full(8, 2.0, np.float16))
    return tmp_path


@pytest.mark.parametrize("command", ["asm", "import"])
@pytest.mark.parametrize("name", [".", "some"])
def test_a_folder_is_no_file(command, name, folder):
    (folder / "some").mkdir()
    assert f"{name}: it is a folder; name the" in refused(command, name)


@pytest.mark.parametrize("kind", SOON)
def test_a_program_with_images_runs_on_every_machine(kind):
    done("asm", "layer.txt", "--preset", "tiny", "--image", "MatrixRf@2=w.npy", "--image", "AddSubVrf0=b.npy",
         "--image", "multiplyvrf0@3=two.npy", "-o", "layer.firmware")
    x = np.random.default_rng(0).integers(-4, 5, (3, 8)).astype(np.float64)
    np.save("x.npy", x)
    done("run", "layer.firmware", "--inputs", "x.npy", "--machine", kind, "-o", "y.npy")
    wanted = 2 * np.maximum(x @ np.load("w.npy").T + np.load("b.npy"), 0)
    np.testing.assert_array_equal(np.load("y.npy"), wanted)


#: Two layers whose weights come from Dram one after the other into the same tile.
FROM_DRAM = """
s_wr Rows, 8
s_wr Base1, 70000
m_rd Dram, 100 + Base1
m_wr MatrixRf, 0, integer
end_chain
v_rd Dram, 400, raw
v_wr BiasRf, 0
end_chain
v_rd NetQ
mv_mul 0, integer, bias 0
v_relu0
v_wr VectorRf, 0, integer
end_chain
v_rd Dram, 300, raw
v_wr VectorRf, 3, integer
end_chain
m_rd Dram, 200
m_wr MatrixRf, 0, integer, diagonal
end_chain
v_rd VectorRf, 0
mv_mul 0, integer
v_wr AddSubVrf0, 0
v_wr Dram, 70001
end_chain
v_rd VectorRf, 3, integer
vv_add0 0
v_wr NetQ
end_chain
end
"""


def test_images_of_dram(folder):
    """Tiles, diagonals, entries and integers, in golden and beside numpy; words that nobody fills are zero."""
    (folder / "own.toml").write_text('based_on = "tiny"\ndram_words = 1048576\ndram_bus = 8\n')
    (folder / "layers.txt").write_text(FROM_DRAM.replace("70001", "1 + Base1"))
    rng = np.random.default_rng(0)
    made = {"w": rng.integers(-8, 8, (8, 8)), "d": rng.integers(-4, 5, 8), "e": rng.integers(-99, 99, 8),
            "c": rng.integers(-50, 50, 8), "x": rng.integers(-7, 8, (4, 8)).astype(np.float64)}
    for name, numbers in made.items():
        np.save(name, numbers)
    images = ("Dram.tiles@70100=w.npy", "Dram.diagonals@200=d.npy", "Dram.entries@300=e.npy", "Dram.integers@400=c.npy",
              "Dram=b.npy")
    done("asm", "layers.txt", "--preset", "own.toml", "-o", "l.firmware", *(
        word for image in images for word in ("--image", image)))
    done("run", "l.firmware", "--inputs", "x.npy", "-o", "y.npy")
    hidden = np.clip(np.maximum(made["x"] @ made["w"].T + made["c"], 0), -128, 127)
    np.testing.assert_array_equal(np.load("y.npy"), hidden * made["d"] + made["e"])
    brought = load_firmware(folder / "l.firmware").vectors[Mem.DRAM]
    np.testing.assert_array_equal(brought[:4].view(np.float16).reshape(-1), np.load("b.npy"))
    assert not brought[4:200].any()
    done("run", "l.firmware", "--inputs", "x.npy", "--machine", "library", "-o", "z.npy")
    np.testing.assert_array_equal(np.load("z.npy"), np.load("y.npy"))
    result = nnp("twin", "l.firmware", "--to", "numpy", "-o", "twin")
    assert result.exit_code == 2
    assert "the chain at instruction 2 takes tiles, entries or integers as they are packed in Dram" in result.stderr
    for image, sentence in (("Dram.tile@1=w.npy", "Dram.tiles, Dram.diagonals, Dram.entries, Dram.integers are what"),
                            ("BiasRf.tiles=w.npy", "Dram.tiles, Dram.diagonals"),
                            ("Dram.tiles@1048561=w.npy",
                             "it fills Dram from 1048561 up to 1048577, and it ends at 1048576")):
        assert sentence in refused("asm", "layers.txt", "--preset", "own.toml", "--image", image, "-o", "no.firmware")
    words = "asm", "copy.txt", "--preset", "tiny", "--image", "Dram=b.npy", "-o", "no.firmware"
    assert "the machine has no Dram" in refused(*words)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("source", ["NetQ", "InitialVrf, 0"])
def test_twins_multiply_by_tiles_that_nobody_fills(folder, framework, source):
    (folder / "zero.txt").write_text(f"s_wr Rows, 8\nv_rd NetQ\nv_wr AddSubVrf0, 0\nend_chain\nv_rd {source}\n"
                                     "mv_mul 1\nvv_add0 0\nv_wr NetQ\nend_chain\nend\n")
    done("asm", "zero.txt", "--preset", "tiny", "-o", "zero.firmware")
    assert "0 differing bits over 3 samples" in done("twin", "zero.firmware", "--to", framework, "-o", "twin")


@pytest.mark.parametrize(("write", "legal"), [("12", True), ("11", False), ("5 + Base1", False), ("6 + Base1", True)])
def test_a_program_leaves_constants_of_dram_as_they_are(folder, write, legal):
    """The last of four passes, by a base register that goes down, writes word 11 or 12; words 0 to 11 are constants."""
    (folder / "own.toml").write_text('based_on = "tiny"\ndram_words = 100\ndram_bus = 8\n')
    (folder / "loop.txt").write_text(f"s_wr Rows, 2\ns_wr Base1, 9\nloop 4\nv_rd NetQ\nv_wr Dram, {write}\n"
                                     "v_wr NetQ\nend_chain\ns_add Base1, -1\nend_loop\nend\n")
    np.save("c.npy", np.arange(24))
    done("asm", "loop.txt", "--preset", "own.toml", "--image", "Dram=c.npy", "-o", "loop.firmware")
    firmware = load_firmware(folder / "loop.firmware")
    if legal:
        save_firmware(replace(firmware, constant_words=12), folder / "kept.firmware")
        assert load_firmware(folder / "kept.firmware").constant_words == 12
    else:
        with pytest.raises(ValueError, match="writes from word 11 of Dram on, and the words up to 11 are constants of"):
            replace(firmware, constant_words=12)
    with pytest.raises(ValueError, match="13 words of Dram are constants, and the firmware brings 12"):
        replace(firmware, constant_words=13)


def test_inputs_are_the_words_that_the_program_reads(folder):
    """Two words are half a native vector of `tiny`; no word is left in the queue for the next input."""
    assert "one run takes 4 numbers and gives 4" in done("asm", "copy.txt", "--preset", "tiny")
    x = np.arange(12.0).reshape(3, 4)
    np.save("x.npy", x)
    done("run", "copy.safetensors", "--inputs", "x.npy", "-o", "y.npy")
    np.testing.assert_array_equal(np.load("y.npy"), x * [1, 1, 1, 0])  # Rows is 3
    done("asm", "copy.txt", "--preset", "tiny", "--input-size", 3, "--output-size", 3)
    firmware = load_firmware(folder / "copy.safetensors")
    assert (firmware.inputs, firmware.outputs, firmware.input_words) == (3, 3, 2)
    np.save("x.npy", x[:, :3])
    done("run", "copy.safetensors", "--inputs", "x.npy", "-o", "y.npy")
    np.testing.assert_array_equal(np.load("y.npy"), x[:, :3])


def test_a_program_without_input_runs_once(folder):
    (folder / "none.txt").write_text("s_wr Rows, 8\nv_rd InitialVrf, 5\nv_wr NetQ\nend_chain\nend\n")
    assert "takes 0 numbers and gives 8" in done(
        "asm", "none.txt", "--preset", "tiny", "--image", "InitialVrf@5=b.npy")
    assert done("run", "none.safetensors").splitlines() == [
        "0: output 7 is the largest, 4: -3 -2 -1 0 1 2 3 4", "1 samples"]


def test_integers_are_tiles_of_integer_mode(folder):
    (folder / "layer.txt").write_text("s_wr Rows, 3\nv_rd NetQ\nmv_mul 0, integer, bias 1\nv_wr NetQ\nend_chain\nend\n")
    np.save("w.npy", np.array([[1, 2, 3], [-128, 127, 0], [4, 5, 6]]))
    np.save("bias.npy", np.array([10, 20, -30]))
    done("asm", "layer.txt", "--preset", "tiny", "--image", "MatrixRf=w.npy", "--image", "BiasRf@1=bias.npy",
         "--input-size", 3, "--output-size", 3)
    np.save("x.npy", np.array([[1, 2, 3], [0, -1, 4]]))
    done("run", "layer.safetensors", "--inputs", "x.npy", "-o", "y.npy")
    np.testing.assert_array_equal(np.load("y.npy"), [[24, 146, 2], [20, -107, -11]])


def test_images_of_entries(folder):
    (folder / "entries.txt").write_text(
        "s_wr Rows, 8\nset_iterations 2\ns_wr StrideX, 1\nv_rd_inc VectorRf, 46, integer\nv_wr NetQ\nend_chain\n"
        "v_rd_inc VectorRf, 2\nv_wr NetQ\nend_chain\nend\n")
    np.save("codes.npy", np.arange(-8, 8).reshape(2, 2, 4))
    np.save("real.npy", np.array([[0.5, -1, 0.25, 3], [0, 0, 0, 2], [100, 0, 0, 0]]))
    done("asm", "entries.txt", "--preset", "tiny", "--image", "VectorRf@46=codes.npy", "--image", "VectorRf@2=real.npy")
    done("run", "entries.safetensors", "-o", "y.npy")
    np.testing.assert_array_equal(np.load("y.npy")[0], [
        *range(-8, 8), 0.5, -1, 0.25, 3, 0, 0, 0, 2, 100, *[0] * 7])
    assert "codes.npy: it fills VectorRf from 47 up to 49, and it ends at 48" in refused(
        "asm", "entries.txt", "--preset", "tiny", "--image", "VectorRf@47=codes.npy")
    assert "codes.npy: the machine has no VectorRf: choose a preset that has one" in refused(
        "asm", "entries.txt", "--preset", "speech", "--image", "VectorRf=codes.npy")
    np.save("codes.npy", np.full(8, 128))
    assert "codes.npy: integers lie in 128..128, mantissas of the machine in -128..127" in refused(
        "asm", "entries.txt", "--preset", "tiny", "--image", "VectorRf=codes.npy")


def test_words_alone_and_firmware_are_both_read_by_disasm():
    done("asm", "copy.txt")
    done("asm", "copy.txt", "--preset", "tiny", "-o", "copy.firmware")
    assert done("disasm", "copy.bin") == done("disasm", "copy.firmware") == COPY


def test_legality_errors_name_the_line(folder):
    (folder / "bad.txt").write_text(
        "# one\n\nset_iterations 2, 1\nv_rd InitialVrf, 5000 # far\nv_wr NetQ\nend_chain\nend\n")
    sentence = ("bad.txt: line 4: instruction 2: it goes up to address 5003 of InitialVrf, whose last address is 63 "
                "(RANGE)")
    for output in "bad.bin", "bad.firmware":
        assert sentence in refused("asm", "bad.txt", "--preset", "tiny", "-o", output)
    (folder / "open.txt").write_text("s_wr Rows, 8\n")
    assert "open.txt: line 1: instruction 1: the instruction word is 0, as in erased memory" in refused(
        "asm", "open.txt", "--preset", "tiny")
    assert sorted(path.name for path in folder.glob("*.[bf]i*")) == []


@pytest.mark.parametrize(("words", "sentence"), [
    (("-o", "a.firmware"), "a.firmware: firmware is for one machine: name that with --preset"),
    (("-o", "a.bin", "--image", "InitialVrf=b.npy"), "a.bin: words alone carry neither images nor sizes"),
    (("--preset", "tiny", "-o", "."), ".: it is a folder"),
    (("--preset", "tiny", "--image", "b.npy"), "MEMORY=FILE or MEMORY@ADDRESS=FILE is needed"),
    (("--preset", "tiny", "--image", "InitialVrf@x=b.npy"), "MEMORY=FILE or MEMORY@ADDRESS=FILE is needed"),
    (("--preset", "tiny", "--image", "NetQ=b.npy"), "no image goes to 'NetQ': choose one of "),
    (("--preset", "tiny", "--image", "InitialVrf=none"), "none: there is no such file"),
    (("--preset", "tiny", "--image", "InitialVrf@61=b.npy"), "b.npy: it fills InitialVrf from 61 up to 65, and"),
    (("--preset", "tiny", "--image", "MatrixRf=b.npy"), "b.npy: MatrixRf takes a matrix [rows, columns], not [8]"),
    (("--preset", "tiny", "--image", "BiasRf=w.npy"), "w.npy: BiasRf takes whole numbers in -2147483648..2147483647"),
    (("--preset", "tiny", "--image", "MatrixRf=large.npy"), "large.npy: integers lie in 200..200, mantissas"),
    (("--preset", "tiny", "--image", "InitialVrf=nan.npy"), "nan.npy: 1 of 2 numbers are not finite in binary16"),
    (("--preset", "tiny", "--input-size", 5), "--input-size 5: one run reads 2 words of NetQ, which hold 4 numbers"),
    (("--preset", "tiny", "--output-size", 2), "--output-size 2: one run writes 2 words to NetQ, which hold 3 to 4"),
])
def test_what_asm_refuses(words, sentence):
    np.save("large.npy", np.full((2, 2), 200))
    np.save("nan.npy", np.array([1, np.nan]))
    assert sentence in refused("asm", "copy.txt", *words)


@pytest.mark.parametrize(("text", "sentence"), [
    ("v_rd NetQ\nv_wr InitialVrf, 0\nend_chain\nend\n", "the program writes nothing to NetQ"),
    ("loop 2000\nloop 2000\nv_rd NetQ\nv_wr NetQ\nend_chain\nend_loop\nend_loop\nend\n", "more than 1,000,000 chains"),
])
def test_programs_that_are_no_firmware(text, sentence, folder):
    (folder / "copy.txt").write_text(text)
    assert sentence in refused("asm", "copy.txt", "--preset", "tiny")


def counted() -> Firmware:
    """Firmware whose loop over time pushes words to MvmQ and pops none: one step is legal, nine are not."""
    tiles = Tiles(
        mantissas=np.ones((1, 8, 8), np.int16), exponents=np.zeros((1, 8), np.int8), integer=np.zeros(1, bool))
    return Firmware(
        name="counted", config=TINY, data="none", classes=(), inputs=8, outputs=8, loop=1, text=COUNTED,
        instruction_words=np.array(assemble(COUNTED), np.uint64), sections=(Section(layer="gates", first=1, last=6),),
        vectors={Mem.INITIAL_VRF: np.zeros((1, 2), np.uint16)}, tiles=tiles, biases=np.zeros((0, 2), np.int32))


@pytest.mark.parametrize("kind", SOON)
def test_a_stop_tells_layer_instruction_address_and_reason(kind):
    with machine(kind, TINY) as made, pytest.raises(Stopped) as stop:
        Session(made, counted()).infer(np.zeros((9, 8), np.uint16))
    assert str(stop.value).startswith("counted, layer gates: the program stopped at instruction 4, `v_wr MvmQ`: ")
    assert "MvmQ" in str(stop.value).partition("`: ")[2]
    assert str(stop.value).endswith("(QUEUE)")
    # In `nnp verify`, the error comes from a worker process.
    assert str(pickle.loads(pickle.dumps(stop.value))) == str(stop.value)


def test_a_stop_that_nobody_can_explain_still_has_an_address():
    text = str(stopped(counted(), [], Error.RANGE, 7))
    assert text == ("counted: the program stopped at instruction 7, `nothing`: docs/isa.md says what the error means "
                    "(RANGE)")
    assert "refused a message" in str(stopped(counted(), [], Error.MESSAGE, 0))


def test_run_tells_a_stop(folder):
    save_firmware(counted(), folder / "counted.safetensors")
    np.save("x.npy", np.zeros((2, 9, 8)))
    result = nnp("run", "counted.safetensors", "--inputs", "x.npy")
    assert result.exit_code == 1
    assert result.stderr.startswith("nnp: counted, layer gates: the program stopped at instruction 4, `v_wr MvmQ`: ")
