"""The networks of the published studies, one file each; every one takes a `Style`."""

from sample_models.architectures.cnn import CNN
from sample_models.architectures.deep_linear import DeepLinear
from sample_models.architectures.gpt import GPT
from sample_models.architectures.least_squares import LeastSquares
from sample_models.architectures.mlp import MLP
from sample_models.architectures.resnet import ResNet, ResNet18
from sample_models.architectures.style import Style
from sample_models.architectures.vgg import VGG

__all__ = [
    "CNN",
    "GPT",
    "MLP",
    "VGG",
    "DeepLinear",
    "LeastSquares",
    "ResNet",
    "ResNet18",
    "Style",
]
