"""The choices of a quantised network: methods, widths and scales. The command line reads them without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING

from concord.net.quantize.results import IN_BINARY16, Results
from concord.net.quantize.stages import TrainingStage
from concord.spec.numbers.formats import Format

if TYPE_CHECKING:
    from concord.net.cells.cell import Cell


class Method(StrEnum):
    """A table of methods of one kind, a line for each: name, location, and what it does.

    The location is a file below `concord` and a name in it. It is imported when the method is first used, so that
    the command line can list all methods without loading NumPy or PyTorch. Options, checks and the tables of
    docs/quantisation.md follow from these lines: a new method is its own file and one line here.

    Attributes:
        location: File and name of what computes the method.
        summary:  What the method does, for docs/quantisation.md.
    """

    def __new__(cls, value: str, *_):
        member = str.__new__(cls, value)
        member._value_ = value
        return member

    def __init__(self, _: str, location: str, summary: str):
        self.location, self.summary = location, summary

    def load(self):
        """What computes this method, from its own file."""
        module, _, name = self.location.partition(":")
        return getattr(import_module(f"concord.{module}"), name)


class WeightMethod(Method):
    """How post-training quantisation finds integers and scales of weights: each location has a `WeightQuantizer`."""

    MMSE = (
        "mmse", "net.quantize.weights:mmse",
        "minimises the squared error: up to 10 bits exactly, by every scale at which an integer changes")
    UNIFORM = "uniform", "net.quantize.weights:uniform", "the range, so that nothing clips"
    KMEANS = (
        "kmeans", "net.quantize.weights:kmeans",
        "finds as many clusters as there are integers, then the nearest integers")


class ActivationMethod(Method):
    """How post-training quantisation finds saturation and offset of activations: each location has such a function."""

    SEARCH = (
        "search", "net.quantize.ranges:search", "b minimises the squared error; m is the mean of the samples' minima")
    ENDS = "ends", "net.quantize.ranges:ends", "b and m minimise the squared error, one after the other"
    DIVERGENCE = (
        "divergence", "net.quantize.ranges:divergence",
        "b minimises the Kullback-Leibler divergence between the histograms before and after")
    GAUSSIAN = (
        "gaussian", "net.quantize.ranges:gaussian",
        "b minimises the squared error of a half-normal distribution with the samples' mean square")
    UNIFORM = "uniform", "net.quantize.ranges:full_range", "the range, so that nothing clips"


@dataclass(frozen=True, kw_only=True, slots=True)
class Methods:
    """Methods of post-training quantisation, from which training starts.

    Attributes:
        weights:     Method that finds integers and scales of weights.
        rows:        Number of neighbouring rows that share a scale at the start; 0 gives the whole matrix one scale.
        activations: Method that finds saturations and offsets of activations.
        parts:       Number of parts of the inputs of each layer with a saturation and an offset of their own.
    """

    weights: WeightMethod = WeightMethod.MMSE
    rows: int = 1
    activations: ActivationMethod = ActivationMethod.SEARCH
    parts: int = 1

    def __post_init__(self):
        if self.parts < 1:
            raise ValueError(f"inputs of layers in {self.parts} parts: choose 1 or more for --input-parts")
        if self.rows < 0:
            raise ValueError(f"{self.rows} rows share a scale: choose 1 or more, or 0 for all of a layer")


class GateForm(StrEnum):
    """How the codes of the outputs of gates lie."""

    CURVE = "curve"  #: over all that the gate's curve can give
    SYMMETRIC = "symmetric"  #: about zero, out to the largest magnitude of the calibration set
    ASYMMETRIC = "asymmetric"  #: from the smallest to the largest output for the calibration set


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """How the weights and the outputs of an LSTM's gates become integers.

    Attributes:
        asymmetric: Whether integers cover the range from the smallest to the largest weight, with an integer zero
            point. Otherwise they are symmetric about 0.
        shared:     Whether both matrices of a gate share one scale, as the source claims. Otherwise each has its own.
        outputs:    Bits of the gates' outputs, 2 to 9; 0 leaves them in binary16.
        form:       How the codes of these outputs lie; those that are measured need a calibration set.
        biases:     Bits of integer biases, 2 to 32, which the accumulator adds; 0 for biases in binary16, which a
            multi-function unit adds.
    """

    asymmetric: bool = False
    shared: bool = False
    outputs: int = 0
    form: GateForm = GateForm.CURVE
    biases: int = 0

    def __post_init__(self):
        if self.measured and not self.outputs:
            raise ValueError(f"--gate-form {self.form} (gate_form in Python) says how the codes of the outputs of "
                             "gates lie: give their bits by --gate-bits (gate_bits)")
        if self.biases and not 2 <= self.biases <= 32:
            raise ValueError(f"biases of gates have 2 to 32 bits, or 0 for binary16, not {self.biases}")
        if self.outputs and not 2 <= self.outputs <= 9:
            raise ValueError(f"outputs of gates have 2 to 9 bits, or 0 for binary16, not {self.outputs}")

    @property
    def measured(self) -> bool:
        """Whether the codes of outputs follow the ranges of a calibration set."""
        return self.form is not GateForm.CURVE

    def check_blocks(self):
        """Refuse choices for integers, where block floating point has none.

        Raises:
            ValueError: there is one.
        """
        if self != Gates(outputs=self.outputs, form=self.form):
            raise ValueError("bfp finds its own exponents: --asymmetric, --shared and --bias-bits are for integer")

    def check(self, cell: "Cell"):
        """Refuse a cell whose gates cannot have outputs of so few bits.

        Raises:
            ValueError: the output of a gate has no bound, and none is measured.
        """
        if not self.measured:
            cell.check_gate_bits(self.outputs)

    @property
    def words(self) -> str:
        """The choices for outputs in words; empty if they keep binary16."""
        return f", outputs of gates of {self.outputs} bits{f', {self.form}' if self.measured else ''}" * bool(
            self.outputs)

    def travels_as(self, fmt: Format) -> Format:
        """Format of the machine's operands for weights of the format `fmt`: a zero point costs one bit.

        Raises:
            ValueError: no machine has operands as wide.
        """
        if not self.asymmetric:
            return fmt
        if fmt.bits == 16:
            raise ValueError("asymmetric weights of 16 bits multiply as integers of 17, operands have 16: use 15 bits")
        return Format(bits=fmt.bits + 1, symmetric=True)

    def __str__(self) -> str:
        kind = "asymmetric with an integer zero point" if self.asymmetric else "symmetric"
        biases = f", integer biases of {self.biases} bits" if self.biases else ""
        return f"{kind}, one scale for {'each gate' if self.shared else 'each matrix of each gate'}{self.words}{biases}"


class WeightTraining(Method):
    """How weights are trained behind their quantiser: each location has a class of `train.qat.weights.TrainedWeights`.

    Attributes:
        least_bits: Fewest bits of weights that the method can train.
    """

    def __init__(self, name: str, location: str, summary: str, least_bits: int = 2):
        super().__init__(name, location, summary)
        self.least_bits = least_bits

    @property
    def odd(self) -> bool:
        """Whether its integers are odd: one bit gives two of them, and each width needs one bit more on the machine."""
        return self.least_bits == 1

    WRPN = "wrpn", "train.qat.weight_methods:Wrpn", "round(w 2^(k-1)), clipped"
    DOREFA = (
        "dorefa", "train.qat.weight_methods:DoReFa",
        "the odd integer nearest to (2^k - 1) tanh(w) / c; c is fixed; needs k + 1 bits, k >= 1", 1)
    UNIFORM = "uniform", "train.qat.weight_methods:Uniform", "round(w / s), clipped; the step s is fixed"
    LSQ = (
        "lsq", "train.qat.learned_step:LearnedStep",
        "round(w / s), clipped; the step s is learned (Esser et al., 2020)")
    LSQ_ODD = (
        "lsq-odd", "train.qat.learned_step:LearnedStep",
        "the odd integer nearest to w / s; s is learned; needs k + 1 bits, k >= 1", 1)


class ActivationTraining(Method):
    """What is trained of a quantiser of activations: each location has a class of `train.qat.activations.Activations`.

    Attributes:
        learns_offset: Whether the offset m is trained. Otherwise it is 0 where no sample lies below 0.
    """

    def __init__(self, name: str, location: str, summary: str, learns_offset: bool = False):
        super().__init__(name, location, summary)
        self.learns_offset = learns_offset

    UNIFORM = (
        "uniform", "train.qat.activations:LearnedSaturation",
        "b, from the values above it, and m, from the values outside the range", True)
    PACT = "pact", "train.qat.activations:LearnedSaturation", "b, from the values above it"
    HWGQ = "hwgq", "train.qat.activations:Activations", "nothing"
    WRPN = "wrpn", "train.qat.activations:Activations", "nothing"
    LSQ = "lsq", "train.qat.learned_step:LearnedStepOfActivations", "b, from the rounding error of each value"


class Start(StrEnum):
    """The network from which training behind quantisers starts."""

    PTQ = "ptq"  #: from the network after post-training quantisation
    FP32 = "fp32"  #: from FP32 weights with scale 1, and ranges of activations


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a network is quantised and trained.

    Attributes:
        weights_bits:    Bits of weights: 1 to 16, or 24. None leaves weights in FP32.
        input_bits:      Bits of the inputs of each layer: 1 to 16, or 24. None leaves inputs in FP32.
        symmetric:       Whether the integers of weights leave out the lowest one, and whether the codes of inputs do.
            Hardware may then multiply magnitudes.
        methods:         Methods of post-training quantisation.
        weights:         How weights are trained.
        activations:     Which parameters of the quantisers of activations are trained.
        start:           The network from which training starts.
        unrounded:       Whether trained weights keep the fraction that rounding cuts off. Their integers are the same
            at first, but small gradients move them sooner.
        frozen:          Whether FP32 weights are not trained.
        normalise:       Whether batch normalisation stays under training, by the statistics of each batch, where
            weights are trained. Otherwise it is folded before.
        input_kept:      Whether the range of the network's own input is not trained. The range of images is known,
            and the gradient of the first layer by its input takes long.
        bits:            (weights_bits, input_bits) by name of the layers that differ.
        results:         Bits of the results of products that are quantised by themselves.
        stages:          Quantities that are initialised one after the other, with training between; none where
            training starts with all of them.
    """

    weights_bits: int | None = 4
    input_bits: int | None = 4
    symmetric: tuple[bool, bool] = (True, False)
    methods: Methods = Methods()
    weights: WeightTraining = WeightTraining.WRPN
    activations: ActivationTraining = ActivationTraining.UNIFORM
    start: Start = Start.PTQ
    unrounded: bool = True
    frozen: bool = False
    normalise: bool = False
    input_kept: bool = False
    bits: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    results: Results = IN_BINARY16
    stages: tuple[TrainingStage, ...] = ()

    def __post_init__(self):
        if self.stages and (self.start is not Start.PTQ or self.normalise):
            raise ValueError("--stages initialises by post-training quantisation, with batch normalisation folded: "
                             "leave --start fp32 and --batch-norm out")
        if self.stages and self.methods.parts > 1:
            raise ValueError("--stages initialises one saturation and one offset for each layer: leave --input-parts "
                             "out")
        for pair in ((self.weights_bits, self.input_bits), *self.bits.values()):
            for value in pair:
                if value is not None and value not in (*range(1, 17), 24):
                    raise ValueError(f"{value} bits: choose 1 to 16; `nnp compare`, which needs no machine, trains "
                                     "with 24, and with 32 for FP32 on one side")
            if pair[1] == 1 and self.symmetric[1]:
                raise ValueError("symmetric codes of 1 bit are all zero: use 2 bits, or full codes")
            if pair[0] is not None and pair[0] < self.weights.least_bits:
                able = " or ".join(method for method in WeightTraining if method.least_bits <= pair[0])
                raise ValueError(f"{self.weights} cannot train weights of {pair[0]} bit, which have no zero: use "
                                 f"{able}")

    def __str__(self) -> str:
        def width(bits):
            return f"{bits} bits" if bits else "FP32"

        rows = self.methods.rows
        scales = f"{rows} rows" if rows > 1 else "row" if rows else "tensor"
        parts = f" for each of {self.methods.parts} parts of the inputs" * (self.methods.parts > 1)
        begun = f"{self.methods.weights} for each {scales}, {self.methods.activations}{parts}"
        return (
            f"weights of {width(self.weights_bits)} by {self.weights}, inputs of {width(self.input_bits)} by "
            f"{self.activations}, from {begun if self.start is Start.PTQ else 'FP32'}"
            + ", batch normalisation kept under training" * self.normalise
            + ", range of the input kept" * self.input_kept
            + (", in stages " + ", ".join(f"{one}:{one.epochs}" for one in self.stages)) * bool(self.stages)
            + "".join(f", {name} {width(w)} and {width(i)}" for name, (w, i) in self.bits.items()) + self.results.words
        )

    def bits_of(self, name: str) -> tuple[int | None, int | None]:
        """Bits of the weights and of the inputs of a layer."""
        return self.bits.get(name, (self.weights_bits, self.input_bits))
