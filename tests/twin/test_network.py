"""Networks word by word: samples and results as users have them, around the words of the program."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net.model import INPUT
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests import small_networks
from concord.tests.command_line import done, nnp
from concord.twin.generic.generic import network
from concord.twin.lib.run import arrays, run
from concord.twin.vocabulary import word_functions

TINY = preset("tiny")
ROOMY = replace(TINY, **ROOM)
#: The host sends the matrix, and the vector that it is multiplied with.
LOADED = """s_wr Iterations, 2
m_rd NetQ
m_wr MatrixRf, 0
end_chain
s_wr Iterations, 1
s_wr Rows, 16
v_rd NetQ
mv_mul 0
v_relu0
v_wr NetQ
end_chain
end
"""


def convolution(rng: np.random.Generator):
    """A convolution of images with two channels."""
    images = ImageNetworkMaker(rng, ROOMY, (2, 6, 5), block=False)
    images.conv(INPUT, 4)
    return images.model()


@pytest.mark.parametrize("make", [
    lambda rng: networks.mlp(rng, TINY, [9, 9, 5], block=True),
    lambda rng: convolution(rng),
    lambda rng: small_networks.small(rng, TINY, block=False)])
def test_results_of_samples(make):
    rng = np.random.default_rng(0)
    firmware = compile_network(make(rng), ROOMY).firmware
    script = network(firmware)
    samples = rng.normal(size=(3, *script.inputs)).astype(np.float16)
    with np.errstate(all="ignore"):
        results = run(script, samples, word_functions, arrays(script))
    session = Session(machine("golden", ROOMY), firmware)
    for sample, result in zip(samples.view(np.uint16), results, strict=True):
        given = sample if firmware.recurrent else sample.reshape(-1)
        np.testing.assert_array_equal(result.view(np.uint16), session.infer(given))


def test_sequences_of_any_length_are_refused():
    firmware = compile_network(networks.recurrent(np.random.default_rng(0), TINY, [3, 5], block=[True], outputs=4),
                               TINY).firmware
    with pytest.raises(ValueError, match="takes sequences of any length"):
        network(firmware)


def test_a_program_that_loads_its_matrix_becomes_source_word_by_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loaded.txt").write_text(LOADED)
    done("asm", "loaded.txt", "--preset", "tiny", "-o", "loaded.firmware")
    np.save("x.npy", np.random.default_rng(0).normal(size=(3, 136)))
    assert "0 differing bits over 3 samples" in done("twin", "loaded.firmware", "--inputs", "x.npy", "-o", "twin")
    result = nnp("twin", "loaded.firmware", "--inputs", "x.npy", "-o", "other", "--to", "tensorflow")
    assert result.exit_code == 2
    assert "loads weights from the host; `nnp run --twin` compares any program" in result.stderr
    assert not (tmp_path / "other").exists()
