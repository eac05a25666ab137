"""Ordinary least squares, plain and with its only unit normalised."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from landscape_cli.errors import AdapterError
from sample_models.architectures.style import Style
from sample_models.options import require_at_least

NORMS = ("none", "batch", "l1", "l2", "linf")


class LeastSquares(nn.Module):
    """x ↦ xᵀw, or with a norm x ↦ a·N(xᵀw), where a is trained and there is no shift.

    With ``norm=batch``, ε = 0 unless told, and data of mean zero, N(xᵀw) = xᵀw/√(wᵀHw) where H
    is the second moment of the batch: the model whose gradient descent Cai et al. analyse.
    Their loss is half the mean square, so that a step of theirs is half of one on ``mse``.

    Args:
        in_features: dimension d of x.
        scale: initial value of a.
        style: the norm and the initialisation of w; there is no activation.

    Raises:
        AdapterError: If the norm does not apply to a single unit.

    Reference:
        Cai, Li and Shen (2019), "Batch Normalization on Ordinary Least Squares".
    """

    default_style = Style(activation="identity")

    def __init__(
        self, in_features: int = 10, *, scale: float = 1.0, style: Style = default_style
    ) -> None:
        super().__init__()
        require_at_least(1, in_features=in_features)
        if style.norm not in NORMS:
            raise AdapterError(
                "this norm does not apply to the one unit of least squares",
                seen=f"norm={style.norm}",
                hint=f"norm={', '.join(NORMS)}",
            )
        self.layer = style.initialised(nn.Linear(in_features, 1, bias=False))
        self.norm: nn.Module | None = None
        if style.norm != "none":
            self.norm = _unscaled(style).norm_layer(1, 0)
            self.scale = nn.Parameter(torch.tensor([float(scale)]))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the predictions, shape (N, 1), of inputs of shape (N, in_features)."""
        outputs: Tensor = self.layer(inputs)
        return outputs if self.norm is None else self.scale * self.norm(outputs)


def _unscaled(style: Style) -> Style:
    """Return the style with its norm's own scale and shift left out, and ε = 0 by default."""
    options = {"eps": 0.0, **style.norm_options, "affine": False}
    return Style(norm=style.norm, norm_options=options)
