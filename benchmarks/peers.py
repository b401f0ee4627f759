"""The same networks behind other libraries' quantisers: weights and the input of each layer, as here.

The group `peers` installs the libraries; each is only loaded where it is asked for.
"""

from copy import deepcopy

import torch
from torch import nn


def brevitas(net: nn.Module, images: torch.Tensor, weights_bits: int, input_bits: int) -> nn.Module:
    """Brevitas: least squared error for each channel's weights and each layer's inputs, steps learned.

    Args:
        net:    FP32, of inputs that are never negative; left as it is.
        images: The calibration set.
    """
    import brevitas.nn as layers
    from brevitas.graph.calibrate import calibration_mode
    from brevitas.quant import Int8WeightPerChannelFloatMSE, Uint8ActPerTensorFloatMSE

    options = {
        "weight_quant": Int8WeightPerChannelFloatMSE, "weight_bit_width": weights_bits,
        "input_quant": Uint8ActPerTensorFloatMSE, "input_bit_width": input_bits}

    def quantised(layer: nn.Module) -> nn.Module:
        bias = layer.bias is not None
        if isinstance(layer, nn.Conv2d):
            made = layers.QuantConv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, stride=layer.stride, padding=layer.padding,
                groups=layer.groups, bias=bias, **options)
        else:
            made = layers.QuantLinear(layer.in_features, layer.out_features, bias=bias, **options)
        made.load_state_dict(layer.state_dict(), strict=False)
        return made

    made = swapped(net, quantised).eval()
    with torch.no_grad(), calibration_mode(made):
        made(images)
    return made


def swapped(net: nn.Module, quantised) -> nn.Module:
    """A copy of a network with other convolutions and dense layers."""
    made = deepcopy(net)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            made.set_submodule(name, quantised(layer))
    return made
