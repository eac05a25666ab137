"""Guesses, from the names and shapes of tensors, of the model that they belong to.

Nothing is concluded from a guess but the `probe` command that `inspect` proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]

_RESNETS: dict[tuple[tuple[int, ...], bool], str] = {
    ((2, 2, 2, 2), False): "resnet18",
    ((3, 4, 6, 3), False): "resnet34",
    ((3, 4, 6, 3), True): "resnet50",
    ((3, 4, 23, 3), True): "resnet101",
    ((3, 8, 36, 3), True): "resnet152",
}
_VGGS = {8: "vgg11", 10: "vgg13", 13: "vgg16", 16: "vgg19"}
_VISION_TRANSFORMERS = {192: "tiny", 384: "small", 768: "base", 1024: "large", 1280: "huge"}


@dataclass(frozen=True)
class Guess:
    """What a checkpoint seems to be of.

    Attributes:
        family: a name for people, such as ``torchvision resnet18``.
        model: a model spec to start from, empty where none is known.
    """

    family: str
    model: str = ""


@dataclass(frozen=True)
class _Family:
    """A tensor that gives the family away, and what to make of the others."""

    anchor: str
    guess: Callable[[Shapes], Guess | None]


def guess(shapes: Shapes) -> Guess | None:
    """Return the model that tensors of these names and shapes belong to, None if unknown."""
    for family in _FAMILIES:
        for name in shapes:
            if name == family.anchor or name.endswith(f".{family.anchor}"):
                prefix = name.removesuffix(family.anchor)
                inner = {key.removeprefix(prefix): shape for key, shape in shapes.items()}
                found = family.guess(inner)
                if found is not None:
                    return found
    return None


def _resnet(shapes: Shapes) -> Guess | None:
    if "conv1.weight" not in shapes or "bn1.weight" not in shapes:
        return None
    depths = tuple(_count(shapes, f"layer{stage}.") for stage in (1, 2, 3, 4))
    name = _RESNETS.get((depths, "layer1.0.conv3.weight" in shapes))
    if name is None or "fc.weight" not in shapes:
        return Guess("ResNet")
    return Guess(f"torchvision {name}", _with_classes(f"torchvision:{name}", shapes["fc.weight"]))


def _vgg(shapes: Shapes) -> Guess | None:
    convolutions = sum(
        len(shape) == 4 for name, shape in shapes.items() if name.startswith("features.")
    )
    name = _VGGS.get(convolutions)
    if name is None or "classifier.6.weight" not in shapes:
        return None
    normalised = any(n.startswith("features.") and n.endswith("running_mean") for n in shapes)
    name += "_bn" if normalised else ""
    spec = _with_classes(f"torchvision:{name}", shapes["classifier.6.weight"])
    return Guess(f"torchvision {name}", spec)


def _timm_transformer(shapes: Shapes) -> Guess | None:
    patches = shapes.get("patch_embed.proj.weight", ())
    positions = shapes.get("pos_embed", ())
    if len(patches) != 4 or len(positions) != 3:
        return None
    size = _VISION_TRANSFORMERS.get(patches[0])
    if size is None or "head.weight" not in shapes:
        return Guess("timm vision transformer")
    side = round(max(0, positions[1] - 1) ** 0.5) * patches[-1]
    name = f"vit_{size}_patch{patches[-1]}_{side}"
    return Guess(f"timm {name}", _with_classes(f"timm:{name}", shapes["head.weight"]))


def _torchvision_transformer(shapes: Shapes) -> Guess | None:
    patches = shapes.get("conv_proj.weight", ())
    size = {768: "b", 1024: "l", 1280: "h"}.get(patches[0] if patches else 0)
    if size is None or "heads.head.weight" not in shapes:
        return Guess("torchvision vision transformer")
    name = f"vit_{size}_{patches[-1]}"
    spec = _with_classes(f"torchvision:{name}", shapes["heads.head.weight"])
    return Guess(f"torchvision {name}", spec)


def _named(family: str) -> Callable[[Shapes], Guess]:
    return lambda _: Guess(family)


def _count(shapes: Shapes, prefix: str) -> int:
    return len({name.split(".")[1] for name in shapes if name.startswith(prefix)})


def _with_classes(spec: str, head: tuple[int, ...]) -> str:
    return f"{spec}?num_classes={head[0]}" if head else spec


_FAMILIES = (
    _Family("layer1.0.conv1.weight", _resnet),
    _Family("features.0.weight", _vgg),
    _Family("patch_embed.proj.weight", _timm_transformer),
    _Family("conv_proj.weight", _torchvision_transformer),
    _Family("h.0.attn.c_attn.weight", _named("GPT-2")),
    _Family("layers.0.self_attn.q_proj.weight", _named("Llama-like language model")),
    _Family("encoder.layer.0.attention.self.query.weight", _named("BERT-like encoder")),
    _Family("encoder.block.0.layer.0.SelfAttention.q.weight", _named("T5-like encoder-decoder")),
    _Family("lstm.weight_ih_l0", _named("LSTM")),
)
