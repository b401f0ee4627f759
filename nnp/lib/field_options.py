"""Options of the command line that are made from dataclasses: one for each field of those of quantisation, of overflow
awareness and of lazy updates."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from concord.lib.user_options import UserOptions, number, read
from concord.net.quantize.options import QuantizationOptions
from concord.train.bfp.options import LazyOptions
from concord.train.overflow.options import OverflowOptions


class Words(NamedTuple):
    """A field on the command line: names of its option, what the help says, and the default that the help shows."""

    names: tuple[str, ...]
    text: str
    shown: str = ""


#: The words of each field of `QuantizationOptions`.
OPTIONS = {
    "preset": Words(
        ("--preset", "--for", "--config"),
        "Quantise for this machine, a preset or TOML file, which sets the bits of weights and inputs and --symmetric."),
    "arithmetic": Words(
        ("--arithmetic",), "Integers, or block floating point (bfp), whose mantissas have 2 to 8 bits."),
    "block": Words(
        ("--block",), "Number of elements that share an exponent in block floating point.", "16, or the machine's"),
    "weights_bits": Words(("--weights-bits",), "Bits of weights: 1 to 16; 24 and 32, which is FP32, in `nnp compare`.",
                          "4, or the machine's"),
    "input_bits": Words(("--input-bits",), "Bits of the inputs of layers: 2 to 16; 1, 24 and 32, which is FP32, in "
                                           "`nnp compare`.", "4, or the machine's"),
    "weights_float": Words(
        ("--weights-float",),
        "Weights with an exponent of e bits for each, and m bits of fraction, as EeMm: E4M3, E2M1, or E3M0 for powers "
        "of two. For --arithmetic bfp, instead of --weights-bits."),
    "input_float": Words(("--input-float",), "The same for the inputs of layers, instead of --input-bits."),
    "layers": Words(("--layer",), "Bits of one layer, as NAME=WEIGHTS,INPUTS. May be repeated."),
    "symmetric": Words(
        ("--symmetric/--full",), "Leave out the lowest code of inputs, as most machines do, or use all codes.",
        "full, or the machine's"),
    "full_weights": Words(
        ("--full-weights",), "Use all integers -2^(bits-1)..2^(bits-1)-1 for weights of layers without gates, for "
                             "machines that have the lowest one; otherwise it is left out."),
    "ptq_weights": Words(("--ptq-weights",), "Method that finds the scales of weights before any training."),
    "ptq_activations": Words(
        ("--ptq-activations",), "Method that finds the ranges of inputs of layers before any training.",
        "ends for files of networks, else search"),
    "rows": Words(
        ("--rows",), "Number of rows of weights that share a scale before training; 0 for all rows of a layer."),
    "input_parts": Words(
        ("--input-parts",), "Number of parts of the inputs of each layer, neighbouring channels with a saturation and "
                            "an offset of their own."),
    "weights": Words(
        ("--weights",), "Method of training for weights; it also decides how weights become integers."),
    "activations": Words(("--activations",), "Method of training for activations."),
    "start": Words(("--start",), "Starting point of training."),
    "stages": Words(
        ("--stages",), "Initialise weights, saturations and offsets one after the other, each with its epochs of "
                       'training, instead of the QAT epochs: "weights:1, saturations:1, offsets:2"; + joins two.'),
    "batch_norm": Words(("--batch-norm",), "Keep batch normalisation during training, and fold it afterwards."),
    "keep_input": Words(
        ("--keep-input",), "Keep the range of the input images during training, which is faster."),
    "asymmetric": Words(
        ("--asymmetric",),
        "Give integer weights of recurrent layers a zero point, for which the machine needs one more bit."),
    "shared": Words(("--shared",), "Share one scale between the two matrices of a gate of a recurrent layer."),
    "gate_bits": Words(
        ("--gate-bits",), "Bits of the outputs of gates of recurrent layers, 2 to 9; 0 keeps binary16."),
    "gate_form": Words(
        ("--gate-form",), "How the codes of these outputs lie: over all that the curve can give, or by the range that "
                          "the calibration set shows, symmetric about zero or asymmetric."),
    "bias_bits": Words(
        ("--bias-bits",), "Bits of integer biases of gates, 2 to 32, which the accumulator adds; 0 for biases in "
                          "binary16, which a multi-function unit adds."),
    "output_bits": Words(
        ("--output-bits",), "Bits to which the result of each product is quantised before its activation function: as "
                            "many as the machine's inputs have.", "binary16"),
    "output_layers": Words(
        ("--output-layer",), "Bits of the result of one layer, as NAME=BITS or NAME=none. May be repeated."),
    "equalize": Words(
        ("--equalize",),
        "Equalise the channels between integer layers before quantising, where that brings the outputs for the "
        "calibration samples closer to those of the float network."),
    "reconstruct": Words(
        ("--reconstruct/--no-reconstruct",),
        "Find ranges, integers and biases of each layer by its results for the calibration samples, with the errors of "
        "the layers before it.", "with --equalize, where weights and inputs have 4 bits or fewer"),
}
#: The words of each field of `OverflowOptions`.
OVERFLOW = {
    "accumulator": Words(
        ("--accumulator",), "Bits of partial sums; ranges are enlarged until none overflows on the calibration set.",
        "any"),
    "product_limit": Words(("--product-limit",), "Bits of single products, in the same way.", "32, or any"),
    "output_limit": Words(
        ("--output-limit",), "Bits of whole sums before they become binary16, in the same way.", "32, or any"),
    "overflow_threshold": Words(
        ("--overflow-threshold",), "Number of overflows of a product that are tolerated.", "0"),
    "overflow_weights": Words(
        ("--overflow-weights",), "Factor a1 by which ranges of weights grow in each round with an overflow, or auto: "
        "by how often and by how much sums overflow.", "auto"),
    "overflow_inputs": Words(
        ("--overflow-inputs",), "Factor a2 by which ranges of inputs grow in the same way, or auto.", "auto"),
    "overflow_share": Words(
        ("--overflow-share",), "Share of a growth by auto that ranges of inputs take, 0 to 1.",
        "by the kind of network"),
    "overflow_shrink": Words(
        ("--overflow-shrink",), "Smallest factor of one round that shrinks ranges where sums stay far inside; 1 for no "
        "shrinking.", "by the kind of network"),
    "overflow_by": Words(
        ("--overflow-by",), "What changes where sums overflow: ranges grow, or the largest weights are replaced by "
        "smaller ones (data)."),
    "overflow_every": Words(
        ("--overflow-every",), "Number of training steps between two counts of overflows, beside the one after each "
        "epoch.", "0"),
    "count_on": Words(
        ("--count-on",), "What counts overflows: numpy, for any widths, or the overflow counters of the simulated "
        "machine of --preset (library), whose widths then are those of the sums."),
}
#: The words of each field of `LazyOptions`.
LAZY = {
    "rate": Words(("--rate",), "Learning rate of bfp-lazy at the beginning."),
    "momentum": Words(("--momentum",), "Momentum of bfp-lazy; 0 for none."),
    "patience": Words(
        ("--patience",), "Epochs of bfp-lazy in a row without a new smallest loss after which training ends; 0 for all "
        "epochs.", "0"),
    "rule": Words(
        ("--rule",), "What bfp-lazy keeps of a parameter: lazy (mantissas and residuals), master (an FP32 copy), none "
        "(mantissas, into which updates are rounded), stochastic, frozen or residual8."),
    "processes": Words(
        ("--processes",), "Number of processes of bfp-lazy that share each batch, as torchrun starts them."),
    "machine": Words(
        ("--machine",), "What computes the steps of bfp-lazy, with the same bits: pytorch, golden's trainer, or the "
        "simulated one (library), in docs/trainer.md."),
    "compare": Words(
        ("--compare",), "With golden, compare the memory of --machine library with golden's after each program; the "
        "first number that differs is named, and a waveform is written.", "no"),
    "cores": Words(("--cores",), "Number of cores of --machine golden or library that share each batch, 1 to 8."),
}
#: The words of each class of options.
WORDS: dict[type[UserOptions], dict[str, Words]] = {
    QuantizationOptions: OPTIONS, OverflowOptions: OVERFLOW, LazyOptions: LAZY}
#: Fields that matter only where a network is trained, only where it is not, and those for gates of recurrent layers.
TRAINING = ("start", "stages", "batch_norm", "keep_input")
UNTRAINED = ("equalize", "reconstruct")
GATES = ("asymmetric", "shared", "gate_bits", "gate_form", "bias_bits")


def quantizing(*, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """A decorator that turns parameters whose class is in `WORDS` into options: one for each field, and a TOML file.

    Args:
        only:    Fields that the command has; empty for all.
        without: Fields that it does not have.
    """
    def decorated(command: Callable) -> Callable:
        shape = inspect.signature(command, eval_str=True)
        kinds = {name: one.annotation for name, one in shape.parameters.items() if one.annotation in WORDS}
        names = {kind: [name for name in WORDS[kind] if name not in without and (name in only or not only)]
                 for kind in kinds.values()}
        made = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
                for kind in kinds.values() for name, annotation in _annotations(kind, names[kind]).items()]
        made.append(inspect.Parameter("options", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_FILE))
        parameters = []
        for parameter in shape.parameters.values():
            if parameter.name not in kinds:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            elif parameter.name == next(iter(kinds)):
                parameters += made

        @wraps(command)
        def wrapped(**given):
            options = {item.name: given.pop(item.name) for item in made}
            return command(**given, **_options(options, kinds))

        found: Any = wrapped
        found.__signature__ = shape.replace(parameters=parameters)
        found.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return found

    return decorated


_FILE = Annotated[Path | None, typer.Option(
    "--options", metavar="FILE", help="TOML file of these options, by the names that Python has for them; options on "
                                      "the command line come first.", show_default=False)]


def _annotations(kind: type[UserOptions], names: list[str]) -> dict[str, type]:
    """The annotation of each option of a class for typer, by the name of its parameter."""
    hints, found = get_type_hints(kind), {}
    defaults = {item.name: item.default for item in fields(kind)}
    for name in names:
        words, default = WORDS[kind][name], defaults[name]
        plain = default is MISSING or default in (None, "", False)
        wanted = list[str] if name in REPEATED else hints[name]
        derived: dict[str, Any] = {"parser": number, "metavar": "NUMBER"} if wanted == float | None else {}
        if name == "preset":
            derived = {"metavar": "MACHINE"}
        option = typer.Option(*words.names, help=words.text, show_default=words.shown or (not plain and str(default)),
                              **derived)
        found[name] = Annotated[wanted | None, option]
    return found


def _options(given: dict, kinds: dict[str, type[UserOptions]]) -> dict[str, UserOptions]:
    """The options of a command line, over those of a file, by the names of the command's parameters."""
    path, repeated = given.pop("options"), {name: given.pop(name, None) for name in REPEATED}
    bases = read(path, tuple(kinds.values())) if path else [kind() for kind in kinds.values()]
    found = {}
    for (parameter, kind), base in zip(kinds.items(), bases, strict=True):
        own = {item.name for item in fields(kind)}
        asked = {name: value for name, value in given.items() if value is not None and name in own}
        for name, parse in REPEATED.items():
            if repeated[name] and name in own:
                asked[name] = {**getattr(base, name), **dict(map(parse, repeated[name]))}
        found[parameter] = replace(base, **asked)
    return found


def _layer_bits(text: str) -> tuple[str, tuple[int, int]]:
    """The name of a layer and its bits, from the value of --layer."""
    name, _, widths = text.partition("=")
    parts = widths.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"--layer {text!r}: NAME=WEIGHTS,INPUTS is needed, such as 0_0=8,8")
    return name, (int(parts[0]), int(parts[1]))


def _output_bits(text: str) -> tuple[str, int | None]:
    """The name of a layer and the bits of its result, from the value of --output-layer."""
    name, _, bits = text.partition("=")
    if not name or bits != "none" and not bits.isdigit():
        raise ValueError(f"--output-layer {text!r}: NAME=BITS or NAME=none is needed, such as conv1=8")
    return name, None if bits == "none" else int(bits)


#: Options that may be repeated, with what reads each value.
REPEATED = {"layers": _layer_bits, "output_layers": _output_bits}
