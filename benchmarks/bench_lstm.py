"""Accuracy of integer LSTMs compared with FP32: `nox -s bench_lstm`.

A network 12-32-9 learns the 270 utterances of JapaneseVowels and is measured on the 370 of the test set, after
post-training quantisation (PTQ) and after quantisation-aware training that starts from it (QAT), both in the machine's
arithmetic. Each QAT network is also run in golden arithmetic, must give the same bits, and is written as a model file.
"""

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from concord.datasets import dataset
from concord.lib.processes import side_by_side
from concord.net.cells.registry import CELLS
from concord.net.quantize.recipe import Gates
from concord.spec.numbers.formats import Format
from concord.train.lib import data
from concord.train.lib.export import finish
from concord.train.lib.fit import reproducible, share, silent
from concord.train.network.quantized_network import behind_quantizers
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.runs import recurrent as lstm
from rich.console import Console
from rich.table import Table

#: Largest distance of 8-bit networks from FP32 in points, in the mean over the seeds.
NEAR = 0.3
HIDDEN, EPOCHS = (32,), (80, 10, 5)
OUT = Path("build/bench_lstm")


@dataclass(frozen=True, kw_only=True, slots=True)
class LstmSetting:
    """The quantisation of a network.

    Attributes:
        weights: Bits of the matrices W and R.
        codes:   Bits of the vectors x and h.
        gates:   Quantisation of the gates' weights and outputs.
    """

    weights: int
    codes: int
    gates: Gates

    def __str__(self) -> str:
        form = "asymmetric" if self.gates.asymmetric else "symmetric"
        return f"{form}, per {'gate' if self.gates.shared else 'matrix'}"

    @property
    def stem(self) -> str:
        """First part of the names of its model files."""
        form = "a" if self.gates.asymmetric else "s"
        return f"w{self.weights}x{self.codes}{form}{'g' if self.gates.shared else 'm'}{self.gates.outputs or ''}"


def _settings() -> Iterable[LstmSetting]:
    forms = [(8, 8, 0, False), (8, 8, 0, True), (8, 8, 8, False)]
    forms += [(bits, bits, outputs, False) for bits in (6, 5, 4) for outputs in (0, bits)]
    for weights, codes, outputs, shared in (*forms, (4, 8, 0, False)):
        for asymmetric in (False, True):
            gates = Gates(asymmetric=asymmetric, shared=shared, outputs=outputs)
            yield LstmSetting(weights=weights, codes=codes, gates=gates)


SETTINGS = tuple(_settings())


@dataclass(frozen=True, kw_only=True, slots=True)
class LstmResult:
    """The results of one integer network.

    Attributes:
        ptq, qat: Accuracies on the test set in the machine's arithmetic in percent, after PTQ and after QAT.
    """

    setting: LstmSetting
    seed: int
    ptq: float
    qat: float


def train_float(folder: Path | None, seed: int) -> tuple[int, dict[str, np.ndarray], float]:
    """Train the FP32 network, and return its seed, parameters and accuracy in percent."""
    net = lstm.train_float(data.japanese_vowels(folder), HIDDEN, epochs=EPOCHS[0], seed=seed)
    return seed, {name: value.numpy() for name, value in net.state_dict().items()}, accuracy(net)


def accuracy(net, **mode: bool) -> float:
    """Accuracy of a network on the test set in percent."""
    x, lengths, labels = lstm.tensors(dataset.load("japanese-vowels"))
    with torch.no_grad():
        return 100 * share(net(x, lengths, **mode).argmax(1), labels)


def quantize(folder: Path | None, setting: LstmSetting, seed: int, parameters: dict[str, np.ndarray]) -> LstmResult:
    """Quantise an FP32 network, retrain it, run it in golden arithmetic, and write its model file."""
    reproducible(seed)
    train, test = data.japanese_vowels(folder), dataset.load("japanese-vowels")
    net = FloatClassifier(train.inputs.shape[2], HIDDEN, len(train.classes), CELLS["lstm"])
    net.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
    calibration, (x, lengths, _) = lstm.tensors(train)[:2], lstm.tensors(test)
    formats = (Format(bits=bits, symmetric=True) for bits in (setting.weights, setting.codes))
    quantized = behind_quantizers(
        net.graph(), calibration[0], lstm.choices_of(*formats, setting.gates), calibration[1], machine=True)
    ptq = accuracy(quantized, lowered=True)
    real, lowered = lstm.retrain(quantized, train, EPOCHS[1:], x, lengths, seed=seed, progress=silent)
    with torch.no_grad():
        fp32 = net(x, lengths)
    made = finish(
        OUT / f"{setting.stem}-{seed}.safetensors",
        quantized.lower()[0],
        test,
        data="japanese-vowels",
        preprocessing="one vector of 12 cepstra for each frame, each binary16(cepstrum)",
        fp32=fp32,
        quantized=real,
        lowered=lowered,
        seed=seed,
        command="nox -s bench_lstm",
        method=f"weights of {setting.weights} bits, {setting.gates}, x and h of {setting.codes} bits",
    )
    return LstmResult(setting=setting, seed=seed, ptq=ptq, qat=100 * made.provenance.golden_accuracy)


def all_runs(folder: Path | None, seeds: int, console: Console) -> tuple[list[float], list[LstmResult]]:
    """Train all networks in two processes: the FP32 accuracy of each seed, and a result for each setting and seed."""
    trained = side_by_side("FP32", train_float, [(folder, seed) for seed in range(seeds)], console)
    fp32 = [right for *_, right in sorted(trained, key=itemgetter(0))]
    runs = side_by_side("in integers", quantize, [
        (folder, setting, seed, parameters) for seed, parameters, _ in trained for setting in SETTINGS], console)
    return fp32, sorted(runs, key=lambda run: (SETTINGS.index(run.setting), run.seed))


def report(fp32: list[float], runs: list[LstmResult], console: Console) -> bool:
    """Print the table, and return whether 8-bit networks are close enough to FP32."""
    table = Table("W, R", "x, h", "gates", "form", "PTQ, mean", "each seed", "QAT, mean", "each seed",
                  "QAT - FP32", "goal", title="JapaneseVowels, LSTM 12-32-9, test accuracy in golden arithmetic, %")
    mean, met = np.mean(fp32), True
    table.add_row("FP32", "FP32", "FP32", "", f"{mean:.2f}", " ".join(f"{value:.2f}" for value in fp32))
    for setting in SETTINGS:
        found = [run for run in runs if run.setting == setting]
        cells = []
        for phase in ("ptq", "qat"):
            values = [getattr(run, phase) for run in found]
            cells += [f"{np.mean(values):.2f}", " ".join(f"{value:.2f}" for value in values)]
        points = float(np.mean([run.qat for run in found]) - mean)
        binding = setting.weights == setting.codes == 8
        met &= not binding or points >= -NEAR
        goal = f"at least -{NEAR}" if binding else ""
        widths = (str(setting.weights), str(setting.codes), str(setting.gates.outputs or 16))
        table.add_row(*widths, str(setting), *cells, f"{points:+.2f}", goal)
    console.print(table)
    return met


def main(
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option("--data", help="Folder with JapaneseVowels_TRAIN.ts.")] = None,
) -> None:
    """Train all networks, print the table, write models and JSON; the exit code is 1 if the goal is missed."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    began = time.perf_counter()
    data.japanese_vowels(folder)  # this raises an error about missing data before processes start
    OUT.mkdir(parents=True, exist_ok=True)
    fp32, runs = all_runs(folder, seeds, console)
    met = report(fp32, runs, console)
    (OUT / "runs.json").write_text(json.dumps({"fp32": fp32, "runs": [asdict(run) for run in runs]}, indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; golden agreed in every bit; {OUT}/*.safetensors, runs.json")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
