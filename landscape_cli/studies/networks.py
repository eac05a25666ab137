"""The two networks of Santurkar et al., and how they are trained and probed at every preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

LABELS = {
    "none": "Standard",
    "batch": "Standard + BatchNorm",
    "noisy": "Standard + “Noisy” BatchNorm",
    "noise": "Standard + noise",
    "l1": "Standard + ℓ1 norm",
    "l2": "Standard + ℓ2 norm",
    "linf": "Standard + ℓ∞ norm",
}
"""What the published legends call a norm."""
_NORMS = {"noise": "noisy&norm_normalise=False"}
"""Norms that are another one with options."""


@dataclass(frozen=True)
class Network:
    """A network and its protocol.

    Attributes:
        name: as the paper calls it.
        target: spec of the model, with options, before norm and seed.
        data: spec of the data, with ``{seed}`` where they depend on it.
        training: settings of `landscape_cli.training.train`.
        probing: settings of `landscape.probe`.
    """

    name: str
    target: str
    data: str
    training: dict[str, Any]
    probing: dict[str, Any]

    def model(self, norm: str, seed: int) -> str:
        """Return the spec of the network; the seed draws the same weights whatever the norm."""
        return f"{self.target}&norm={_NORMS.get(norm, norm)}&seed={seed}"


def vgg(bench: Workbench) -> Network:
    """Return the VGG: gradient descent at 0.1 with batches of 128; steps from ½ to 4 times that.

    The paper does not say which VGG; here it is configuration A, 8 convolutions of width 64 and
    up. `laptop` has 5 convolutions and 400 steps on 8×8 images: with 8 narrow ones the network
    without normalisation does not leave its initial loss at this step size, while the paper's
    does, and nothing could be compared.

    Reference:
        Santurkar et al. (2018), Appendix A.1 and A.2.2; the size of the network is not given.
    """
    images = bench.images("cifar10")
    size = bench.choose(
        smoke="config=8,M,16,M,16", laptop="config=16,M,32,M,64,64,M,64", paper="depth=11"
    )
    steps = bench.choose(smoke=12, laptop=400, paper=15_000)
    return Network(
        name="VGG",
        target=f"sample:vgg?{size}&{images.options}",
        data=images.train,
        training={
            "steps": steps,
            "every": bench.choose(smoke=6, laptop=40, paper=150),
            "batch_size": 128,
            "lr": 0.1,
            "test_data": images.test,
        },
        probing={"batch_size": 128, "steps": f"0.5:4:{bench.choose(smoke=4, laptop=12, paper=16)}"},
    )


def deep_linear(bench: Workbench) -> Network:
    """Return the deep linear network: full-batch descent at 1e-6 on the *sum* of squares.

    25 layers of 10×10, 1,000 samples; steps from 1/100 to 30 times the learning rate. `laptop`
    makes 1,000 of the 10,000 published steps.

    Reference:
        Santurkar et al. (2018), Appendix A.1 and A.2.2.
    """
    count = bench.choose(smoke=5, laptop=16, paper=30)
    return Network(
        name="DLN",
        target="sample:deep-linear?depth=25&width=10",
        data="sample:gaussian?samples=1000&features=10&seed={seed}",
        training={
            "steps": bench.choose(smoke=20, laptop=1_000, paper=10_000),
            "every": bench.choose(smoke=10, laptop=100, paper=100),
            "full_batch": True,
            "lr": 1e-6,
            "loss": "sse",
        },
        probing={"batch_size": 1000, "steps": f"0.01:30:{count}"},
    )


Trainings = dict[str, list["Trained"]]
"""By norm, one per seed."""
Runs = dict[str, list["Run"]]
"""By norm, one per seed."""


def train_each(bench: Workbench, network: Network, norms: Sequence[str]) -> Trainings:
    """Train the network with every norm and seed."""
    return {
        norm: [
            bench.train(
                f"{network.name}-{norm}-{seed}",
                network.model(norm, seed),
                network.data.format(seed=seed),
                seed=seed,
                **network.training,
            )
            for seed in bench.seeds
        ]
        for norm in norms
    }


def probe_each(bench: Workbench, network: Network, trainings: Trainings, **settings: Any) -> Runs:
    """Probe every trajectory; `settings` go before the network's own."""
    return {
        norm: [
            bench.probe(trained.name, trained, seed=seed, **{**network.probing, **settings})
            for seed, trained in zip(bench.seeds, group, strict=True)
        ]
        for norm, group in trainings.items()
    }
