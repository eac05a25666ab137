"""The dense networks of Ioffe and Szegedy and of Lange et al."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from sample_models.architectures.style import Style
from sample_models.options import require_at_least


class MLP(nn.Module):
    """Dense layers on the flattened input.

    Args:
        hidden: width of every hidden layer: 100,100,100 in Fig. 3 to 5 of Lange et al., 100,100
            in Fig. 8 and Table 1.
        in_features: number of values of one input, 784 for MNIST, 64 for the digits.
        classes: number of outputs.
        style: normalisation, activation, initialisation; the norm after the activation unless
            it says otherwise.

    Reference:
        Lange et al. (2022), §5 and Appendix B.
    """

    default_style = Style(norm_position="after")

    def __init__(
        self,
        hidden: tuple[int, ...] = (100, 100, 100),
        *,
        in_features: int = 784,
        classes: int = 10,
        style: Style = default_style,
    ) -> None:
        super().__init__()
        sizes = [in_features, *hidden]
        require_at_least(1, in_features=in_features, classes=classes, hidden=min(sizes))
        pairs = itertools.pairwise(sizes)
        self.hidden = nn.Sequential(*(style.block(nn.Linear(*pair)) for pair in pairs))
        self.output = style.initialised(nn.Linear(sizes[-1], classes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores, shape (N, classes), of inputs of any shape (N, …)."""
        scores: Tensor = self.output(self.hidden(inputs.flatten(1)))
        return scores
