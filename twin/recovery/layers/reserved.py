"""Names that a routine must not have, because the class of a twin has them in some framework."""

import keyword

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


def reserved(name: str) -> bool:
    """Whether a routine must not have a name."""
    return name in _NAMES or keyword.iskeyword(name)
