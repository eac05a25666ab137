"""torchvision for landscape: ``--model torchvision:resnet18 --data torchvision:CIFAR10``."""

from landscape_torchvision.data import open_dataset
from landscape_torchvision.models import build_model

__all__ = ["build_model", "open_dataset"]
