"""Networks that are cut over several machines: the bits of one machine, on golden, in the library and under cocotb."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.cascade import PartCompiler
from concord.compiler.cuts import crossing, cuts
from concord.compiler.network import compile_network
from concord.firmware.cascade_session import CascadeSession, Streamed
from concord.net import network
from concord.net.cells.lstm import LSTM
from concord.net.layers.joins import Softmax
from concord.net.model import Model
from concord.sim.machines.cascade import cascade
from concord.sim.machines.library import linked
from concord.spec.host.registers import EVENTS, Register
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config, preset
from concord.tests import small_networks

TINY = preset("tiny")
RANDOM = {"seed": 5, "gap": 0.2, "stall": 0.2}  #: Pauses on the streams of simulated machines.


def roomy(name: str) -> Config:
    return replace(preset(name), **{
        attribute: size for attribute, size in ROOM.items() if attribute != "vector_rf" or preset(name).vector_rf})


def images(rng: np.random.Generator, config: Config, *, block: bool) -> Model:
    """A residual network whose image crosses the first cut, and a vector the second one."""
    made = ImageNetworkMaker(rng, config, (3, 5, 4), block=block)
    first = made.conv("", 6, padding=(1, 1, 1, 1))
    second = made.conv(first, 6, padding=(1, 1, 1, 1))
    third = made.conv(made.sum(first, second), 5, (1, 1))
    made.dense(made.dense(third, 7), 4)
    return made.model()


def agree(kind: str, configs: list[Config], model: Model, cut: list[str], samples: np.ndarray) -> CascadeSession:
    """Assert that a cascade gives the bits of the network in golden arithmetic, one by one and in a stream."""
    wanted = network.forward(model, samples)[-1].outputs
    firmware = PartCompiler(model, configs).compiled(cut).cascade
    with cascade(kind, configs, **({} if kind == "golden" else RANDOM)) as machines:
        session = CascadeSession(machines, firmware.parts)
        np.testing.assert_array_equal(np.stack([session.infer(sample) for sample in samples]), wanted)
        np.testing.assert_array_equal(session.stream(list(samples)).outputs, wanted)
        return session.counters()


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "speech"])
def test_cut_networks_have_the_bits_of_one_machine(name, block):
    """Vectors that fill no native vector, time steps, and the last time step cross the cut."""
    rng, config = np.random.default_rng(3), roomy(name)
    dense = networks.mlp(rng, config, [10, 13, 12, 5], block=block)
    agree("golden", [config] * 3, dense, ["dense0", "dense1"], networks.inputs(rng, 3, 10))
    lstm = networks.recurrent(rng, config, [5, 7, 6], block=[block, block], outputs=4)
    for cut in "lstm0", "lstm1":
        agree("golden", [config] * 2, lstm, [cut], networks.inputs(rng, 3, 4, 5))
    agree("golden", [config] * 3, lstm, ["lstm0", "lstm1"], networks.inputs(rng, 3, 1, 5))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["tiny", "vision"])
def test_images_cross_a_cut(name, block):
    rng, config = np.random.default_rng(4), roomy(name)
    model = images(rng, config, block=block)
    for cut in ["conv0"], ["conv3", "dense4"]:
        agree("golden", [config] * (len(cut) + 1), model, cut, networks.inputs(rng, 2, 60))


@pytest.mark.parametrize("block", [False, True])
def test_every_cut_of_other_graphs(block):
    """Both directions, sequences that are computed from their end, branches, and an LSTM after a convolution."""
    rng, config = np.random.default_rng(2), roomy("tiny")
    make, behind = (networks.block_recurrent, networks.block_dense) if block else (
        networks.recurrent_layer, networks.dense)
    backward = [replace(make(rng, config, LSTM, name, 4, 4), reverse=True) for name in "ab"]
    for model, shape, found in (
            (networks.both_directions(rng, config, block=block, cell=LSTM), (4, 5), ["b", "both"]),
            (networks.model([*backward, behind(rng, config, "c", 4, 3)]), (5, 4), ["a", "b"]),
            (networks.branches(rng, config, 4, block=block), (5,), ["b", "sum", "joined"]),
            (small_networks.keyword_spotter(rng, config, block=block), (9, 5), ["image0", "conv1", "lstm3"])):
        assert cuts(model) == found
        for cut in found:
            if cut != "image0":  # it only puts numbers into another order
                agree("golden", [config] * 2, model, [cut], networks.inputs(rng, 2, *shape))


@pytest.mark.parametrize("block", [False, True])
def test_several_tensors_cross_cuts(block):
    """Both terms of a sum cross; the one that is computed first crosses two cuts, so that a machine hands it on."""
    rng, config = np.random.default_rng(4), roomy("tiny")
    model = images(rng, config, block=block)
    for cut in ["conv1"], ["conv0", "conv1"], ["conv1", "sum2"]:
        agree("golden", [config] * (len(cut) + 1), model, cut, networks.inputs(rng, 2, 60))
    branches = networks.branches(rng, config, 4, block=block)  # of vectors: a, b, their sum, which is joined with a
    assert crossing(branches, "b") == ("a", "b")
    for cut in ["b", "sum"], ["sum", "joined"]:
        agree("golden", [config] * 3, branches, cut, networks.inputs(rng, 2, 5))


def test_a_softmax_stays_with_the_layer_in_front_of_it():
    rng, config = np.random.default_rng(11), preset("tiny_softmax")
    layers = [*networks.mlp(rng, config, [10, 13, 5], block=False).layers, Softmax(name="softmax", inputs=5)]
    model = networks.model(layers)
    agree("golden", [TINY, config], model, ["dense0"], networks.inputs(rng, 3, 10))
    with pytest.raises(ValueError, match="the softmax after it takes the result of 'dense1'"):
        PartCompiler(model, [TINY, config]).compiled(["dense1"])


def test_machines_may_differ():
    """Neighbours agree in words and beats only."""
    rng, small, large = np.random.default_rng(5), roomy("tiny"), replace(roomy("tiny"), native_dim=16, lanes=8)
    model = networks.mlp(rng, small, [10, 13, 5], block=False)
    agree("golden", [small, large], model, ["dense0"], networks.inputs(rng, 3, 10))
    with pytest.raises(ValueError, match=r"has 2 lanes of a word \(mfu_lanes\) and the next one 4"):
        PartCompiler(model, [small, replace(small, mfu_lanes=4)])


def test_a_sequence_in_parts_goes_on_on_all_machines():
    rng = np.random.default_rng(6)
    model = networks.recurrent(rng, TINY, [5, 4, 3], block=[False, False], outputs=4)
    samples = networks.inputs(rng, 1, 6, 5)
    session = CascadeSession(cascade("golden", [TINY] * 2),
                             PartCompiler(model, [TINY] * 2).compiled(["lstm0"]).cascade.parts)
    session.infer(samples[0, :4])
    np.testing.assert_array_equal(session.infer(samples[0, 4:], keep_state=True),
                                  network.forward(model, samples)[-1].outputs[0])
    with pytest.raises(ValueError, match="samples of different lengths need other programs"):
        session.stream([samples[0], samples[0, 4:]])


def test_cycles_of_a_stream():
    """The interval is that of results after the first one, which waits for all machines."""
    several, one = (Streamed(outputs=np.zeros((len(ends), 1)), ends=ends) for ends in ((50, 60, 71, 80), (50,)))
    assert (several.latency, several.interval) == (50, 10)
    assert (one.latency, one.interval) == (50, 50)


@pytest.mark.parametrize("kind", ["library", "cocotb"])
def test_simulated_machines_send_each_other_results(kind):
    """Streams with random pauses: the bits of golden, the same events, and more throughput than one machine."""
    rng = np.random.default_rng(7)
    model = networks.recurrent(rng, TINY, [5, 4, 3], block=[False, False], outputs=4)
    samples = networks.inputs(rng, 4, 6, 5)
    golden, other = (agree(each, [TINY] * 2, model, ["lstm0"], samples) for each in ("golden", kind))
    for one, wanted in zip(other, golden, strict=True):
        assert {key: one[key] for key in EVENTS} == {key: wanted[key] for key in EVENTS}


def test_two_machines_have_more_throughput_than_one():
    rng = np.random.default_rng(8)
    model = networks.recurrent(rng, TINY, [5, 4, 4], block=[False, False])
    samples = list(networks.inputs(rng, 4, 6, 5))
    both = PartCompiler(model, [TINY] * 2).compiled(["lstm0"]).cascade
    intervals = []
    for parts in both.parts, [compile_network(model, TINY).firmware]:
        with cascade("library", [part.config for part in parts]) as machines:
            intervals.append(CascadeSession(machines, parts).stream(samples).interval)
    assert intervals[0] < 0.75 * intervals[1]


def test_a_machine_refuses_results_for_another_one():
    """PEER names the machine that takes the results; any other one stops with MESSAGE."""
    rng = np.random.default_rng(9)
    model = networks.mlp(rng, TINY, [10, 13, 5], block=False)
    firmware = PartCompiler(model, [TINY] * 2).compiled(["dense0"]).cascade
    with cascade("library", [TINY] * 2) as machines:
        session = CascadeSession(machines, firmware.parts)
        machines.machines[0].write_register(Register.PEER, TINY.digest ^ 1)
        with pytest.raises(RuntimeError, match="refused a message"):
            session.infer(networks.inputs(rng, 1, 10)[0])
        assert machines.machines[1].error()[0] == Error.MESSAGE


def test_back_pressure_reaches_the_first_machine():
    """A second machine that does not run takes no more words than its queue holds; nothing is lost."""
    rng = np.random.default_rng(10)
    model = networks.mlp(rng, TINY, [10, 13, 5], block=False)
    firmware = PartCompiler(model, [TINY] * 2).compiled(["dense0"]).cascade
    samples = networks.inputs(rng, 60, 10)  # 60 messages of 7 words; a queue holds 256 words
    wanted = network.forward(model, samples)[-1].outputs
    with cascade("library", [TINY] * 2) as machines:
        first, second = CascadeSession(machines, firmware.parts).sessions
        for session in (first, second):
            session.prepare(1)
            session.machine.settle()
        for index, sample in enumerate(samples):
            first.machine.send(first.firmware.input_message(sample))
            if index < 30:
                first.machine.start()
                first.machine.run()
        got = []
        for index in range(len(samples)):
            second.machine.start()
            if index >= 30:
                first.machine.start()
                first.machine.run()
            second.check(second.machine.run())
            got += second.machine.receive()
        np.testing.assert_array_equal([second.firmware.output([message]) for message in got], wanted)


def test_beats_of_neighbours_are_equal():
    with pytest.raises(ValueError, match="beats of one width"):
        linked([TINY, preset("wide")])
