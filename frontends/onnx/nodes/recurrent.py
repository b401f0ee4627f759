"""LSTM, GRU and RNN: recurrent layers of one or two directions, which start from states of zero."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, UnknownValue, Value
from concord.frontends.onnx.lib.views import SampleForm, View
from concord.net.cells import gru, lstm, rnn
from concord.net.cells.cell import Cell
from concord.net.cells.peephole import PEEPHOLE
from concord.net.ops.recurrent import Direction, Recurrence

#: The names of the gates in the order of ONNX.
GATES = {"LSTM": ("i", "o", "f", "j"), "GRU": ("z", "r", "n"), "RNN": ("h",)}
#: The names of an LSTM's peepholes in the order of ONNX.
PEEPHOLES = ("peephole_i", "peephole_o", "peephole_f")
#: Activation functions that each operator has if a file does not name them.
CURVES = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def recurrent(step: FileNode, build: Builder) -> list[Value]:
    """All hidden vectors, the last one, and, of an LSTM, a last state that only the machine has."""
    view, directions = step.view(0), 1 + (step.attributes.get("direction", "forward") == "bidirectional")
    cell = _cell(step, directions)
    _check_rest(step, view)
    layout = step.attributes.get("layout", 0)
    source, indices = build.sequence(view if layout else view.at(view.numbers.swapaxes(0, 1)))
    weights = [step.weights(index, what) for index, what in ((1, "weight"), (2, "recurrent weight"), (3, "bias"))]
    hidden = weights[1].shape[-1]
    weight_ih, weight_hh, bias = weights[0], weights[1], weights[2]
    if bias is None:
        bias = np.zeros((directions, 2 * weight_hh.shape[1]))
    names = GATES[step.kind]
    gates = len(names) * hidden
    peepholes = step.weights(7, "peephole weights") if step.kind == "LSTM" else None
    if peepholes is not None and peepholes.any():
        cell = PEEPHOLE
    else:
        peepholes = np.zeros((directions, 3 * hidden))
    for what, value, shape in (("weight", weight_ih, (directions, gates, len(indices))),
                               ("recurrent weight", weight_hh, (directions, gates, hidden)),
                               ("bias", bias, (directions, 2 * gates)),
                               ("peephole weights", peepholes, (directions, 3 * hidden))):
        if value.shape != shape:
            raise Refused(f"its {what} has the shape {list(value.shape)}, but {list(shape)} is needed",
                          "export the network again")
    weight_ih = weight_ih[:, :, np.argsort(indices)]
    op = Recurrence(cell=cell, directions=tuple(
        Direction.of_gates(cell, names, weight_ih[index], weight_hh[index], *np.split(bias[index], 2), vectors=dict(
            zip(PEEPHOLES, np.split(peepholes[index], 3), strict=True))) for index in range(directions)))
    samples, (time, _) = source.samples, source.shape
    made = build.add(step, op, [source], SampleForm.SEQUENCE, (time, directions * hidden),
                     backward=hidden if directions == 2 else 0)
    # [samples, time, directions, hidden]
    every = made.order.reshape(samples, time, directions, hidden)
    ends = np.stack([every[:, 0 if direction else time - 1, direction] for direction in range(directions)], axis=1)
    found = (every, ends) if layout else (every.transpose(1, 2, 0, 3), ends.transpose(1, 0, 2))
    return [*(View(source=made, numbers=numbers) for numbers in found),
            UnknownValue(reason="it reads the last cell state of an LSTM, which stays in the machine")]


def _cell(step: FileNode, directions: int) -> Cell:
    """The cell; of an LSTM, the one without peepholes.

    Raises:
        Refused: the layer runs backward only, or has other activation functions.
    """
    if step.attributes.get("direction", "forward") == "reverse":
        raise Refused("it runs backward only", "reverse the sequences, or make it bidirectional")
    usual = CURVES[step.kind]
    curves = tuple(name.lower() for name in step.attributes.get("activations", usual * directions))
    if len(curves) != len(usual) * directions:
        raise Refused(f"its activation functions are {', '.join(curves)}, but it needs {len(usual) * directions} of "
                      f"them, {len(usual)} for each direction", "name those of each direction, or none")
    if step.kind == "RNN" and set(curves) == {"relu"}:
        return rnn.RELU
    if curves != usual * directions:
        raise Refused(f"its activation functions are {', '.join(curves)}, not {', '.join(usual)}",
                      "use the usual ones")
    if step.kind == "GRU":
        return gru.AFTER if step.attributes.get("linear_before_reset", 0) else gru.BEFORE
    return lstm.LSTM if step.kind == "LSTM" else rnn.TANH


def _check_rest(step: FileNode, view: View):
    """Refuse lengths, first states and limits that the machine's layer does not have."""
    lengths = step.constant(4, "lengths of sequences")
    time = view.shape[1 if step.attributes.get("layout", 0) else 0]
    if lengths is not None and (lengths != time).any():
        raise Refused("it has lengths of its own for the sequences", "leave sequence_lens out: data bring the lengths")
    hidden = step.weights(2, "recurrent weight").shape[-1]
    for index in (5, 6):
        first = step.weights(index, "first state")
        if first is not None and first.shape[-1:] != (hidden,):
            raise Refused(f"its first state has the shape {list(first.shape)}, but its weights are for {hidden} hidden "
                          "elements, as PyTorch writes an LSTM with proj_size", "leave proj_size out, and train again")
        if first is not None and first.any():
            raise Refused("its first state is not zero", "start from states of zero")
    if step.attributes.get("clip") is not None:  # 0 is a limit, too
        raise Refused("it limits its gates (clip)", "leave clip out")
    if step.attributes.get("input_forget"):
        raise Refused("its input gate and forget gate are one (input_forget)", "use two gates, and train again")
