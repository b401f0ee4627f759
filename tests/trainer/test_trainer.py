"""Programs: loops and bases, every error with its address, a step of a small perceptron, several cores."""

import time
from dataclasses import replace

import numpy as np
import pytest
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import TrainingTensor, to_training_tensor
from concord.golden.lazy.tensor_layers import unit
from concord.golden.lazy.tensor_training import Rates, train_step
from concord.golden.trainer.memory import Seen, planes_of, write_parts
from concord.golden.trainer.summary import FORMAT, Summary
from concord.golden.trainer.trainer import Rendezvous, Trainer, run_together
from concord.sim.stimulus.trainer_parts import SMALL as CORE
from concord.sim.stimulus.trainer_programs import SERVER_WORDS
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import MeasureKind, Space, TrainerError, TrainerOp, instruction
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister, rate_bits
from concord.spec.trainer.text import assemble
from concord.spec.trainer.views import TrainerView
from concord.tests.trainer.bench import Bench
from concord.tests.trainer.refused import FINE, RECORD, REFUSED, TWO, refused_program

SMALL = TrainerConfig(words=256, accumulator_rows=64, views=8, bases=4, exponents=16, instructions=64)


def trainer(program: list[int], number: int = 0, server: np.ndarray | None = None) -> Trainer:
    """A small core with a program."""
    found = Trainer(SMALL, np.zeros((64, 16), np.uint8) if server is None else server, number)
    found.load(program)
    return found


def written(*views: TrainerView) -> list[int]:
    """The words that write views V0 up."""
    return [word for number, view in enumerate(views) for word in view.tensor(number).words]


def test_loops_and_bases():
    one = trainer(
        assemble("""
        s_wr r 2, value 5
        loop count 3
        s_add r 2, value -7
        loop count 4
        s_add r 3, value 0x7fffffff
        end_loop
        end_loop
        swap r 0, q 2
        end
    """)
    )
    assert one.run(11, 12) == TrainerError.NONE
    assert one.core.bases == [-16, 12, 11, -12]
    assert [one.read_register(TrainerRegister.BASES + 4 * k) for k in range(2)] == [(1 << 32) - 16, 12]
    assert one.read_register(TrainerRegister.COUNTERS + 4 * TrainerCounter.INSTRUCTIONS) == 1 + 1 + 3 * (3 + 4 * 2) + 2
    assert one.run(1, 2) == TrainerError.NONE
    assert one.core.bases[3] == -24, "bases outlive a run"
    one.load([])
    assert one.core.bases[3] == -24, "bases outlive a LOAD"
    one.reset()
    assert one.core.bases == [0] * 4
    with pytest.raises(ValueError, match="the program has 65 words, and the instruction buffer holds 64"):
        one.load([0] * 65)


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_refused(case):
    views, *_, error = REFUSED[case]
    one = Trainer(CORE, np.zeros((SERVER_WORDS, 16), np.uint8))
    one.load(refused_program(case))
    one.core.chip[:] = np.random.default_rng(case).integers(0, 256, one.core.chip.shape)
    before = one.core.chip.copy()
    assert one.run() == error
    assert one.address == one.read_register(TrainerRegister.ERROR_ADDRESS) == 2 * len(views)
    assert one.read_register(TrainerRegister.ERROR) == error
    assert (one.core.chip == before).all()
    assert not one.core.accumulators.any()
    assert not any(each.written for each in one.core.exponents)


def test_loops_that_do_not_pair():
    for text, error, address in (
        ("loop count 2\n" * 5, TrainerError.LOOP, 4),
        ("loop count 1\nend", TrainerError.LOOP, 1),
        ("s_wr r 0\nloop count 2\nrepeat target 0", TrainerError.LOOP, 2),
        ("s_wr r 0\n" * 64, TrainerError.END, 64),
        ("s_wr r 0\n" * 63 + ".word 1", TrainerError.END, 63),
        ("s_wr r 0", TrainerError.ILLEGAL, 1),
    ):
        one = trainer(assemble(text))
        assert (one.run(), one.address) == (error, address)


def test_units_that_differ_and_exponents_without_rest():
    views = written(FINE, TWO, replace(FINE, offset=128), replace(RECORD, offset=144), replace(RECORD, offset=64))
    product = {"mode": 1, "outputs": 3, "b": 2, "n0": 1, "n1": 1, "n2": 1, "ey": 1}
    twice = [word for a in (0, 1) for word in instruction(TrainerOp.PRODUCT, a=a, **product).words]
    one = trainer([*views, *twice])
    assert (one.run(), one.address) == (TrainerError.MISMATCH, 11), "a of 2 planes has a finer unit"
    updates = [word for ew in (2, 3) for word in instruction(TrainerOp.UPDATE, old=3, new=4, ew=ew, ev=4, eg=1).words]
    one = trainer([*views, *updates])
    assert (one.run(), one.address) == (TrainerError.MISMATCH, 11)
    measured = instruction(TrainerOp.MEASURE, kind=MeasureKind.UPDATE, e=4, ew=3, eg=1).words
    one = trainer([*views, *updates[:1], *measured])
    assert (one.run(), one.address) == (TrainerError.MISMATCH, 11)
    fault = written(FINE, replace(FINE, offset=16), replace(FINE, offset=32)) + assemble(
        "add y 0, a 1, b 2, ea 1, eb 1, ey 1\nmeasure e 1\nrepeat target 6"
    )  # its own exponent: it rises with each pass
    one = trainer(fault)
    one.core.chip[16:48] = 127
    assert (one.run(), one.address) == (TrainerError.AGAIN, 8)
    assert one.repeats == 8


class Layer:
    """A dense layer of the perceptron: parameters in the memory of a bench, old and new, and its exponents."""

    def __init__(self, bench: Bench, weight, bias):
        self.outputs, self.inputs = weight.mantissas.shape
        self.bench, self.parts = bench, (("weight", weight), ("bias", bias))
        self.copies, self.numbers = {}, {}
        for name, parameters in self.parts:
            matrix = np.atleast_2d(parameters.mantissas)
            rows, blocks = -(-len(matrix) // 16) * 16 if name == "weight" else 1, -(-matrix.shape[1] // 16)
            pair = []
            for _ in range(2):
                offset, tall = bench.next, rows * blocks + -(rows * blocks) % 16
                bench.next += 5 * tall
                pair.append(
                    TrainerView(planes=5, plane=tall, offset=offset, n0=blocks, s0=rows, n1=len(matrix), pitch1=1)
                )
            self.copies[name] = pair
            self.numbers[name] = [bench.exponent(parameters.exponent), bench.exponent(-126), bench.exponent()]
            residuals = np.atleast_2d(parameters.residuals)
            planes = np.concatenate(
                [planes_of(matrix, 1), planes_of(residuals, 2), np.zeros((2, *matrix.shape), np.uint8)]
            )
            padded = np.pad(planes, ((0, 0), (0, 0), (0, -matrix.shape[1] % 16)))
            words = padded.reshape(5, len(matrix), blocks, 16).swapaxes(1, 2).reshape(5, 1, -1, 16)
            write_parts(bench.core.chip, Seen(pair[0], 0), words)

    def forward(self, x: TrainerView, y: TrainerView, ex: int, ey: int, relu: int):
        """y = weight x + bias."""
        bench, begin = self.bench, len(self.bench.program)
        weight, bias = self.copies["weight"][0], self.copies["bias"][0]
        for block in range(y.blocks):
            b = bench.view(TrainerView(offset=weight.offset + 16 * block, s0=weight.s0))
            views = {
                "a": bench.view(x),
                "b": b,
                "y": bench.view(replace(y, offset=y.offset + block * y.block)),
                "bias": bench.view(replace(bias, planes=1, offset=bias.offset + block, n0=1)),
            }
            bench.do(
                TrainerOp.PRODUCT,
                **views,
                turned=1,
                relu=relu,
                ea=ex,
                eb=self.numbers["weight"][0],
                ey=ey,
                ebias=self.numbers["bias"][0],
                n0=x.blocks,
                n1=1,
                n2=1,
                a_s0=x.block,
            )
        bench.repeated(begin, e=ey)

    def inputs_back(self, g: TrainerView, gx: TrainerView, mask: TrainerView, eg: int, egx: int):
        """The gradient of the inputs, where they are above 0."""
        bench, begin = self.bench, len(self.bench.program)
        weight = self.copies["weight"][0]
        for block in range(gx.blocks):
            b = bench.view(TrainerView(offset=weight.offset + block * weight.s0, s0=16))
            views = {
                "a": bench.view(g),
                "b": b,
                "y": bench.view(replace(gx, offset=gx.offset + block * gx.block)),
                "mask": bench.view(replace(mask, offset=mask.offset + block * mask.block)),
            }
            bench.do(
                TrainerOp.PRODUCT,
                **views,
                ea=eg,
                eb=self.numbers["weight"][0],
                ey=egx,
                n0=g.blocks,
                n1=1,
                n2=1,
                a_s0=g.block,
            )
        bench.repeated(begin, e=egx)

    def update(self, x: TrainerView, g: TrainerView, ex: int, eg: int):
        """One step of weights and biases."""
        bench = self.bench
        es, esb = (self.numbers[name][2] for name in ("weight", "bias"))
        rest = -self.outputs % 16  # lanes behind the last output are zeros in a bias, so their plain sums are
        spare = TrainerView(space=Space.ACCUMULATORS, planes=6, offset=self.outputs, n0=rest, s0=1, blocks=2)
        bench.do(TrainerOp.COPY, to=bench.view(spare), zeros=1)
        bench.do(
            TrainerOp.PRODUCT,
            a=bench.view(g),
            b=bench.view(x),
            mode=1,
            sum=1,
            ea=eg,
            eb=ex,
            ey=es,
            ebias=esb,
            outputs=self.outputs,
            n0=x.blocks,
            n1=1,
            n2=1,
            a_s0=x.block,
        )
        for name, bias in (("weight", 0), ("bias", 1)):
            old, new = (bench.view(view) for view in self.copies[name])
            ew, ev, es = self.numbers[name]
            begin = len(bench.program)
            bench.do(TrainerOp.UPDATE, old=old, new=new, bias=bias, ew=ew, ev=ev, eg=es)
            bench.repeated(begin, MeasureKind.UPDATE, e=ev, ew=ew, eg=es)

    def take(self):
        """Make the new parameters the old ones."""
        for old, new in self.copies.values():
            chip = self.bench.core.chip
            chip[old.offset : old.offset + 5 * old.plane] = chip[new.offset : new.offset + 5 * old.plane]

    def found(self, name: str, planes: slice) -> np.ndarray:
        """Numbers of planes of a parameter, as golden has them."""
        view, (_, parameters) = self.copies[name][0], self.parts[name == "bias"]
        count = planes.stop - planes.start
        rows, columns = np.atleast_2d(parameters.mantissas).shape
        part = replace(
            view,
            planes=count,
            offset=view.offset + planes.start * view.plane,
            n0=rows,
            s0=1,
            n1=1,
            pitch1=0,
            blocks=view.n0,
            block=view.s0,
        )
        return self.bench.get(part, columns).reshape(parameters.mantissas.shape)


def test_steps_of_a_perceptron():
    rng, rates, batch = np.random.default_rng(5), Rates(learning_rate=0.05, momentum=0.9), 64
    network = (tensor_network.Dense(40, 24), tensor_network.Relu(), tensor_network.Dense(24, 10))
    parameters = {
        name: initial_parameters(rng.normal(0, 0.2, shape), FORMAT)
        for name, shape in tensor_network.shapes(network).items()
    }
    tensor_network.check(network)
    bench, momenta = Bench(seed=5), {}
    x = bench.room(batch, 40, 1)
    h, y = bench.room(batch, 24, 1), bench.room(batch, 10, 4)
    g, gh = bench.room(batch, 10, 2), bench.room(batch, 24, 2)
    layers = [Layer(bench, *(parameters[f"{name}.{part}"] for part in ("weight", "bias"))) for name in ("0", "2")]
    ex, eh, ey, eg, egh = (bench.exponent() for _ in range(5))
    layers[0].forward(x, h, ex, eh, 1)
    layers[1].forward(h, y, eh, ey, 0)
    bench.do(TrainerOp.END)
    forward, bench.program = bench.program, []
    layers[1].inputs_back(g, gh, h, eg, egh)
    layers[1].update(h, g, eh, eg)
    layers[0].update(x, gh, ex, egh)
    bench.do(TrainerOp.END)
    one = Trainer(TrainerConfig(instructions=4096), bench.core.server)
    one.core, bench.trainer = bench.core, one
    for register, rate in (
        (TrainerRegister.RATE, rates.learning_rate_tensor),
        (TrainerRegister.DECAY, rates.momentum_tensor),
    ):
        one.write_register(register, rate_bits(int(rate.mantissas.item()), int(rate.exponent.item())))
    for number, value in bench.exponents.items():
        bench.core.exponents[number].set(value)
    seconds = 0.0
    for _ in range(6):
        inputs = to_training_tensor(rng.normal(0, 1, (batch, 40)), 8)
        outputs, tape = tensor_network.forward(network, parameters, inputs)
        gradient = to_training_tensor(rng.normal(0, 1, (batch, 10)) + outputs.values / 50, 16)
        put_at(bench, x, inputs, ex)
        put_at(bench, g, gradient, eg)
        begun = time.process_time()
        one.load(forward)
        assert one.run() == TrainerError.NONE
        assert (bench.get(y, 10) == outputs.mantissas).all()
        assert bench.core.exponents[ey].now == int(outputs.exponent.item())
        one.load(bench.program)
        assert one.run() == TrainerError.NONE
        seconds += time.process_time() - begun
        train_step(parameters, momenta, tensor_network.backward(parameters, tape, gradient), rates)
        for name, layer in zip(("0", "2"), layers, strict=True):
            layer.take()
            for part, numbers in layer.numbers.items():
                wanted, velocity = parameters[f"{name}.{part}"], momenta[f"{name}.{part}"]
                assert (layer.found(part, slice(0, 1)) == wanted.mantissas).all()
                assert (layer.found(part, slice(1, 3)) == wanted.residuals).all()
                assert (layer.found(part, slice(3, 5)) == velocity.mantissas).all()
                assert bench.core.exponents[numbers[0]].now == wanted.exponent
                assert unit(velocity) == bench.core.exponents[numbers[1]].unit(2)
    assert seconds < 6, "a step takes more than a second"


def put_at(bench: Bench, view: TrainerView, tensor: TrainingTensor, number: int):
    """Put a tensor where a program expects it."""
    held = Bench(seed=0)
    found = held.put(tensor.mantissas, view.planes)
    words = held.core.chip[: view.planes * found.plane]
    bench.core.chip[view.offset : view.offset + len(words)] = words
    bench.core.exponents[number].set(int(tensor.exponent.item()))


def test_cores_share_sums_and_exponents():
    server = np.zeros((512, 16), np.uint8)
    rows = 4
    share = TrainerView(
        space=Space.SERVER, planes=6, plane=2 * rows, n0=3, s0=12 * rows, n1=rows, pitch1=1, blocks=2, block=rows
    )
    program = written(FINE, replace(FINE, offset=16), replace(FINE, offset=32), share) + assemble("""
        barrier cores 7
        add y 0, a 1, b 2, ea 1, eb 2, ey 3
        measure e 3, cores 7
        repeat target 9
        sum acc 2, x 3, cores 7
        end
    """)
    cores, rng = [trainer(program, number, server) for number in range(3)], np.random.default_rng(1)
    for number, one in enumerate(cores):
        one.core.chip[16:48] = rng.integers(0, 256, (32, 16)) >> number
        one.core.accumulators[:] = rng.integers(-1 << 44, 1 << 44, one.core.accumulators.shape)
    whole = sum(one.core.accumulators.copy() for one in cores)
    sums = [one.core.chip[16:20].view(np.int8).astype(int) + one.core.chip[32:36].view(np.int8) for one in cores]
    largest = max(np.abs(each).max() for each in sums)
    assert run_together(cores, [(0, 0)] * 3) == [TrainerError.NONE] * 3
    for one, wanted in zip(cores, sums, strict=True):
        assert one.core.exponents[3].now == int(np.ceil(np.log2(largest))) - 126 - 7
        shift = one.core.exponents[3].unit(1) - (-126 - 7)
        rounded = np.sign(wanted) * (np.abs(wanted) + (1 << shift >> 1) >> shift)
        assert (one.core.chip[:4].view(np.int8) == np.clip(rounded, -128, 127)).all()
        assert (one.core.accumulators[2 : 2 + rows] == whole[2 : 2 + rows]).all()
        assert one.repeats == 1


@pytest.mark.parametrize(
    ("texts", "errors"),
    [
        (("barrier cores 3\nend", "end"), (TrainerError.PEER, TrainerError.NONE)),
        (("barrier cores 3\nend", "loop count 0"), (TrainerError.PEER, TrainerError.LOOP)),
        (("barrier cores 3\nend", "measure e 0, cores 3\nend"), (TrainerError.PEER,) * 2),
        (
            ("barrier cores 3\nend", "barrier cores 7\nend", "end"),
            (TrainerError.PEER, TrainerError.PEER, TrainerError.NONE),
        ),
        (
            ("barrier cores 3\nbarrier cores 5\nend", "barrier cores 3\nend", "barrier cores 5\nend"),
            (TrainerError.NONE,) * 3,
        ),
    ],
)
def test_cores_that_wait_in_vain(texts, errors):
    cores = [trainer(assemble(text), number) for number, text in enumerate(texts)]
    assert run_together(cores, [(0, 0)] * len(cores)) == list(errors)


def test_an_underflow_keeps_the_lengths_of_the_core_alone():
    """A peer's length made the update too small: the instruction has moved nothing."""
    one = trainer(instruction(TrainerOp.MEASURE, kind=MeasureKind.UPDATE, e=2, ew=1, eg=3, cores=3).words)
    momenta, gradients = one.core.exponents[2], one.core.exponents[3]
    momenta.lsb, momenta.length, momenta.written, momenta.next = -130, 5, True, -122
    gradients.lsb, gradients.length, gradients.written, gradients.next = -157, 1, True, -126
    one.core.summary = Summary(exponents=(1, 2, 3), length=1)
    run = one.execution(0, 0)
    mine = next(run)
    with pytest.raises(StopIteration):
        run.send([mine, Rendezvous(mine.op, mine.cores, (9, 0, 1), one.core.summary)])
    assert (one.error, momenta.length) == (TrainerError.UNDERFLOW, 5)
