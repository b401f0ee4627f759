"""The options of quantisation, from which the command line, the Python functions and TOML files are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from concord.lib.user_options import UserOptions
from concord.net.quantize.choices import BlockFormats, BlockRecipe, Choices
from concord.net.quantize.recipe import (
    ActivationMethod,
    ActivationTraining,
    GateForm,
    Gates,
    Methods,
    Recipe,
    Start,
    WeightMethod,
    WeightTraining,
)
from concord.net.quantize.results import Results
from concord.net.quantize.stages import stages_of
from concord.net.quantize.widths import (
    NetworkArithmetic,
    Widths,
    element_of,
    shared_exponents,
    softmax_elements,
)
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizationOptions(UserOptions):
    """How a network is quantised, as a user says it; the fields have the names of options in Python and in TOML.

    Attributes:
        preset:          Machine: the name of a preset, or a TOML file. It sets the bits of weights and of inputs,
            `symmetric` and `block`; empty where the other options set them.
        arithmetic:      Integers, or block floating point.
        weights_bits:    Bits of weights; None for those of the machine.
        input_bits:      Bits of the inputs of layers; None for those of the machine.
        weights_float:   Weights with exponents of their own instead of `weights_bits`, such as "E2M1"; empty without.
        input_float:     The same for the inputs of layers.
        symmetric:       Whether inputs leave out their lowest code; None for what the machine does.
        full_weights:    Whether weights use all integers -2**(bits - 1)..2**(bits - 1) - 1, as the first source
            document has them, or leave out the lowest one.
        layers:          Bits of weights and of inputs of single layers, by name.
        block:           Number of elements that share an exponent; None for the machine's.
        ptq_weights:     Method that finds the scales of weights before any training.
        ptq_activations: Method that finds the ranges of the inputs of layers; None for that of the kind of network.
        rows:            Number of rows of weights that share a scale before training; 0 for all rows of a layer.
        input_parts:     Number of parts of the inputs of each layer, neighbouring channels with a saturation and an
            offset of their own.
        weights:         Method of training for weights; it also decides how weights become integers.
        activations:     Method of training for activations.
        start:           Starting point of training.
        stages:          Quantities that are initialised one after the other, each with the epochs of training behind
            it, such as "weights:1, saturations:1, offsets:2", instead of the epochs of QAT; empty for all at once.
        batch_norm:      Whether batch normalisation stays during training, and is folded afterwards.
        keep_input:      Whether the range of the network's input stays during training.
        asymmetric:      Whether integer weights of recurrent layers get a zero point, which costs one bit.
        shared:          Whether the two matrices of a gate share one scale.
        gate_bits:       Bits of the outputs of gates, 2 to 9; 0 keeps binary16.
        gate_form:       How the codes of these outputs lie: over all that the curve can give, or by the range that the
            calibration set shows, symmetric about zero or not.
        bias_bits:       Bits of integer biases of gates, 2 to 32, which the accumulator adds; 0 keeps binary16.
        output_bits:     Bits to which the result of each product is quantised before anything else is computed with it;
            None for results in binary16.
        output_layers:   The same of single layers, by name; None for binary16.
        equalize:        Whether channels are equalised before post-training quantisation, as far as it helps.
        reconstruct:     Whether post-training quantisation finds ranges, integers and biases of a layer by its results;
            None where it does so, with equalised channels, at 4 bits or fewer.
    """

    preset: str = ""
    arithmetic: NetworkArithmetic = NetworkArithmetic.INTEGER
    weights_bits: int | None = None
    input_bits: int | None = None
    weights_float: str = ""
    input_float: str = ""
    symmetric: bool | None = None
    full_weights: bool = False
    layers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    block: int | None = None
    ptq_weights: WeightMethod = WeightMethod.MMSE
    ptq_activations: ActivationMethod | None = None
    rows: int = 1
    input_parts: int = 1
    weights: WeightTraining = WeightTraining.WRPN
    activations: ActivationTraining = ActivationTraining.UNIFORM
    start: Start = Start.PTQ
    stages: str = ""
    batch_norm: bool = False
    keep_input: bool = False
    asymmetric: bool = False
    shared: bool = False
    gate_bits: int = 0
    gate_form: GateForm = GateForm.CURVE
    bias_bits: int = 0
    output_bits: int | None = None
    output_layers: Mapping[str, int | None] = field(default_factory=dict)
    equalize: bool = False
    reconstruct: bool | None = None

    @classmethod
    def value(cls, name, kind, value):
        if name == "output_layers":
            return _output_layers(value)
        if name != "layers":
            return super(QuantizationOptions, cls).value(name, kind, value)
        pairs = dict(value) if isinstance(value, Mapping) else {"": value}
        for layer, bits in pairs.items():
            if not (isinstance(bits, list | tuple) and len(bits) == 2 and all(type(count) is int for count in bits)):
                raise ValueError(f"layers: bits of weights and of inputs are needed for each name, such as "
                                 f"{layer or 'conv1'} = [8, 8], not {bits!r}")
        return {layer: (bits[0], bits[1]) for layer, bits in pairs.items()}

    @property
    def gates(self) -> Gates:
        """How the gates of recurrent layers become integers."""
        return Gates(asymmetric=self.asymmetric, shared=self.shared, outputs=self.gate_bits, form=self.gate_form,
                     biases=self.bias_bits)

    @property
    def results(self) -> Results:
        """Bits of the results of products that are quantised by themselves."""
        return Results(bits=self.output_bits, layers=dict(self.output_layers))

    @property
    def only_widths(self) -> Self:
        """The machine and the widths alone, with defaults for everything else."""
        kept = ("preset", "weights_bits", "input_bits", "weights_float", "input_float", "symmetric")
        return type(self)(**{name: getattr(self, name) for name in kept})

    @property
    def names_widths(self) -> bool:
        """Whether a machine is named, or any width."""
        return self.only_widths != type(self)()

    @property
    def beyond_widths(self) -> bool:
        """Whether the options choose more than widths, which a network that is quantised already cannot follow."""
        return self.arithmetic is not NetworkArithmetic.INTEGER or self.choices() != self.only_widths.choices()

    def require_widths(self):
        """Refuse options that name neither a machine nor both widths.

        Raises:
            ValueError: one is missing.
        """
        given = ((self.weights_bits, self.weights_float), (self.input_bits, self.input_float))
        if not self.preset and any(bits is None and not text for bits, text in given):
            raise ValueError("name the machine, such as --preset vision (preset=\"vision\" in Python), or give the "
                             "bits of weights and of inputs")

    def widths(self) -> Widths:
        """The widths that the options choose, 4 bits by default; or the widths of the machine.

        Raises:
            ValueError: there is no such machine or float, or options contradict each other.
        """
        if self.preset:
            return self._machine_widths(find_config(self.preset))
        elements = (element_of("weights", self.weights_float, self.weights_bits),
                    element_of("input", self.input_float, self.input_bits))
        weights, inputs = (4 if bits is None else bits for bits in (self.weights_bits, self.input_bits))
        return Widths(weights=weights, inputs=inputs, symmetric=bool(self.symmetric), weights_element=elements[0],
                      input_element=elements[1])

    def _machine_widths(self, machine: Config) -> Widths:
        if self.only_widths != type(self)(preset=self.preset):
            raise ValueError(f"--preset {self.preset} decides --weights-bits, --input-bits, --weights-float, "
                             "--input-float and --symmetric: leave those out")
        found = Widths.of(machine)
        if self.asymmetric:
            found.check_integers()
        return replace(found, weights=found.weights - self.weights.odd - self.asymmetric)

    def recipe(self, ptq_activations: ActivationMethod = ActivationMethod.SEARCH) -> Recipe | BlockRecipe:
        """The recipe for integers or for block floating point that the options describe.

        Args:
            ptq_activations: Method that finds ranges where no option names one.

        Raises:
            ValueError: a width does not exist, a method does not support it, or options contradict each other.
        """
        given, bits = self.widths(), dict(self.layers)
        if self.full_weights and self.preset and find_config(self.preset).weights.symmetric:
            raise ValueError(f"--preset {self.preset} has no weight of -2**(bits - 1): leave --full-weights out, or "
                             "name a machine whose weights are not symmetric")
        common = {"weights_bits": given.weights, "input_bits": given.inputs, "bits": bits, "results": self.results}
        made = Recipe(
            **common, symmetric=(not self.full_weights, given.symmetric), weights=self.weights,
            activations=self.activations, start=self.start, normalise=self.batch_norm, input_kept=self.keep_input,
            stages=stages_of(self.stages),
            methods=Methods(
                weights=self.ptq_weights, rows=self.rows, activations=self.ptq_activations or ptq_activations,
                parts=self.input_parts))
        if self.arithmetic is NetworkArithmetic.INTEGER:
            if self.block is not None:
                raise ValueError("--block is for --arithmetic bfp")
            given.check_integers()
            return made
        own = replace(made, methods=replace(made.methods, activations=self.ptq_activations or ActivationMethod.SEARCH))
        if own != Recipe(**common, symmetric=(True, given.symmetric)) or self.symmetric is not None:
            raise ValueError(
                "bfp finds its own exponents: --symmetric, --full-weights, --ptq-weights, --ptq-activations, --rows, "
                "--input-parts, --weights, --activations, --start, --stages, --batch-norm and --keep-input are for "
                "integer")
        return self._block_recipe(given)

    def _block_recipe(self, given: Widths) -> BlockRecipe:
        """The recipe for block floating point with these widths, or with those of the machine.

        Raises:
            ValueError: networks cannot be trained in the machine's block floating point, or --block contradicts it.
        """
        elements = {"weights_element": given.weights_element, "input_element": given.input_element}
        common = {"weights_bits": given.weights, "input_bits": given.inputs, "bits": dict(self.layers), **elements,
                  "results": self.results}
        if not self.preset:
            weights, inputs = map(shared_exponents, elements.values())
            return BlockRecipe(**common, exponents=weights, input_exponents=None if inputs == weights else inputs,
                               **({} if self.block is None else {"block": self.block}))
        if self.block is not None:
            raise ValueError(f"--preset {self.preset} decides --block: leave it out")
        machine = find_config(self.preset)
        made = BlockRecipe(**common, block=machine.native_dim,
                           exponents=(machine.weights.e_min, machine.weights.e_max),
                           input_exponents=(machine.activations.e_min, machine.activations.e_max))
        if made.formats("") != (machine.weights, machine.activations):
            raise ValueError("networks are trained with symmetric mantissas, and exponents under the rule frexp, which "
                             f"the machine {self.preset} does not have; --preset speech has")
        return made

    def choices(self) -> Choices:
        """How an imported network is quantised.

        The inputs of its layers may have any sign and any tails, where the method `search` clips the lower end.

        Raises:
            ValueError: there is no such machine, or options are missing or contradict each other.
        """
        self.require_widths()
        made = self.recipe(ActivationMethod.ENDS)
        if self.arithmetic is NetworkArithmetic.BFP:
            self.gates.check_blocks()
        if self.arithmetic is NetworkArithmetic.BFP and self.equalize:
            raise ValueError("bfp finds its own exponents: --equalize is for integer")
        if self.arithmetic is NetworkArithmetic.BFP and self.reconstruct:
            raise ValueError("bfp finds its own exponents: --reconstruct is for integer")
        return Choices(recipe=made, gates=self.gates, softmax=softmax_elements(self.preset), equalize=self.equalize,
                       reconstruct=self.reconstruct, machine=self._formats())

    def _formats(self) -> BlockFormats | None:
        """The formats of the machine that is named, or None."""
        if not self.preset:
            return None
        machine = find_config(self.preset)
        return BlockFormats(weights=machine.weights, inputs=machine.activations, block=machine.native_dim)

    def check_trains(self):
        """Refuse options that are for quantising without training.

        Raises:
            ValueError: there is one.
        """
        if self.equalize:
            raise ValueError("--equalize is for `nnp quantize` and `nnp verify`, which do not train: leave it out")
        if self.reconstruct:
            raise ValueError("--reconstruct is for `nnp quantize` and `nnp verify`, which do not train: leave it out")


def _output_layers(value) -> dict[str, int | None]:
    """The bits of the results of single layers, as TOML and Python give them; "none" stands for binary16."""
    pairs = dict(value) if isinstance(value, Mapping) else {"": value}
    for layer, bits in pairs.items():
        if not layer or not (bits in (None, "none") or type(bits) is int):
            raise ValueError(f"output_layers: bits, or \"none\", are needed for each name, such as "
                             f"{layer or 'conv1'} = 8, not {bits!r}")
    return {layer: None if bits == "none" else bits for layer, bits in pairs.items()}


#: The options where nobody gave any.
DEFAULTS = QuantizationOptions()
