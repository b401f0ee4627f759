"""The form of a run: its fields, their checks, and the command line that they make.

Values are checked by the option classes of the command line themselves, so that page and command cannot differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from concord.lib.user_options import UserOptions
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import ActivationTraining, Start, WeightTraining
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.config import PRESETS
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.record import Adjusted, NetworkKind
from concord.workflows.training import check_rate, epochs_of

#: Machine that is fitted to the network after training.
FIT = "fit"
#: What justifies the defaults of each kind of network: commands whose results docs/quantisation.md shows.
MEASURED = {
    kind: f"nox -s bench_overflow -- --network {network}"
    for kind, network in {
        NetworkKind.CNN: "resnet", NetworkKind.DNN: "mlp", NetworkKind.GCN: "gcn", NetworkKind.RNN: "rnn",
        NetworkKind.LSTM: "lstm", NetworkKind.GRU: "gru"}.items()
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FormField:
    """A field of the form.

    Attributes:
        name:    Name of the option.
        label:   What the page calls it.
        unit:    Unit of its value; empty where it has none.
        choices: Values to choose among; empty for a number or text.
        help:    What it does, in a sentence.
        shown:   What stands in the field where nobody has chosen.
        more:    Whether it is among those that most users leave as they are.
    """

    name: str
    label: str
    unit: str = ""
    choices: tuple[str, ...] = ()
    help: str = ""
    shown: str = ""
    more: bool = False


FIELDS = (
    FormField(
        name="preset",
        label="Machine",
        choices=("", *PRESETS, FIT),
        help="Sets the widths. Empty: widths of your own, and the smallest machine that takes the model. fit: a "
        "machine is made for the model after training.",
    ),
    FormField(name="weights_bits", label="Weights", unit="bits", help="1 to 16; a machine sets its own."),
    FormField(name="input_bits", label="Activations", unit="bits", help="2 to 16; a machine sets its own."),
    FormField(
        name="accumulator", label="Accumulator", unit="bits", shown="any",
        help="Width of partial sums, whose overflows are counted; empty for any width."),
    FormField(name="epochs", label="Epochs", unit="QAT, in the machine's arithmetic", shown="4,1"),
    FormField(
        name="rate", label="Learning rate", shown="by the network",
        help="0.01, or 0.0005 for recurrent networks and attention."),
    FormField(
        name="overflow_threshold", label="Threshold", unit="events",
        help="Overflows of a product on the calibration set that are tolerated."),
    FormField(
        name="overflow_weights", label="Factor a1", shown="auto",
        help="Growth of the ranges of weights in each round with an overflow."),
    FormField(
        name="overflow_inputs", label="Factor a2", shown="auto",
        help="Growth of the ranges of inputs in each round with an overflow."),
    FormField(name="overflow_share", label="Share of the inputs", help="0 to 1, of an automatic growth.", more=True),
    FormField(name="overflow_shrink", label="Smallest shrink", help="1 for no shrinking.", more=True),
    FormField(
        name="overflow_every", label="Count every", unit="steps", more=True,
        help="Beside the count after each epoch; 0 for that one alone."),
    FormField(name="overflow_by", label="What changes", choices=tuple(Adjusted), more=True),
    FormField(name="product_limit", label="Products", unit="bits", shown="32", more=True),
    FormField(name="output_limit", label="Outputs", unit="bits", shown="32", more=True),
    FormField(name="arithmetic", label="Arithmetic", choices=tuple(NetworkArithmetic), more=True),
    FormField(name="weights", label="Training of weights", choices=tuple(WeightTraining), more=True),
    FormField(name="activations", label="Training of activations", choices=tuple(ActivationTraining), more=True),
    FormField(
        name="start", label="Start", choices=tuple(Start), more=True,
        help="ptq: after post-training quantisation; fp32: from FP32 weights."),
    FormField(name="seed", label="Seed", shown="0", more=True),
)
_OPTIONS = {name: kind for kind in (QuantizationOptions, OverflowOptions) for name in get_type_hints(kind)}


def defaults(imported: Mapping[str, Any]) -> dict[str, str]:
    """Values that the form begins with: those of the recognised kind of network."""
    steps, kept = imported["defaults"], imported["kept"]
    widths = {} if kept else {"weights_bits": "8", "input_bits": "8"}
    return widths | {
        "epochs": "4,1", "overflow_threshold": str(steps["threshold"]), "overflow_share": f"{steps['inputs']:g}",
        "overflow_shrink": f"{steps['shrink']:g}", "overflow_every": str(steps["every"])}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What a user has chosen, checked.

    Attributes:
        words:   Options of `nnp train FILE`, as they stand on the command line.
        options: Options of quantisation by their names, to try the machine with; empty where no machine is named.
        fit:     Whether a machine is fitted to the model after training.
    """

    words: tuple[str, ...]
    options: Mapping[str, Any]
    fit: bool


def checked(
    form: Mapping[str, str], imported: Mapping[str, Any], folder: Path) -> tuple[Choice | None, dict[str, str]]:
    """The choice of a form, and what is wrong with it: a sentence by the name of its field, "" for the whole form.

    Args:
        form:     Values by the names of `FIELDS`.
        imported: What the inspection found.
        folder:   Folder of the run, in which the command runs.
    """
    given = {field.name: form.get(field.name, "").strip() for field in FIELDS}
    machine = imported["paths"].get("machine", "")  # a TOML file that was brought, instead of a preset
    fit = given["preset"] == FIT and not machine
    given["preset"] = machine or ("" if fit else given["preset"])
    wrong, values = {}, {}
    usual = defaults(imported) | {
        "overflow_by": "ranges", "arithmetic": "integer", "seed": "0", "weights": str(WeightTraining.WRPN),
        "activations": str(ActivationTraining.UNIFORM), "start": str(Start.PTQ), "overflow_weights": "auto",
        "overflow_inputs": "auto"}
    for name, text in given.items():
        said = not text or text == usual.get(name)
        if name in _OPTIONS and text and (not said or name in ("weights_bits", "input_bits")):
            try:
                values[name] = _value(_OPTIONS[name], name, text)
            except ValueError as error:
                wrong[name] = str(error)
    if not any(values.get(name) for name in ("accumulator", "product_limit", "output_limit")):
        values = {name: value for name, value in values.items() if not name.startswith("overflow_")}
    training = {"epochs": given["epochs"] or "4,1", "seed": given["seed"] or "0", "rate": given["rate"]}
    quantization = {name: value for name, value in values.items() if _OPTIONS[name] is QuantizationOptions}
    overflow = {name: value for name, value in values.items() if _OPTIONS[name] is OverflowOptions}
    for check in (
        lambda: _check_training(training),
        lambda: _check_quantization(quantization | ({"preset": str(folder / machine)} if machine else {}), imported),
        lambda: _check_overflow(overflow, quantization)):
        try:
            if not wrong:
                check()
        except ValueError as error:
            wrong.setdefault(_field(str(error), given), str(error).replace(f"{folder}/", ""))
    if wrong:
        return None, wrong
    words = [word for name, value in values.items() for word in (_option(name), str(value))]
    words += [word for name, value in training.items() if value for word in (f"--{name}", value)]
    named = quantization if given["preset"] else {}
    return Choice(words=tuple(words), options=named, fit=fit), {}


def _value(kind: type[UserOptions], name: str, text: str) -> Any:
    """A text of the form in the type of its option."""
    hint = get_type_hints(kind)[name]
    if hint == int | None:
        if not text.removeprefix("-").isdecimal():
            raise ValueError(f"{text!r}: a whole number is needed")
        return int(text)
    return kind.value(name, hint, text)


def _check_training(training: Mapping[str, str]):
    if not all(part.strip().isdecimal() for part in training["epochs"].split(",")):
        raise ValueError(f"--epochs {training['epochs']}: two whole numbers are needed, such as 4,1")
    if sum(epochs_of(training["epochs"], "4,1")) < 1:
        raise ValueError("--epochs 0,0: one epoch at least, or there is nothing to train")
    if not training["seed"].isdecimal() or int(training["seed"]) >= 2**32:
        raise ValueError(f"--seed {training['seed']}: a whole number from 0 on is needed")
    try:
        check_rate(float(training["rate"]) if training["rate"] else None)
    except ValueError as error:
        raise ValueError(f"--rate {training['rate']}: a learning rate is a number above 0, such as 0.01") from error


def _check_quantization(given: Mapping[str, Any], imported: Mapping[str, Any]):
    options = QuantizationOptions.of(given)
    if imported["kept"]:
        if set(given) & {"weights_bits", "input_bits"}:
            raise ValueError("--weights-bits: this model is quantised already, and keeps its widths under training: "
                             "leave both widths empty, or bring the file of the float network")
        return
    options.check_trains()
    options.choices()


def _check_overflow(given: Mapping[str, Any], quantization: Mapping[str, Any]):
    OverflowOptions.of(given).check(
        integers=quantization.get("arithmetic", NetworkArithmetic.INTEGER) == NetworkArithmetic.INTEGER)


def _option(name: str) -> str:
    """The option of the command line for a field of the options."""
    return "--" + name.replace("_", "-")


def _field(words: str, given: Mapping[str, str]) -> str:
    """The field that a sentence is about: the first whose option, name or width stands in it; "" for none."""
    found = {}
    for field in FIELDS:
        short = field.name.removeprefix("overflow_")
        marks = [_option(field.name), f"{field.name}:", f"{short} =", f"no {short} "]
        marks += [f"{given[field.name]} bits:"] if field.unit == "bits" and given[field.name] else []
        if indices := [index for mark in marks if (index := words.find(mark)) >= 0]:
            found[field.name] = min(indices), -len(field.name)
    return min(found, key=found.__getitem__, default="")
