"""Logs of training: a line for each epoch, as CSV or as TensorBoard events."""

import csv
import importlib
import re
from pathlib import Path

from concord.train.lib.observer import EpochRecord, Log

COLUMNS = ("phase", "epoch", "step", "learning rate", "loss", "accuracy")


def opened(path: Path) -> Log:
    """The log at a path: a CSV file if the name ends with .csv, else a folder of TensorBoard events.

    Raises:
        ValueError: the folder needs a package that is not there.
    """
    return CsvLog(path) if Path(path).suffix == ".csv" else TensorBoardLog(path)


class CsvLog:
    """A CSV file, into which each line is written as soon as its epoch is done.

    Args:
        path: The file. If it exists, the first epoch replaces it.
    """

    def __init__(self, path: Path):
        self.path, self.begun = Path(path), False

    def write(self, record: EpochRecord):
        if not self.begun:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append(COLUMNS, "w")
            self.begun = True
        self._append((record.phase, record.epoch, record.step, record.rate, record.loss, record.accuracy), "a")

    def close(self):
        """Every line is written already."""

    def _append(self, values: tuple, mode: str):
        with self.path.open(mode, newline="") as file:
            csv.writer(file).writerow(values)


class TensorBoardLog:
    """TensorBoard events in a folder: a scalar for each figure of an epoch, such as `qat/loss`, at its step.

    Args:
        folder: The folder. Events that it holds already stay.
    """

    def __init__(self, folder: Path):
        self.folder, self.writer = folder, None
        try:
            self.module = importlib.import_module("tensorboardX")
        except ModuleNotFoundError as error:
            raise ValueError(f"{folder}: TensorBoard events need tensorboardX: pip install tensorboardX "
                             "(dependency group logs), or name a file that ends with .csv") from error

    def write(self, record: EpochRecord):
        if not self.writer:
            self.writer = self.module.SummaryWriter(str(self.folder), flush_secs=5)
        phase = re.sub(r"\W+", "-", record.phase.lower())
        values = {"learning rate": record.rate, "loss": record.loss, "accuracy": record.accuracy}
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(f"{phase}/{name.replace(' ', '-')}", value, record.step)

    def close(self):
        if self.writer:
            self.writer.close()
