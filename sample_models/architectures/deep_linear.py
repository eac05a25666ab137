"""The deep linear network: a product of square matrices, fitted to one matrix."""

from __future__ import annotations

from torch import Tensor, nn

from sample_models.architectures.style import Style
from sample_models.options import require_at_least


class DeepLinear(nn.Module):
    """x ↦ W_k … W_1 x, without biases; a norm, if any, stands between the layers.

    The output is not normalised: what it has to fit has no unit variance.

    Args:
        depth: number of layers k.
        width: rows and columns of every layer.
        style: normalisation and initialisation; there is no activation.

    Reference:
        Santurkar et al. (2018), Appendix A.1: 25 layers of 10×10, Glorot initialisation.
    """

    default_style = Style(activation="identity")

    def __init__(self, depth: int = 25, *, width: int = 10, style: Style = default_style) -> None:
        super().__init__()
        require_at_least(1, depth=depth, width=width)
        hidden = [style.block(nn.Linear(width, width, bias=False)) for _ in range(depth - 1)]
        self.hidden = nn.Sequential(*hidden)
        self.output = style.initialised(nn.Linear(width, width, bias=False))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product with the inputs, shape (N, width)."""
        outputs: Tensor = self.output(self.hidden(inputs))
        return outputs
