"""The networks of Lange et al., their data at every preset, and how their methods are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landscape_cli.studies.contests import Method

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Images, Workbench

PAPER = "Lange et al. (2022)"

NOTES = (
    "Learning rates are those of Tables 2 and 3. Preset laptop trains on handwritten digits of "
    "8×8 pixels, on which they were not tuned.",
    "The text does not say how long the networks were trained; the steps are those of the tables.",
    "Normalisations have the constants of TensorFlow, which the paper used: ε = 10⁻³ and, in the "
    "preset paper, running averages at 0.01. On the few steps of the other presets such averages "
    "would not arrive, so that they run at 0.1 there. Batch Renormalisation is not clipped.",
)


def vanilla(lr: float) -> Method:
    """Return plain gradient descent."""
    return Method("vanilla", lr)


def bn(bench: Workbench, lr: float, *, may_refuse: bool = False) -> Method:
    """Return BatchNorm behind the activation."""
    style = f"norm=batch&norm_eps=1e-3&norm_momentum={_momentum(bench)}"
    return Method("BN", lr, style, may_refuse=may_refuse)


def renorm(bench: Workbench, lr: float, *, may_refuse: bool = False) -> Method:
    """Return Batch Renormalisation, never clipped, open from the first step."""
    limits = "norm_r_max=1e9&norm_d_max=1e9&norm_warmup=0&norm_r_end=0&norm_d_end=0"
    style = f"norm=renorm&{limits}&norm_momentum={_momentum(bench)}"
    return Method("BN Renorm", lr, style, may_refuse=may_refuse)


def ln(lr: float) -> Method:
    """Return LayerNorm."""
    return Method("LN", lr, "norm=layer&norm_eps=1e-3")


def bnp(lr: float) -> Method:
    """Return BNP with its default constants, on the network without norms."""
    return Method("BNP", lr, optimizer="bnp")


def _momentum(bench: Workbench) -> float:
    return bench.choose(smoke=0.1, laptop=0.1, paper=0.01)


def dense(images: Images, hidden: str = "100,100,100") -> str:
    """Return the dense network of those hidden layers, for flattened images."""
    return f"sample:mlp?hidden={hidden}&in_features={images.features}"


def cnn(bench: Workbench, images: Images) -> str:
    """Return the 5-layer network: 32-64-32 channels and two dense layers."""
    channels = bench.choose(smoke="4,8,4", laptop="32,64,32", paper="32,64,32")
    return f"sample:cnn?channels={channels}&{images.options}"
