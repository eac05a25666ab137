"""What the study of noisy BatchNorm follows along a trajectory."""

from __future__ import annotations

import json

import numpy as np
import pytest

from landscape_cli.store import open_run


@pytest.fixture
def followed(reproduced):
    """The runs of every checkpoint of a network, by norm, seed 0."""
    folder = reproduced("santurkar-fig2").folder
    runs = json.loads((folder / "claims.json").read_text())["runs"]

    def of(norm: str):
        names = sorted(name for name in runs if name.startswith(f"VGG-{norm}-0-step"))
        return [open_run(runs[name]) for name in names]

    return of


def test_the_same_units_are_followed_at_every_checkpoint(followed) -> None:
    first, *others = followed("noisy")
    assert others
    for run in others:
        assert (run["activations/unit_index"] == first["activations/unit_index"]).all()


def test_all_units_are_followed(followed) -> None:
    index = followed("none")[0]["activations/unit_index"][0]
    layer = followed("none")[0].labels("activations/layer").index("features.1.layer")
    assert index[layer][:8].tolist() == list(range(8)), "the first layer has eight outputs"


def test_pairs_are_of_successive_training_steps(followed) -> None:
    steps = np.concatenate([run["training_step"] for run in followed("noisy")])
    assert steps.tolist() == [0, 1, 6, 7]


def test_the_noise_is_new_at_every_checkpoint(followed) -> None:
    """A step of training moves the means far less than the noise does."""

    def moved(norm: str) -> float:
        first, second = (run["activations/unit_mean"][0] for run in followed(norm)[:2])
        return float(np.nanmedian(np.abs(second - first)[1:]))

    assert moved("noisy") > 3 * moved("batch")
