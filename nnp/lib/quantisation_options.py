"""Options about how a network is quantised, for all commands that quantise."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from concord.spec.formats import Format
from concord.spec.machine_file import find_config
from concord.train.lib.block_recipe import BlockRecipe
from concord.train.lib.methods import (
    ActivationMethod,
    ActivationTraining,
    Methods,
    Recipe,
    Start,
    WeightMethod,
    WeightTraining,
)

Network = Annotated[str, typer.Argument(
    help="mlp, resnet, resnet-small, mobilenet, mobilenet-small, inception, inception-small, or module:callable, "
         "which makes a torch.nn.Module.")]
Preset = Annotated[str, typer.Option(
    "--preset", "--config", metavar="MACHINE",
    help="Quantise for this machine, a preset or a TOML file, which sets the bits of weights and inputs, "
         "and --symmetric.",
    show_default=False)]
WeightsBits = Annotated[
    int | None, typer.Option(
        "--weights-bits", help="Bits of weights: 1 to 8, or 16.", show_default="4, or the machine's")]
InputBits = Annotated[
    int | None, typer.Option(
        "--input-bits", help="Bits of the inputs of layers: 2 to 8, or 16.", show_default="4, or the machine's")]
WeightsFloat = Annotated[str, typer.Option(
    "--weights-float", metavar="EeMm", show_default=False,
    help="Weights with an exponent of e bits for each, and m bits of fraction: E4M3, E2M1, or E3M0 for powers of two. "
         "For --arithmetic bfp, in place of --weights-bits.")]
InputFloat = Annotated[str, typer.Option(
    "--input-float", metavar="EeMm", show_default=False,
    help="The same for the inputs of layers, in place of --input-bits.")]
Layer = Annotated[
    list[str] | None, typer.Option(
        "--layer", help="Bits of one layer, as NAME=WEIGHTS,INPUTS. May be repeated.", show_default=False)]
Symmetric = Annotated[bool | None, typer.Option(
    "--symmetric/--full", help="Leave out the lowest code of inputs, as most machines do, or use all codes.",
    show_default="full, or the machine's")]
PtqWeights = Annotated[WeightMethod, typer.Option(
    "--ptq-weights", help="Method that finds the scales of weights before QAT (quantisation-aware training).")]
PtqActivations = Annotated[
    ActivationMethod, typer.Option(
        "--ptq-activations", help="Method that finds the ranges of inputs of layers before QAT.")]
Rows = Annotated[
    int, typer.Option(
        "--rows", help="Number of rows of weights that share a scale before QAT; 0 for all rows of a layer.", min=0)]
Weights = Annotated[WeightTraining, typer.Option(
    "--weights", help="Method of QAT for weights; it also decides how weights become integers.")]
Activations = Annotated[ActivationTraining, typer.Option("--activations", help="Method of QAT for activations.")]
Begin = Annotated[Start, typer.Option("--start", help="Starting point of QAT.")]
BatchNorm = Annotated[bool, typer.Option(
    "--batch-norm", help="Keep batch normalisation during QAT, and fold it afterwards.")]
KeepInput = Annotated[bool, typer.Option(
    "--keep-input", help="Keep the range of the input images during QAT, which is faster.")]
Data = Annotated[Path | None, typer.Option(
    "--data", help="Folder of training and test data, with the file names of Fashion-MNIST or JapaneseVowels.",
    show_default="the published data")]


ALONE = 4  #: Bits of an exponent field from which elements need no exponent that their block shares.
WIDEST = 8  #: Bits that stand for elements with exponents of their own in what counts bits.


class NetworkArithmetic(StrEnum):
    """The arithmetic of an image network, a recurrent network or an imported one."""

    INTEGER = "integer"
    BFP = "bfp"


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Bits of weights and of inputs, and whether inputs leave out their lowest code.

    An element is the (exponent, fraction) bits of weights or inputs that have exponents of their own; None without.
    """

    weights: int
    inputs: int
    symmetric: bool
    weights_element: tuple[int, int] | None = None
    input_element: tuple[int, int] | None = None

    def check_integers(self):
        """Refuse elements with exponents of their own, which integer networks have not.

        Raises:
            ValueError: there are such elements.
        """
        for what, element in (("weights", self.weights_element), ("inputs", self.input_element)):
            if element:
                raise ValueError(f"{what} of E{element[0]}M{element[1]}: integers have no exponents of their own; "
                                 "quantise in block floating point, with --arithmetic bfp where the command has it")


def widths(
    preset: str, weights_bits: int | None, input_bits: int | None, symmetric: bool | None,
    training: WeightTraining = WeightTraining.WRPN, floats: tuple[str, str] = ("", ""),
) -> Widths:
    """The widths that the options choose, 4 bits by default; or the widths of a machine.

    Args:
        preset:   Name of a preset, or a TOML file of a machine; empty if the other options decide.
        weights_bits, input_bits, symmetric: Values of these options; None if they are not given.
        training: Training method of weights; one that gives odd integers needs one more bit.
        floats:   Values of --weights-float and --input-float; empty if they are not given.

    Raises:
        ValueError: there is no such machine or float, or another option contradicts it.
    """
    if not preset:
        elements = [_element(option, text, bits) for option, text, bits in zip(
            ("weights", "input"), floats, (weights_bits, input_bits), strict=True)]
        weights, inputs = (4 if bits is None else bits for bits in (weights_bits, input_bits))
        return Widths(weights=weights, inputs=inputs, symmetric=bool(symmetric), weights_element=elements[0],
                      input_element=elements[1])
    machine = find_config(preset)
    if (weights_bits, input_bits, symmetric, *floats) != (None, None, None, "", ""):
        raise ValueError(f"--preset {preset} decides --weights-bits, --input-bits, --weights-float, --input-float and "
                         "--symmetric: leave those out")
    elements = [(fmt.field_bits, fmt.precision - 1) if fmt.precision else None
                for fmt in (machine.weights, machine.activations)]
    # The bits of an element with an exponent of its own are those of no integer.
    weights, inputs = (fmt.bits if element is None else WIDEST for fmt, element in zip(
        (machine.weights, machine.activations), elements, strict=True))
    return Widths(weights=weights - training.odd, inputs=inputs, symmetric=machine.activations.symmetric,
                  weights_element=elements[0], input_element=elements[1])


def _element(option: str, text: str, bits: int | None) -> tuple[int, int] | None:
    """The bits of exponent and fraction that the value of an option such as --weights-float names."""
    if not text:
        return None
    if bits is not None:
        raise ValueError(f"--{option}-float {text} decides --{option}-bits: leave one out")
    found = re.fullmatch(r"E(\d+)M(\d+)", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"--{option}-float {text}: bits of exponent and fraction are needed, such as E2M1, or E3M0 "
                         "for powers of two")
    element = int(found[1]), int(found[2])
    try:
        Format.floating(*element)
    except ValueError as error:
        raise ValueError(f"--{option}-float {text}: {error}") from error
    return element


def formats(preset: str, asymmetric: bool = False) -> tuple[Format, Format]:
    """Integer formats of weights and inputs on a machine.

    Args:
        asymmetric: Whether weights have zero points, which cost one bit.
    """
    machine = find_config(preset)
    widths(preset, None, None, None).check_integers()
    return (Format(bits=machine.weights.bits - asymmetric, symmetric=True),
            Format(bits=machine.activations.bits, symmetric=machine.activations.symmetric))


def block_recipe(preset: str, given: Widths, bits: Mapping[str, tuple[int, int]], block: int | None) -> BlockRecipe:
    """The recipe for block floating point with these widths, or with those of a machine.

    Raises:
        ValueError: networks cannot be trained in the machine's block floating point, or --block contradicts it.
    """
    if not preset:
        weights, inputs = (_ends(element) for element in (given.weights_element, given.input_element))
        return BlockRecipe(weights_bits=given.weights, input_bits=given.inputs, bits=bits, **_elements(given),
                           exponents=weights, input_exponents=None if inputs == weights else inputs,
                           **({} if block is None else {"block": block}))
    machine = find_config(preset)
    if block is not None:
        raise ValueError(f"--preset {preset} decides --block: leave it out")
    made = BlockRecipe(weights_bits=given.weights, input_bits=given.inputs, bits=bits, block=machine.native_dim,
                       **_elements(given),
                       exponents=(machine.weights.e_min, machine.weights.e_max),
                       input_exponents=(machine.activations.e_min, machine.activations.e_max))
    if made.formats("") != (machine.weights, machine.activations):
        raise ValueError(f"--preset {preset}: networks are trained with symmetric mantissas, and exponents under the "
                         "rule frexp, which this machine does not have; speech has")
    return made


def _elements(given: Widths) -> dict:
    return {"weights_element": given.weights_element, "input_element": given.input_element}


def _ends(element: tuple[int, int] | None) -> tuple[int, int]:
    """Exponents that blocks share without a machine: one alone where elements have long exponents of their own."""
    e_min, e_max = BlockRecipe().exponents
    return (e_max, e_max) if element and element[0] >= ALONE else (e_min, e_max)


def in_arithmetic(
    arithmetic: NetworkArithmetic, preset: str, recipe: Recipe, given: Widths, block: int | None,
    symmetric: bool | None, accumulator: int | None,
) -> Recipe | BlockRecipe:
    """The recipe for integers, or the one for block floating point in its place.

    Args:
        arithmetic: Integers or block floating point.
        preset:     Name of the machine; empty if the other options decide.
        recipe:     The recipe that all other options describe.
        given:      Widths that the options choose.
        block, symmetric, accumulator: Values of these options; None if they are not given.

    Raises:
        ValueError: options contradict each other.
    """
    if arithmetic is NetworkArithmetic.INTEGER:
        if block is not None:
            raise ValueError("--block is for --arithmetic bfp")
        given.check_integers()
        return recipe
    plain = Recipe(weights_bits=given.weights, input_bits=given.inputs, bits=recipe.bits,
                   symmetric=(True, given.symmetric))
    if recipe != plain or symmetric is not None or accumulator is not None:
        raise ValueError(
            "bfp finds its own exponents: --symmetric, --ptq-weights, --ptq-activations, --rows, --weights, "
            "--activations, --start, --batch-norm, --keep-input and --accumulator are for integer")
    return block_recipe(preset, given, recipe.bits, block)


def epochs(text: str, example: str = "8,4,1") -> tuple[int, ...]:
    """The numbers of epochs in the value of `--epochs`, as many as the example has.

    Raises:
        ValueError: the value is not as many numbers.
    """
    try:
        found = tuple(map(int, text.split(",")))
    except ValueError:
        found = ()
    if len(found) != len(example.split(",")):
        count = {2: "two", 3: "three"}[len(example.split(","))]
        raise ValueError(f"--epochs {text}: {count} numbers parted by commas are needed, such as {example}")
    return found


def recipe(
    given: Widths,
    bits: Mapping[str, tuple[int, int]],
    ptq_weights: WeightMethod,
    ptq_activations: ActivationMethod,
    rows: int,
    weights: WeightTraining,
    activations: ActivationTraining,
    start: Start = Start.PTQ,
    batch_norm: bool = False,
    keep_input: bool = False,
) -> Recipe:
    """The recipe that all options together describe.

    Raises:
        ValueError: a width does not exist, or a method does not support it.
    """
    return Recipe(
        weights_bits=given.weights, input_bits=given.inputs, symmetric=(True, given.symmetric), weights=weights,
        activations=activations, start=start, normalise=batch_norm, input_kept=keep_input,
        bits=dict(bits),
        methods=Methods(weights=ptq_weights, rows=rows, activations=ptq_activations))


def layer_bits(layer: list[str] | None) -> dict[str, tuple[int, int]]:
    """Bits of weights and of inputs of single layers by name, from the values of --layer.

    Raises:
        ValueError: a value does not have this form.
    """
    return dict(map(_layer_bits, layer or ()))


def _layer_bits(text: str) -> tuple[str, tuple[int, int]]:
    """The name of a layer and its bits, from the value of --layer."""
    name, _, widths = text.partition("=")
    parts = widths.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"--layer {text!r}: NAME=WEIGHTS,INPUTS is needed, such as 0_0=8,8")
    return name, (int(parts[0]), int(parts[1]))
