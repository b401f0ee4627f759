"""The same networks with the quantisers of other libraries.

The group `peers` installs the libraries; each is only imported when it is used, which raises ImportError if it is not
installed.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn


def swapped(net: nn.Module, quantized: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """A copy of a network in which `quantized` replaces each convolution and dense layer."""
    made = deepcopy(net)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            made.set_submodule(name, quantized(layer))
    return made


def brevitas(net: nn.Module, images: torch.Tensor, bits: int = 4) -> nn.Module:
    """Brevitas: scales of each channel's weights and each layer's input by least squared error; they are learned.

    Args:
        net:    FP32 network of layers whose inputs are never negative.
        images: The calibration set.
    """
    warnings.filterwarnings("ignore", module="brevitas")
    import brevitas.nn as layers
    from brevitas.graph.calibrate import calibration_mode
    from brevitas.quant import Int8WeightPerChannelFloatMSE, Uint8ActPerTensorFloatMSE

    options = {"weight_quant": Int8WeightPerChannelFloatMSE, "weight_bit_width": bits,
               "input_quant": Uint8ActPerTensorFloatMSE, "input_bit_width": bits}

    def quantized(layer: nn.Module) -> nn.Module:
        bias = layer.bias is not None
        if isinstance(layer, nn.Conv2d):
            made = layers.QuantConv2d(
                layer.in_channels, layer.out_channels, layer.kernel_size, stride=layer.stride, padding=layer.padding,
                groups=layer.groups, bias=bias, **options)
        else:
            made = layers.QuantLinear(layer.in_features, layer.out_features, bias=bias, **options)
        made.load_state_dict(layer.state_dict(), strict=False)
        return made

    made = swapped(net, quantized).eval()
    with torch.no_grad(), calibration_mode(made):
        made(images)
    return made.train()


def torch_ao(net: nn.Module) -> nn.Module:
    """torch.ao in eager mode: 8 bits, observed scales; normalisation and relu are fused into the layers before them."""
    warnings.filterwarnings("ignore", module="torch")
    from torch.ao import quantization

    made = deepcopy(net).train()
    for part in list(made.modules()):
        if isinstance(part, nn.Sequential):
            groups = _fusible([type(layer) for layer in part])
            if groups:
                quantization.fuse_modules_qat(part, groups, inplace=True)
    made.qconfig = quantization.get_default_qat_qconfig("x86")
    return quantization.prepare_qat(made, inplace=True)


def _fusible(kinds: list[type]) -> list[list[str]]:
    """Names of adjacent layers that torch.ao fuses into one."""
    groups, index = [], 0
    while index < len(kinds):
        length = 1
        if kinds[index] in (nn.Conv2d, nn.Linear):
            length += kinds[index + 1:index + 2] == [nn.BatchNorm2d]
            length += kinds[index + length:index + length + 1] == [nn.ReLU]
        if length > 1:
            groups.append([str(index + offset) for offset in range(length)])
        index += length
    return groups


def torchao(net: nn.Module) -> nn.Module:
    """torchao: dense layers with 4-bit weights and 8-bit inputs, with scales from each batch; others stay in FP32."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    made = deepcopy(net).train()
    inputs = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
    weights = IntxFakeQuantizeConfig(torch.int4, "per_channel", is_symmetric=True)
    quantize_(made, QATConfig(activation_config=inputs, weight_config=weights, step="prepare"))
    return made


def qpytorch(net: nn.Module) -> nn.Module:
    """QPyTorch: block floating point of 8 bits for weights, activations and gradients, rounded to nearest."""
    from qtorch import BlockFloatingPoint
    from qtorch.quant import Quantizer, quantizer

    eight = BlockFloatingPoint(wl=8, dim=-1)
    weights = quantizer(forward_number=eight, forward_rounding="nearest")

    class Quantized(nn.Module):
        """A layer with quantised parameters and a quantised result."""

        def __init__(self, layer: nn.Module):
            super().__init__()
            self.layer = layer
            self.between = Quantizer(eight, eight, "nearest", "nearest")

        def forward(self, x):
            values = {name: weights(value) for name, value in self.layer.named_parameters()}
            return self.between(torch.func.functional_call(self.layer, values, (x,)))

    return swapped(net, Quantized)
