"""The theorems on single units, against brute force."""

from __future__ import annotations

import pytest
import torch

from landscape_cli.adapters.building import build_model
from landscape_cli.studies.normalised_units import (
    activation_difference,
    initialisation_sides,
    minimax_sides,
)


@pytest.mark.parametrize("seed", range(5))
def test_theorem_4_4_is_tight_as_it_is_proved_and_no_bound_as_it_is_printed(seed) -> None:
    sides = minimax_sides(seed)
    assert sides.left == pytest.approx(sides.corrected, rel=1e-10)
    assert sides.left > sides.printed


@pytest.mark.parametrize("seed", range(5))
def test_lemma_4_5_is_an_equation_and_its_optimum_is_one(seed) -> None:
    sides = initialisation_sides(seed)
    assert sides.left == pytest.approx(sides.right, rel=1e-9, abs=1e-12)
    assert sides.slope < 1e-10


def test_the_lemmas_left_side_is_the_least_over_all_multiples() -> None:
    # W* and W₀ drawn as the lemma's check draws them; the nearest multiple found by a fine grid.
    seed = 3
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(64, 8, generator=draw, dtype=torch.float64)
    targets = torch.randn(64, generator=draw, dtype=torch.float64)
    start = torch.randn(8, generator=draw, dtype=torch.float64)
    design = torch.cat([torch.ones(64, 1, dtype=torch.float64), inputs], 1)
    best = torch.linalg.pinv(design)[1:] @ targets
    start = start if start @ best > 0 else -start
    centre = float(start @ best / (best @ best))
    grid = torch.linspace(0, 2 * centre, 20_001, dtype=torch.float64)
    distances = (start - grid[:, None] * best).square().sum(1)
    assert initialisation_sides(seed).left == pytest.approx(float(distances.min()), rel=1e-9)


def save(model, path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)


@pytest.mark.parametrize(
    ("plain", "shape"),
    [
        ("sample:mlp?hidden=5,5&in_features=6&norm_position=before&seed=1", (16, 6)),
        ("sample:vgg?config=4,M,6&in_channels=1&image_size=4&seed=1", (8, 1, 4, 4)),
    ],
)
def test_gamma_and_beta_can_undo_batch_normalisation(plain, shape, tmp_path) -> None:
    path = tmp_path / "step-000000.safetensors"
    save(build_model(f"{plain}&norm=none"), path)
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    error, moved = activation_difference(
        f"{plain}&norm=none", f"{plain}&norm=batch&norm_eps=0", path, inputs
    )
    assert error < 1e-12
    assert moved > 0.1, "without moving γ and β the networks are different"
