"""LSTM, GRU and RNN: recurrent layers of one or two directions, which start from states of zero."""

import numpy as np
from concord.front.lib.builder import Builder
from concord.front.lib.problems import Refused
from concord.front.lib.step import Step, Unknown, Value, misplaced
from concord.front.lib.views import Form, View
from concord.model.floating.network import Op

#: The gates in the order of PyTorch, as places in the order of ONNX.
GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
#: Activation functions that each operator has if a file does not name them.
CURVES = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def recurrent(step: Step, build: Builder) -> list[Value]:
    """All hidden vectors, the last one, and, of an LSTM, a last state that only the machine has."""
    view, directions = step.view(0), 1 + (step.attributes.get("direction", "forward") == "bidirectional")
    op = _op(step, directions)
    _check_rest(step, view)
    source = _sequence(step, view)
    weights = [step.weights(index, what) for index, what in ((1, "weight"), (2, "recurrent weight"), (3, "bias"))]
    hidden = weights[1].shape[-1]
    weight_ih, weight_hh, bias = weights[0], weights[1], weights[2]
    if bias is None:
        bias = np.zeros((directions, 2 * weight_hh.shape[1]))
    order = GATES[step.kind]
    gates = len(order) * hidden
    for what, value, shape in (("weight", weight_ih, (directions, gates, source.shape[1])),
                               ("recurrent weight", weight_hh, (directions, gates, hidden)),
                               ("bias", bias, (directions, 2 * gates))):
        if value.shape != shape:
            raise Refused(f"its {what} has the shape {list(value.shape)}, but {list(shape)} is needed",
                          "export the network again")
    tensors = {}
    for direction, end in enumerate(("", "_reverse")[:directions]):
        halves = np.split(bias[direction], 2)
        parts = zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (weight_ih[direction], weight_hh[direction],
                                                                       *halves), strict=True)
        tensors |= {f"{key}{end}": _gates(value, order, hidden) for key, value in parts}
    samples, (time, _) = source.samples, source.shape
    made = build.add(
        step, op, [source], Form.SEQUENCE, (time, directions * hidden), tensors=tensors,
        attributes={"bidirectional": directions == 2}, backward=hidden if directions == 2 else 0)
    # [samples, time, directions, hidden]
    every = made.order.reshape(samples, time, directions, hidden)
    ends = np.stack([every[:, 0 if direction else time - 1, direction] for direction in range(directions)], axis=1)
    if step.attributes.get("layout", 0):
        found = every, ends
    else:
        found = every.transpose(1, 2, 0, 3), ends.transpose(1, 0, 2)
    return [*(View(source=made, numbers=numbers) for numbers in found),
            Unknown(reason="it reads the last cell state of an LSTM, which stays in the machine")]


def _gates(value: np.ndarray, order: tuple[int, ...], hidden: int) -> np.ndarray:
    """Weights or biases of all gates in PyTorch's order."""
    parts = value.reshape(len(order), hidden, *value.shape[1:])
    return parts[list(order)].reshape(value.shape)


def _op(step: Step, directions: int) -> Op:
    """The operation.

    Raises:
        Refused: the layer runs backward only, or has other activation functions.
    """
    if step.attributes.get("direction", "forward") == "reverse":
        raise Refused("it runs backward only", "reverse the sequences, or make it bidirectional")
    usual = CURVES[step.kind]
    curves = tuple(name.lower() for name in step.attributes.get("activations", usual * directions))
    if step.kind == "RNN" and set(curves) == {"relu"}:
        return Op.RNN_RELU
    if curves != usual * directions:
        raise Refused(f"its activation functions are {', '.join(curves)}, not {', '.join(usual)}",
                      "use the usual ones")
    if step.kind == "GRU":
        return Op.GRU if step.attributes.get("linear_before_reset", 0) else Op.GRU_BEFORE
    return Op.LSTM if step.kind == "LSTM" else Op.RNN_TANH


def _check_rest(step: Step, view: View):
    """Refuse lengths, first states, peepholes and limits that the machine's layer does not have."""
    lengths = step.constant(4, "lengths of sequences")
    time = view.shape[1 if step.attributes.get("layout", 0) else 0]
    if lengths is not None and (lengths != time).any():
        raise Refused("it has lengths of its own for the sequences", "leave sequence_lens out: data bring the lengths")
    for index in (5, 6):
        first = step.weights(index, "first state")
        if first is not None and first.any():
            raise Refused("its first state is not zero", "start from states of zero")
    peepholes = step.weights(7, "peephole weights")
    if peepholes is not None and peepholes.any():
        raise Refused("it has peepholes", "leave them out, and train again")
    if step.attributes.get("clip"):
        raise Refused("it limits its gates (clip)", "leave clip out")
    if step.attributes.get("input_forget"):
        raise Refused("its input gate and forget gate are one (input_forget)", "use two gates, and train again")


def _sequence(step: Step, view: View):
    """The sequences that a tensor [time, samples, features] holds; [samples, time, features] where layout is 1."""
    source = view.source
    if source.form is not Form.SEQUENCE:
        raise misplaced("it reads an image, a vector, or a part of one as a sequence",
                        "give sequences to the network's input")
    order = source.order if step.attributes.get("layout", 0) else source.order.swapaxes(0, 1)
    if view.shape != order.shape or not np.array_equal(view.numbers, order):
        raise misplaced(f"its input {list(view.shape)} does not hold whole sequences as [time, samples, features]",
                        "check batch_first, and which axis is time")
    return source
