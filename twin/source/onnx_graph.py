"""A script as an ONNX graph that returns the same bits."""

from collections.abc import Iterable

import onnx
from concord.twin.lib.run import ScriptRun
from concord.twin.lib.script import Script, SequenceLoop
from concord.twin.source.onnx_functions import Functions
from concord.twin.source.onnx_nodes import FLOAT, HALF, OPSET, OnnxValue
from onnx import ModelProto, NodeProto, helper


def onnx_graph(script: Script) -> ModelProto:
    """The graph: binary16 in and out, a batch of any size, and sequences of any length.

    Raises:
        ValueError: the script calls a function that has no form in ONNX.
    """
    functions = Functions()
    shape = (None, *script.inputs)
    entry = OnnxValue(name=functions.node("Cast", "inputs", to=FLOAT), shape=shape)
    result = _Graph(script, functions).call(script.main, (entry,))
    functions.nodes.append(helper.make_node("Cast", [result.name], ["results"], "results", to=HALF))
    read = _read(functions.nodes)
    graph = helper.make_graph(
        functions.nodes, script.name or "network", [_info("inputs", shape, HALF)],
        [_info("results", result.shape, HALF)],
        [tensor for name, tensor in functions.constants.items() if name in read],
        doc_string=f"software twin of firmware {script.name} for the machine {script.machine}")
    opsets = [helper.make_opsetid("", OPSET)]
    made = helper.make_model(graph, opset_imports=opsets, producer_name="concord",
                             ir_version=helper.find_min_ir_version_for(opsets))
    onnx.checker.check_model(made, full_check=True)
    return made


def _info(name: str, shape: tuple, kind: int):
    names = ["batch", *("steps" if size is None else size for size in shape[1:])]
    return helper.make_tensor_value_info(name, kind, names)


def _read(nodes: Iterable[NodeProto]) -> set[str]:
    """Names of all that nodes, and the graphs in them, read."""
    nodes = list(nodes)
    bodies = [attribute.g.node for node in nodes for attribute in node.attribute]
    return {name for node in nodes for name in node.input}.union(*map(_read, bodies))


class _Graph(ScriptRun):
    """A run of a script whose values are tensors of a graph."""

    def _call(self, call, values: dict):
        if call.function not in self._routines and not hasattr(self.functions, call.function):
            raise ValueError(f"its twin needs {call.function}, which has no form in ONNX; write one in numpy or torch")
        return super()._call(call, values)

    def loop(self, loop: SequenceLoop, values: dict):
        """A loop over time steps as a node Scan, whose body is a graph of its own."""
        around = self.functions
        name = f"scan_{len(around.nodes)}"
        first = [self.value(argument, values) for _, argument in loop.carried]
        sequences = [values[source] for _, source in loop.items]
        inputs = [OnnxValue(name=f"{name}_{key}", shape=each.shape, type=each.type)
                  for (key, _), each in zip(loop.carried, first, strict=True)]
        inputs += [OnnxValue(name=f"{name}_{key}", shape=(None, *each.shape[2:]), type=each.type)
                   for (key, _), each in zip(loop.items, sequences, strict=True)]
        self.functions = Functions(around.constants, f"{name}_")
        within = dict(values)
        within.update(zip([key for key, _ in (*loop.carried, *loop.items)], inputs, strict=True))
        self.lines(loop.body, within)
        results = [within[key] for key, _ in loop.carried] + [within[source] for _, source in loop.collected]
        outputs = [self.functions.node("Identity", each.name) for each in results]
        body = helper.make_graph(
            self.functions.nodes, name, [_info(each.name, each.shape, each.type) for each in inputs],
            [_info(output, each.shape, each.type) for output, each in zip(outputs, results, strict=True)])
        self.functions = around
        kept = {"scan_output_axes": [1] * len(loop.collected),
                "scan_output_directions": [int(key in loop.reversed) for key, _ in loop.collected]
                } if loop.collected else {}
        made = [f"{name}_{key}_last" for key, _ in (*loop.carried, *loop.collected)]
        around.nodes.append(helper.make_node(
            "Scan", [each.name for each in (*first, *sequences)], made, name, body=body,
            num_scan_inputs=len(sequences), scan_input_axes=[1] * len(sequences),
            scan_input_directions=[int(key in loop.backward) for key, _ in loop.items], **kept))
        steps = sequences[0].shape[1]
        for (key, _), output, each in zip(loop.carried, made, results, strict=False):
            values[key] = OnnxValue(name=output, shape=each.shape, type=each.type)
        for (key, _), output, each in zip(loop.collected, made[len(first):], results[len(first):], strict=True):
            values[key] = OnnxValue(name=output, shape=(None, steps, *each.shape[1:]), type=each.type)
