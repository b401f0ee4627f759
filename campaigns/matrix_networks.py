"""Convolutional networks of three styles, as small as they can be: for `verify_matrix`, which trains many of them.

Channels do not fill native vectors, and the first convolution leaves 10 x 10 or 7 x 7 pixels.
"""

from concord.train.lib.networks import CLASSES, Branches, Residual, convolution
from torch import nn


def resnet() -> nn.Sequential:
    """Two residual blocks, one with a convolution around it."""
    body = nn.Sequential(convolution(9, 9, 3), convolution(9, 9, 3, relu=False))
    wider = nn.Sequential(convolution(9, 17, 3, 2), convolution(17, 17, 3, relu=False))
    return nn.Sequential(
        convolution(1, 9, 3, 3), Residual(body, nn.Identity(), relu=True),
        Residual(wider, convolution(9, 17, 1, 2, relu=False), relu=True), *_mean(17))


def mobilenet() -> nn.Sequential:
    """Two inverted bottlenecks, depthwise inside, one of which has a way around it."""
    def bottleneck(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        wide = 3 * inputs
        return nn.Sequential(convolution(inputs, wide, 1), convolution(wide, wide, 3, stride, groups=wide),
                             convolution(wide, outputs, 1, relu=False))

    return nn.Sequential(
        convolution(1, 8, 3, 3), bottleneck(8, 12, 2), Residual(bottleneck(12, 12, 1), nn.Identity(), relu=False),
        convolution(12, 40, 1), *_mean(40))


def inception() -> nn.Sequential:
    """Branches side by side, a maximum of what they make, and a flattened image."""
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(6, 5, 1))
    block = Branches(convolution(6, 7, 1), nn.Sequential(convolution(6, 4, 1), convolution(4, 7, 3)), pooled)
    return nn.Sequential(
        convolution(1, 6, 3, 4), block, nn.MaxPool2d(2), convolution(19, 12, 3), nn.Flatten(),
        nn.Linear(12 * 3 * 3, CLASSES))


def _mean(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


#: Networks by their style.
STYLES = {"ResNet": resnet, "MobileNet": mobilenet, "Inception": inception}
