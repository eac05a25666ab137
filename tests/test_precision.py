from __future__ import annotations

import cases
import pytest
from sites import surveyed
from torch import Tensor, nn

from landscape_cli.errors import MeasurementError
from landscape_cli.precision import in_float64


@pytest.mark.parametrize("mode", ["batch", "running", "frozen"])
def test_a_float32_objective_is_evaluated_on_a_copy_in_float64(mode: str) -> None:
    raws = cases.image_data(8, 4)
    rounded = cases.SmallBatchNormNet().float()
    exact = cases.SmallBatchNormNet()
    exact.load_state_dict(rounded.state_dict())
    images = [(x.float().double(), y) for x, y in raws]
    with surveyed(exact, images, norm_mode=mode) as site:
        expected = site.base_loss
    with surveyed(rounded, raws, norm_mode=mode) as site:
        with in_float64(site.objective) as wide:
            assert wide.model is not rounded
            assert wide.norm_mode == mode
            assert float(wide.value()) == pytest.approx(expected, rel=1e-14)
        assert site.base_loss != expected
        assert float(site.objective.value()) == site.base_loss


def test_a_float64_objective_is_itself() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(5)) as site, in_float64(site.objective) as wide:
        assert wide is site.objective


def test_a_model_that_cannot_be_copied_is_told_of() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.last: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.last = self.layer(x)
            return self.last

    refused = pytest.raises(MeasurementError, match="cannot be copied into float64")
    model = Remembering().float()
    with surveyed(model, cases.vector_data(5)) as site, refused, in_float64(site.objective):
        raise AssertionError("it was copied")
