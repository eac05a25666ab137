"""How much one step of a training computes, and with how many threads it is best done."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from landscape_cli import randomness
from landscape_cli.batches import Batch
from landscape_cli.training.evaluation import forward

SMALL_STEP = 10**9
"""Floating-point operations of a forward pass below which threads wait more than they work."""


def suitable_threads(model: nn.Module, batch: Batch) -> int:
    """Return how many threads a training should compute with: one, or as many as there are.

    The rule counts operations and takes no time, for the number of threads decides the last bits
    of the weights: the same specs and seed shall give the same ones. A number in
    ``OMP_NUM_THREADS`` is taken as it is.

    Args:
        model: on its device; nothing of it is changed.
        batch: of the size that every step has.
    """
    most = torch.get_num_threads()
    elsewhere = next(model.parameters()).device.type != "cpu"
    if most == 1 or elsewhere or "OMP_NUM_THREADS" in os.environ:
        return most
    return 1 if forward_operations(model, batch) < SMALL_STEP else most


def forward_operations(model: nn.Module, batch: Batch) -> int:
    """Return the operations of one forward pass in evaluation mode, as PyTorch counts them."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), randomness.preserved(), FlopCounterMode(display=False) as counter:
            forward(model, batch)
    finally:
        for module, training in flags:
            module.training = training
    return int(counter.get_total_flops())
