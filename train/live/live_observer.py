"""Training that others watch and steer: its process writes the folder of a run, and takes commands from there.

docs/dashboard.md says what the folder holds. Nothing that is shown changes a bit of the training.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from concord.lib.files import write
from concord.train.lib.observer import CheckpointStore, EpochRecord, Log, Progress, TrainingState, TrainingStep
from concord.train.live.changes import DATABASE, STATE, STEERING, SteeringChange, read_changes, written_changes
from concord.train.live.layer_figures import LayerFigures
from concord.train.live.live_database import LiveDatabase
from concord.train.live.steered import SteeredObserver

SHOWN = 0.4  #: Seconds between two writings.
SHARE = 100  #: Each thing that is only shown takes at most one part in SHARE of the time.


class LiveObserver(SteeredObserver):
    """An observer of one run.

    Args:
        folder:      Folder of the run.
        epochs:      Number of epochs, of all phases together.
        settings:    Settings that decide the result, by name.
        progress, log, checkpoints: As for `Observer`.

    Raises:
        ValueError: the folder holds a run with other settings.
    """

    def __init__(
        self,
        folder: Path,
        epochs: int,
        settings: Mapping[str, str],
        progress: Progress,
        log: Log | None = None,
        checkpoints: CheckpointStore | None = None,
    ):
        self.folder, self.path = Path(folder), Path(folder, STEERING)
        self.state = {
            "state": "running",
            "pid": os.getpid(),
            "started": time.time(),
            "epoch": 0,
            "epochs": epochs,
            "step": 0,
            "steps": 0,
            "seconds_left": None,
            "paused_at": None,
            "error": "",
            "settings": dict(settings),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check()
        super().__init__(progress, log, checkpoints, read_changes(self.path) if self.path.exists() else ())
        self.db = LiveDatabase(self.folder / DATABASE)
        self._commands, self.figures = self.folder / "commands", None
        self._epochs, self._phase, self._stamp, self._single, self._dropped = 0, 0, 0, False, False
        self._begun = self._stepped = time.monotonic()
        self._first = 0
        self._write_at = self._count_at = self._measure_at = self._save_at = self._look_at = 0.0
        self._write_state()

    def attend(self, network, inputs, lengths, predictor):
        """As `SteeredObserver.attend`; products are shown where they are of integers."""
        super().attend(network, inputs, lengths, predictor)
        with suppress(ValueError):
            self.figures = LayerFigures(network, inputs, lengths, predictor)

    @property
    def measures(self) -> bool:
        """Whether accuracies are to be measured: as often as they take no time to speak of."""
        return self.log is not None or time.monotonic() >= self._measure_at

    def begin(self, phase, state):
        """As `SteeredObserver.begin`."""
        done = super().begin(phase, state)
        self._epochs += len(done)
        self._begun, self._first = time.monotonic(), self.step
        self.db.add_line(self.step, f"{phase} goes on" if done else f"{phase} begins")
        return done

    def ready(self, step, state):
        """As `SteeredObserver.ready`."""
        if not self._dropped:  # rows of steps that are trained again, since they were behind the checkpoint
            self.db.drop_after(self.step)
            self._dropped = True
        super().ready(step, state)

    def listen(self, step: TrainingStep, state: TrainingState):
        """Take commands, and wait while training is paused."""
        self._phase = step.steps * step.epochs
        if self._single or self.step == self.state["paused_at"]:
            self._single = False
            self._say("paused")
        self._look(state)
        while self.state["state"] == "paused" and not self.stopped:
            self._wait(state)
        self.state["epoch"], self.state["steps"] = self._epochs + 1, step.steps * self.state["epochs"]

    def await_change(self, error):
        """Wait for a change that lets the ranges follow."""
        done, self.state["state"] = self._next, "running"
        self.state["error"] = f"training cannot go on: {error}; or change the factors or the threshold"
        while self._next == done:
            if self.state["state"] != "paused":
                self._say("paused")
                self.db.add_line(self.step, self.state["error"])
            self._wait(self._state)
        if not self.stopped:
            self.state["error"] = ""
            self._say("running")

    def finished(self, loss, rate):
        """Keep the figures of a step, and write them now and then."""
        super().finished(loss, rate)
        self._stepped = time.monotonic()
        self.db.add_step(self.step, self.state["epoch"], loss, None, rate, time.time())
        if self._stepped >= self._write_at:
            self._show()

    def end(self, record: EpochRecord, state: TrainingState):
        """Write an epoch. The state is kept at the end of a phase, and otherwise where that takes next to no time."""
        self._epochs += 1
        ended = time.monotonic()
        self.records.append(record)
        self.write(record)
        self.db.add_accuracy(self.step, record.accuracy)
        if record.accuracy is not None:
            self._measure_at = ended + SHARE * (ended - self._stepped)
        if self.checkpoints and (record.step == self._phase or self.stopped or ended >= self._save_at):
            self.db.write()  # what came before the checkpoint is not trained again
            self.checkpoints.save(self.records, state)
            self._save_at = time.monotonic() + SHARE * (time.monotonic() - ended)

    def close(self, error: str = ""):
        """Write how the run has ended.

        Args:
            error: The sentence of an error; empty for none.
        """
        with suppress(ValueError):
            self._show()
        self.db.add_line(self.step, error or ("training stopped" if self.stopped else "training has ended"))
        self.db.close()
        self.state |= {"state": "failed" if error else "stopped" if self.stopped else "finished", "error": error}
        self.state |= {"seconds_left": 0, "step": self.step}
        self._write_state()

    def _applied(self, change, state):
        super()._applied(change, state)
        self.db.add_line(self.step, str(change), {"what": change.what, "layer": change.layer, "value": change.value})
        if self.figures:
            self.figures.begin()
        self._count_at = 0.0

    def _check(self):
        """Refuse a folder with another run, and take over the step at which this one was paused when it was killed."""
        path, given = self.folder / STATE, self.state["settings"]
        if not path.exists():
            return
        try:
            found = json.loads(path.read_text())
            kept, self.state["paused_at"] = found["settings"], found.get("paused_at")
            wrong = [name for name in {**kept, **given} if kept.get(name) != given.get(name)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: it is no state of a run ({error}): name another folder") from error
        if wrong:
            raise ValueError(
                f"{self.folder}: it holds a run with {wrong[0]} {kept.get(wrong[0])}, not "
                f"{given.get(wrong[0])}; give the same command, or name another folder"
            )

    def _wait(self, state: TrainingState):
        """Wait a moment for commands."""
        before = time.monotonic()
        time.sleep(0.05)
        self._look(state)
        self._begun += time.monotonic() - before

    def _look(self, state: TrainingState):
        """Take the commands that are new."""
        now, stamp = time.monotonic(), 0
        with suppress(FileNotFoundError):  # nobody has given a command
            stamp = os.stat(self._commands).st_mtime_ns
        if stamp == self._stamp and now < self._look_at:
            return
        self._stamp, self._look_at = stamp, now + SHOWN
        # A process that was killed between the two may have written a change, and not that it was taken.
        last = max(self.db.last_taken, *(change.number for change in self.changes), 0)
        for path in sorted(self._commands.glob("[0-9]*.json"), key=lambda path: int(path.stem)):
            if int(path.stem) > last:
                self._obey(path, int(path.stem), state)
                self.db.take(int(path.stem))

    def _obey(self, path: Path, number: int, state: TrainingState):
        """Do what a command says; what cannot be done is a line of the log."""
        try:
            command = json.loads(path.read_text())
            match command["do"]:
                case "pause" | "go" | "step" as word:
                    self._single = word == "step"
                    self._say("paused" if word == "pause" else "running")
                case "stop" | "set" as word:
                    given = {"what": word} if word == "stop" else {
                        key: command.get(key) for key in ("what", "layer", "value")}
                    self._change(SteeringChange(step=self.trained, time=time.time(), number=number, **given), state)
                case "what_if":
                    self._answer(command)
                case other:
                    raise ValueError(f"{other}: there is no such command")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.db.add_line(self.step, f"refused: {error}")

    def _change(self, change: SteeringChange, state: TrainingState):
        """Let a change of a user take effect, and write it down."""
        self._applied(change, state)
        self.changes.insert(self._next, change)  # before those of `steering.json` that are still to be repeated
        self._next += 1
        write(self.path, written_changes(self.changes))
        self._show()

    def _answer(self, command: Mapping):
        """Count what would overflow at another width."""
        if not self.figures:
            raise ValueError("what if: the network has no integers whose sums could overflow")
        answer = self.figures.what_if(command.get("accumulator"), command.get("threshold"))
        self.db.add_answer(str(command["id"]), self.step, answer)

    def _say(self, word: str):
        """Say whether training runs or is paused."""
        self.db.write()
        self.db.add_line(self.step, word)
        self.state |= {"state": word, "step": self.step, "paused_at": self.step if word == "paused" else None}
        self._write_state()

    def _show(self):
        """Write what is new: steps, products, and the state."""
        now = time.monotonic()
        rows = []
        if self.figures and now >= self._count_at:
            rows = self.figures.rows(self.step)
            self._count_at = time.monotonic() + max(SHOWN, SHARE * (time.monotonic() - now))
        self.db.write(rows)
        done, left = self.step - self._first, self.state["steps"] - self.step
        if done:
            self.state["seconds_left"] = round((now - self._begun) / done * max(left, 0))
        self.state["step"] = self.step
        self._write_state()
        self._write_at = time.monotonic() + SHOWN

    def _write_state(self):
        write(self.folder / STATE, json.dumps(self.state))
