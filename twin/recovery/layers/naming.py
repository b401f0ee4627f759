"""Names: of the values in a routine, of the stored tensors of a layer, and those that no routine may have."""

import keyword
from collections.abc import Mapping

from concord.twin.lib.script import QUANTISERS, SUMS, Argument, Call, Stored, StoredTensor
from concord.twin.recovery.layers.labels import is_scaling, multiplies
from concord.twin.recovery.tensors.drafts import SCORES, Constant, Draft, DraftValue
from concord.twin.vocabulary import word_functions

#: What an object of `torch.nn.Module` has, and the twin in PyTorch beside it.
_TORCH = """
T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train training type xpu zero_grad
compiled names save trainable
"""
#: What an object of `tf.Module` has.
_TENSORFLOW = frozenset(["name", "name_scope", "non_trainable_variables", "submodules", "trainable_variables",
                         "variables", "with_name_scope"])
_NAMES = {*vars(word_functions), *_TORCH.split(), *_TENSORFLOW, "network", "inputs", "x"}


class Tensors:
    """The stored tensors by name; a tensor that a layer uses twice is stored once.

    Attributes:
        found: The tensors.
    """

    def __init__(self):
        self.found: dict[str, StoredTensor] = {}
        self._constants: dict[str, Constant] = {}

    def name(self, layer: str, role: str, constant: Constant) -> str:
        """Name of a constant of a layer."""
        base, number = f"{layer}.{role}", 1
        name = base
        while name in self._constants and not self._constants[name].same(constant):
            number += 1
            name = f"{base}_{number}"
        if name not in self._constants:
            self._constants[name] = constant
            self.found[name] = StoredTensor(values=constant.values, memory=constant.memory, places=constant.places,
                                            bits=constant.bits)
        return name


class Locals:
    """Names of the values of a routine.

    Args:
        layer:   Name of the routine.
        tensors: All stored tensors.
        hints:   Names by address of the instruction that ends a chain.
        states:  Names of values that are states of a loop, old ones and those that replace them.
    """

    def __init__(self, layer: str, tensors: Tensors, hints: Mapping[int, str], states: Mapping[DraftValue, str]):
        self._layer, self._tensors, self._hints, self._states = layer, tensors, hints, states
        self.names: dict[DraftValue, str] = {}
        self._bases: dict[DraftValue, str] = {}
        self._held: dict[str, DraftValue] = {}
        self._inside: set[Draft] = set()

    def parameters(self, takes: list[DraftValue], roles: Mapping[DraftValue, str]) -> tuple[str, ...]:
        """Names of the parameters; those of states, and `roles` of others, are known."""
        known = {**roles, **self._states}
        others = [value for value in takes if value not in known]
        plain = iter("xyz" if len(others) <= 3 else [f"x{number}" for number in range(1, len(others) + 1)])
        return tuple(self._set(value, known[value] if value in known else next(plain)) for value in takes)

    def calls(self, drafts: list[Draft], results: list[DraftValue]) -> tuple[Call, ...]:
        """The lines of the routine."""
        last = {value: number for number, draft in enumerate(drafts) for value in draft.reads}
        last |= dict.fromkeys(results, len(drafts))
        lines, self._inside = [], set(drafts)
        for number, draft in enumerate(drafts):
            arguments = tuple(self._argument(draft, each) for each in draft.arguments)
            self._held = {name: value for name, value in self._held.items() if last.get(value, -1) > number}
            name = self._set(draft.result, self._base(draft, last, number))
            lines.append(Call(results=(name,), function=draft.function, arguments=arguments, settings=draft.settings))
        return tuple(lines)

    def _set(self, value: DraftValue, base: str) -> str:
        name, number = base, 1
        while name in self._held:
            number += 1
            name = f"{base}{number}"
        self._bases[value] = base
        self.names[value], self._held[name] = name, value
        return name

    def _base(self, draft: Draft, last, number) -> str:
        if draft.result in self._states:
            return self._states[draft.result]
        if draft.function in QUANTISERS:
            return "codes"
        hint = self._hints.get(draft.address)
        if hint:
            return hint
        if multiplies(draft):
            return "scores" if draft.result.heads == SCORES else "y"
        if draft.function in SUMS:
            return "sums"
        if draft.function == "exp" and draft.result.heads == SCORES:
            return "powers"
        first = draft.reads[0]
        base = self._bases.get(first, "y")
        kept = last.get(first, -1) == number and base not in ("codes", "sums") and first not in self._states
        return base if kept and len(base) > 1 else "y"

    def _argument(self, draft: Draft, argument) -> Argument:
        if isinstance(argument, DraftValue):
            return self.names[argument]
        return Stored(name=self._tensors.name(self._layer, self._role(draft, argument), argument))

    def _role(self, draft: Draft, constant: Constant) -> str:
        role = constant.role
        state = any(value in self._states for value in sources(draft))
        if role == "weights" and self._states:
            joined = draft.reads[0].draft is not None and draft.reads[0].draft.function == "join"
            return role if joined else ("recurrent_weights" if state else "input_weights")
        if role in ("scale", "offset") and is_scaling(draft) and before_quantizer(draft, self._inside):
            return f"{'state' if state else 'input'}_{role}"
        hint = self._hints.get(draft.address, "")
        if role == "offset" and draft.reads[0].draft is not None and draft.reads[0].draft.function in SUMS:
            role = "bias"
        return f"{hint}_{role}" if hint else role


def before_quantizer(draft: Draft, inside: set[Draft]) -> bool:
    """Whether a scaling works on what comes from outside of the layer, for a quantiser.

    Args:
        inside: The drafts of the layer.
    """
    source = draft.reads[0].draft if draft.reads else None
    while source in inside and source.function in ("multiply", "add", "join", "flatten", "part", "numbers", "integers"):
        source = source.reads[0].draft if source.reads else None
    return source not in inside or source.function not in SUMS


def sources(draft: Draft) -> set[DraftValue]:
    """The values that a draft's operand is made of by quantisers, scales and layout."""
    found, left = set(), list(draft.reads[:1])
    while left:
        value = left.pop()
        found.add(value)
        if value.draft is not None and value.draft.function in (*QUANTISERS, "multiply", "add", "join", "part"):
            left += value.draft.reads
    return found


def reserved(name: str) -> bool:
    """Whether a routine must not have a name."""
    return name in _NAMES or keyword.iskeyword(name)
