"""A script as source text, and its two files: source, and tensors in safetensors."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import wrap

import numpy as np
from concord.golden.mfu import activation
from concord.lib import files
from concord.twin.lib.run import arrays
from concord.twin.lib.script import Call, Line, Script, SequenceLoop
from concord.twin.source.frameworks import CURVES, FORMS, UNQUANTISED, Framework
from concord.twin.source.lines import WIDTH, Lines, attribute, literal, repeated, wrapped
from concord.twin.source.trained import Rounding
from concord.twin.source.vocabulary import vocabulary
from safetensors.numpy import save

#: What a twin is, with quantisers and without them, and what its numbers are.
_SAYS = {False: "it returns the same bits.",
         True: "it computes what the program would compute in float64 without any quantiser."}
_NUMBERS = {
    False: "Weights and tables lie in {stem}.safetensors. Numbers are binary16, and each operation rounds once. Codes "
           "are whole numbers, or mantissa * 2**exponent in block floating point. Products of codes are exact before "
           "they are rounded.",
    True: "Weights lie in {stem}.safetensors. They are those before any rounding, and so are all other numbers. Only "
          "clips that are activation functions are left of the quantisers."}
_PATTERNS = np.arange(1 << 16)
_LONGEST = 100  #: Most characters of the name of a module; file systems allow about 255.


def source(script: Script, framework: Framework, stem: str, trained: Mapping[str, Rounding] | None = None) -> str:
    """The source text of a twin.

    Args:
        script:    What it computes.
        framework: What it runs in.
        trained:   How each tensor that can be trained is rounded; None for a twin that is not trained.
        stem:      Name of its file, without `.py`; that of its tensors is the same, with `.safetensors`.

    Raises:
        ValueError: the script calls a function that the framework lacks.
    """
    form = (UNQUANTISED if script.unquantized else FORMS)[framework]
    words = vocabulary(framework, unquantized=script.unquantized)
    trained = (trained or {}) if form.trains else {}
    routines = frozenset(routine.name for routine in script.routines)
    used = _used(script)
    if lacking := used - routines - words.names - set(form.curves):
        raise ValueError(f"{script.name}: its twin needs {', '.join(sorted(lacking))}, which has no form in "
                         f"{framework}; write a twin in {Framework.NUMPY}")
    training = [*["train"] * bool(trained), *(each.function for each in trained.values())]
    lines = Lines(words, routines, form.operators, form.curves, repeats=form.repeats)
    twin = _twin(script, form, lines, used)
    called = {name for name in used - routines if f"{name}(" in twin}  # not those that are written as signs
    selection = words.select([*form.functions, *called, *form.helpers * bool(used & set(form.curves)),
                              *["sequence"] * _collects(script), *["repeat"] * ("repeat(" in twin),
                              *["compiled"] * form.compiles, *training])
    parts = [_head(script, form, stem), _imports({*selection.imports, *form.imports}), _constants(script)]
    functions = [text for text in selection.functions if not _is_operator(text, form.operators)]
    twin += _compiled(script) if form.compiles else ""
    twin += _training(trained) + form.saves if form.trains else ""
    return "\n".join([*parts, "\n\n\n".join([twin, *functions])]) + "\n"


def tensors(script: Script) -> dict[str, np.ndarray]:
    """The tensors of a twin's file: the stored ones under the names of its attributes, and tables of curves.

    Raises:
        ValueError: two names are the same in a source.
    """
    stored = arrays(script)
    named = {attribute(name): values for name, values in stored.items()}
    used = [name for name in CURVES if name in _used(script) and not script.unquantized]
    taken = {routine.name for routine in script.routines}.union(used)
    if len(named) < len(stored) or taken & named.keys():
        raise ValueError(f"the twin of {script.name} has two things of one name: "
                         f"{', '.join(sorted(taken & named.keys()) or stored)}")
    curves = {name: getattr(activation, name)(_PATTERNS).view(np.float16) for name in used}
    return {name: np.ascontiguousarray(values) for name, values in (named | curves).items()}


def _head(script: Script, form, stem: str) -> str:
    shape = ", ".join(["batch", *("steps" if size is None else str(size) for size in script.inputs)])
    machine = f"the machine `{script.machine}`" if script.machine else "a machine that is no preset"
    origin = f"The software twin of firmware `{_plain(script.name)}` for {machine}: {_SAYS[script.unquantized]}"
    text = (f"Inputs are [{shape}], and results [batch, {script.outputs}] in {form.result}. "
            f"{_NUMBERS[script.unquantized].format(stem=stem)}")
    example = [f"    from {stem} import Twin", f"    {form.example}"]
    return "\n".join([f'"""{_sentence(script.main.title)}', "", *wrap(origin, WIDTH), "", *example, "",
                      *wrap(text, WIDTH), '"""', ""])


def _imports(lines: set[str]) -> str:
    """Imports in the order that people expect: the standard library first, and one line for each module."""
    whole = {line for line in lines if line.startswith("import")}
    parts = defaultdict(set)
    for line in lines - whole:
        _, module, _, name = line.split(maxsplit=3)
        parts[module].add(name)
    merged = whole | {f"from {module} import {', '.join(sorted(names))}" for module, names in parts.items()}
    ordered = sorted(merged, key=lambda line: (line.startswith("from"), line))
    others = [line for line in ordered if line.split()[1].partition(".")[0] not in sys.stdlib_module_names]
    standard = [line for line in ordered if line not in others]
    return "\n".join([*standard, *[""] * bool(standard), *others, ""])


def _constants(script: Script) -> str:
    classes = wrapped("CLASSES = (", [literal(name) for name in script.classes],
                      ")" if len(script.classes) > 1 else ",)") if script.classes else []
    held = "#: Weights." if script.unquantized else "#: Weights and tables."
    file = [held, 'FILE = Path(__file__).with_suffix(".safetensors")']
    return "\n".join([*file, "#: Shape of an input.", f"INPUTS = {literal(script.inputs)}",
                      *["#: Names of the results."] * bool(classes), *classes, "", ""])


def _twin(script: Script, form, lines: Lines, used: set[str]) -> str:
    """The class."""
    curves = [name for name in form.curves if name in used]
    made = [*form.made, *(form.curve.format(name=name) for name in curves), *form.kept]
    text = [f"class Twin{form.base and f'({form.base})'}:", f'    """{_sentence(script.main.title)}"""', "",
            '    def __init__(self, file=FILE):',
            *(f"        {line}" for line in made), "",
            *(f"    {line}" for line in form.decorated)]
    (parameter,) = lines.parameters(script.main)
    text += [f"    def {form.method}(self, inputs):",
             f'        """Results [batch, {script.outputs}] of inputs [batch, ...]."""',
             f"        {parameter} = {form.takes}(inputs, INPUTS)", *lines.body(script.main, 8)]
    for routine in script.routines:
        text += ["", f"    def {routine.name}({', '.join(('self', *lines.parameters(routine)))}):",
                 f'        """{_sentence(routine.title)}"""', *lines.body(routine, 8)]
    return "\n".join(text)


def _compiled(script: Script) -> str:
    """Method that compiles a twin: whole, or layer by layer where a loop would be unrolled."""
    loops = [line for line in script.main.body if isinstance(line, SequenceLoop)]
    if script.routines and not all(map(repeated, loops)):
        lines = ['"""Compile each layer by itself, so that loops over time steps are not unrolled."""',
                 *(f"self.{each.name} = compiled(self.{each.name})" for each in script.routines),
                 "return self"]
    else:
        lines = ['"""The twin as a function of inputs that is compiled whole."""',
                 f"return compiled(self{', dynamic=True' * bool(loops)})"]
    return "\n".join(["", "", "    def compiled(self):", *(f"        {line}" for line in lines)])


def _training(trained: Mapping[str, Rounding]) -> str:
    """Methods for training, or nothing."""
    if not trained:
        return ""
    names = defaultdict(list)
    for name, rounding in trained.items():
        names[rounding].append(literal(attribute(name)))
    title = '        """Make parameters of weights and vectors; gradients pass their roundings."""'
    text = ["", "", "    def trainable(self):", title]
    for rounding, each in names.items():
        settings = [f"{name}={literal(value)}" for name, value in rounding.settings]
        text += [*wrapped("        for name in (", each, "):" if len(each) > 1 else ",):"),
                 *wrapped("            train(", ["self", "name", rounding.function, *settings], ")")]
    return "\n".join([*text, "        return self"])


def _sentence(title: str) -> str:
    text = _plain(title)
    return text if text.endswith(".") else f"{text or 'A network'}."


def _plain(text: str) -> str:
    """A name as text between triple quotes, on one line: it must not end them, nor begin an escape sequence."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(shown.replace("\\", "/").replace('"', "'").split())


def _is_operator(text: str, operators) -> bool:
    return any(f"def {name}(" in text for name in operators)


def _used(script: Script) -> set[str]:
    """Names of all functions that a script calls."""
    return {call.function for routine in (script.main, *script.routines) for call in _calls(routine.body)}


def _calls(lines: tuple[Line, ...]) -> Iterator[Call]:
    for line in lines:
        if isinstance(line, SequenceLoop):
            yield from _calls(line.body)
        else:
            yield line


def _collects(script: Script) -> bool:
    def collects(lines):
        return any(isinstance(line, SequenceLoop) and (line.collected or collects(line.body)) for line in lines)

    return any(collects(routine.body) for routine in (script.main, *script.routines))


def module_name(name: str) -> str:
    """A name as the beginning of that of a module of Python; what follows it is `_numpy` and the like."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:_LONGEST]
    return name if name[:1].isalpha() else f"twin_{name}"


def write_twin(script: Script, framework: Framework, folder: Path, stem: str,
               trained: Mapping[str, Rounding] | None = None) -> Path:
    """Write `stem`.py and `stem`.safetensors, or `stem`.onnx, and return the path of the source or of the graph.

    Args:
        script:    What the twin computes.
        framework: What it runs in.
        folder:    Where the files are to be.
        stem:      Their name.
        trained:   How each tensor that can be trained is rounded; None for a twin that is not trained.

    Raises:
        ValueError: two names are the same in a source, or the framework cannot say something that the script says.
    """
    if framework not in FORMS:
        from concord.twin.source.onnx_graph import onnx_graph

        files.write(folder / f"{stem}.onnx", onnx_graph(script).SerializeToString())
        return folder / f"{stem}.onnx"
    text, stored = source(script, framework, stem, trained), save(tensors(script), {"twin": script.name})
    files.write_all(folder, {f"{stem}.py": text, f"{stem}.safetensors": stored})
    return folder / f"{stem}.py"
