"""Tiny networks of every kind, probed through their specs, against a plain float64 loop."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import landscape_cli as landscape
from landscape_cli import batches
from landscape_cli.adapters.building import build_data, build_model

NETS = Path(__file__).with_name("nets.py")
MULTIPLES = (0.5, 1.0, 2.0)
RATE = 0.05
IGNORED = -100

VIT = "image_size=32&patch_size=8&num_layers=2&num_heads=2&hidden_dim=16&mlp_dim=24&num_classes=3"
TIMM = "img_size=32&patch_size=8&depth=2&embed_dim=16&num_heads=2&num_classes=3"
IDS = "bos_token_id=1&eos_token_id=2&pad_token_id=0"
GPT2 = f"n_layer=2&n_embd=16&n_head=2&n_positions=8&vocab_size=13&{IDS}"
GPT2 += "&resid_pdrop=0.0&embd_pdrop=0.0&attn_pdrop=0.0"
LLAMA = "num_hidden_layers=2&hidden_size=16&num_attention_heads=2&num_key_value_heads=1"
LLAMA += f"&intermediate_size=24&max_position_embeddings=8&vocab_size=13&{IDS}"
BERT = "num_hidden_layers=2&hidden_size=16&num_attention_heads=2&intermediate_size=24"
BERT += "&max_position_embeddings=8&vocab_size=13&pad_token_id=0"
BERT += "&hidden_dropout_prob=0.0&attention_probs_dropout_prob=0.0"
T5 = "num_layers=1&d_model=16&num_heads=2&d_kv=8&d_ff=24&vocab_size=13&dropout_rate=0.0"

Total = Callable[[nn.Module, Any], tuple[Tensor, int]]


def classes(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    images, target = batch
    output = model(images)
    return F.cross_entropy(output, target, reduction="sum"), target.numel()


def smooth_classes(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    images, target = batch
    loss = F.cross_entropy(model(images), target, label_smoothing=0.1, reduction="sum")
    return loss, len(target)


def speech(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    scores = model(batch.tokens).flatten(0, 1)
    labels = batch.target.flatten()
    return F.cross_entropy(scores, labels, reduction="sum"), int((labels != IGNORED).sum())


def graphs(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
    output = model(batch.nodes, batch.edges, batch.graph)
    return F.cross_entropy(output, batch.y, reduction="sum"), len(batch.y)


def tokens(shift: bool) -> Total:
    """Return the loss over tokens from the scores alone: the model's own loss is not used."""

    def total(model: nn.Module, batch: Any) -> tuple[Tensor, int]:
        scores, labels = model(**batch).logits, batch["labels"]
        if shift:
            scores, labels = scores[:, :-1], labels[:, 1:]
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
        return loss, int((labels != IGNORED).sum())

    return total


@dataclass(frozen=True)
class Case:
    """A network by its spec, data that it takes, and the sum of the loss over a batch by hand."""

    model: str
    data: str
    total: Total
    needs: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    rtol: float = 1e-8
    smooth: bool = True


VISION = {"batch_size": 5, "batches": 2}
OWN = {"batches": 2, "loss": "model"}
HF = ("transformers", "datasets")
SINGLE = 1e-5
"""These two normalise in float32 whatever their type is."""

CASES = {
    "torchvision ResNet": Case(
        "torchvision:ResNet?block=Bottleneck&layers=(1,1,1,1)&width_per_group=2&num_classes=3",
        "open_pictures",
        classes,
        ("torchvision",),
        VISION,
        rtol=1e-6,  # BatchNorm over five samples: a large curvature magnifies rounding
        smooth=False,
    ),
    "torchvision ViT": Case(
        f"torchvision:VisionTransformer?{VIT}", "open_pictures", classes, ("torchvision",), VISION
    ),
    "timm ViT": Case(
        f"timm:vit_tiny_patch16_224?{TIMM}", "open_pictures", classes, ("timm",), VISION
    ),
    "timm ViT with the user's own loss": Case(
        f"timm:vit_tiny_patch16_224?{TIMM}",
        "open_pictures",
        smooth_classes,
        ("timm",),
        {**VISION, "loss": f"{NETS}:smooth_entropy"},
    ),
    "GPT-2": Case(f"hf:gpt2?{GPT2}", "open_tokens", tokens(shift=True), HF, OWN),
    "Llama": Case(f"hf:llama?{LLAMA}", "open_tokens", tokens(shift=True), HF, OWN, SINGLE),
    "BERT": Case(f"hf:bert?{BERT}", "open_tokens", tokens(shift=False), HF, OWN),
    "T5": Case(f"hf:t5?{T5}", "open_tokens", tokens(shift=False), HF, OWN, SINGLE),
    "LSTM": Case("make_lstm", "open_speech", speech, (), {"batches": 2}),
    "U-Net": Case("make_unet", "open_masks", classes, (), {"batch_size": 4, "batches": 2}),
    "graph net": Case("make_graph_net", "open_graphs", graphs, (), {"batches": 2}),
}


class PlainLoop:
    """L and its gradient over batches, one backward pass after another, in float64."""

    def __init__(self, model: nn.Module, drawn: Sequence[Any], total: Total) -> None:
        self.model = copy.deepcopy(model).double().train()
        self.start = [p.detach().clone() for p in self.model.parameters()]
        self.total = total
        self.batches = [batches.map_tensors(batch, _doubled) for batch in drawn]

    def at(self, direction: Sequence[Tensor], size: float) -> tuple[float, list[Tensor]]:
        """Return L and ∇L where θ = θ₀ − size · direction."""
        parameters = list(self.model.parameters())
        with torch.no_grad():
            for parameter, start, along in zip(parameters, self.start, direction, strict=True):
                parameter.copy_(start - size * along)
        self.model.zero_grad()
        losses, terms = zip(*(self.total(self.model, batch) for batch in self.batches), strict=True)
        loss = sum(losses) / sum(terms)
        loss.backward()
        return float(loss.detach()), [_gradient(parameter) for parameter in parameters]

    def central_difference(self, reach: float) -> float:
        """Return ‖H g‖ ÷ ‖g‖ from gradients on both sides of θ₀, `reach` away."""
        _, gradient = self.at(self.start, 0.0)
        length = distance(gradient, [torch.zeros_like(g) for g in gradient])
        sides = [self.at(gradient, size / length)[1] for size in (-reach, reach)]
        return distance(*sides) / (2 * reach)

    def second_derivative(self) -> float:
        """Return ‖H g‖ ÷ ‖g‖ by differentiating the gradient, where θ₀ lies next to a kink."""
        self.at(self.start, 0.0)
        parameters = list(self.model.parameters())
        losses, terms = zip(*(self.total(self.model, batch) for batch in self.batches), strict=True)
        gradient = torch.autograd.grad(sum(losses) / sum(terms), parameters, create_graph=True)
        fixed = [g.detach() for g in gradient]
        slope = sum((g * v).sum() for g, v in zip(gradient, fixed, strict=True))
        zeros = [torch.zeros_like(g) for g in fixed]
        return distance(torch.autograd.grad(slope, parameters), zeros) / distance(fixed, zeros)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def distance(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in zip(first, second, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_a_probe_agrees_with_a_plain_loop(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for package in case.needs:
        pytest.importorskip(package, reason=f"{package} is not installed")
    spec = case.model if ":" in case.model else f"{NETS}:{case.model}"
    data = f"{NETS}:{case.data}"
    torch.manual_seed(1)
    model = build_model(spec)
    torch.save(model.state_dict(), tmp_path / "start.pt")
    run = landscape.probe(
        tmp_path / "start.pt",
        model=spec,
        data=data,
        lr=RATE,
        steps="0.5:2:3",
        dtype="float64",
        **case.settings,
    )
    assert run.complete
    settings = {"batch_size": 128, **case.settings}
    drawn = batches.draw(build_data(data), settings["batch_size"], settings["batches"], seed=0)
    assert len(drawn.batches) == 2
    loop = PlainLoop(model, drawn.batches, case.total)
    _compare_line(run, loop, case.rtol)
    limit = run["effective_smoothness/limit"][0, 0]
    if case.smooth:
        # A central difference is off by the order of its distance's square, but for what is in
        # float32 inside, whose rounding of 1e-7 it divides by the distance.
        assert limit == pytest.approx(loop.central_difference(1e-4), rel=max(1e3 * case.rtol, 1e-3))
    else:
        assert limit == pytest.approx(loop.second_derivative(), rel=1e-6)


def _compare_line(run: landscape.Run, loop: PlainLoop, rtol: float) -> None:
    still = [torch.zeros_like(start) for start in loop.start]
    base, gradient = loop.at(still, 0.0)
    length = distance(gradient, still)
    losses, changes = [], []
    for multiple in MULTIPLES:
        loss, there = loop.at(gradient, RATE * multiple)
        losses.append(loss)
        changes.append(distance(there, gradient))
    moved = RATE * length * np.array(MULTIPLES)
    # In float64 what differs is the order of sums, and kernels for several points at once.
    assert run["base_loss"][0] == pytest.approx(base, rel=rtol)
    assert run["gradient_norm"][0] == pytest.approx(length, rel=rtol)
    np.testing.assert_allclose(run["loss"][0, 0], losses, rtol=rtol)
    np.testing.assert_allclose(run["gradient_change"][0, 0], changes, rtol=100 * rtol)
    np.testing.assert_allclose(run["distance"][0, 0], moved, rtol=rtol)
    assert np.isfinite(run["effective_smoothness/beta"]).all()


def test_pictures_from_shards_and_a_torchvision_model_are_probed_together(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    tarfile = pytest.importorskip("tarfile")
    pytest.importorskip("landscape_webdataset", reason="landscape-webdataset is not installed")
    import io

    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        for number in range(6):
            buffer = io.BytesIO()
            generator = np.random.default_rng(number)
            np.save(buffer, generator.standard_normal((3, 32, 32)).astype(np.float32))
            for suffix, content in (("npy", buffer.getvalue()), ("cls", b"%d" % (number % 3))):
                info = tarfile.TarInfo(f"{number}.{suffix}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    spec = f"torchvision:VisionTransformer?{VIT}"
    torch.manual_seed(0)
    torch.save(build_model(spec).state_dict(), tmp_path / "start.pt")
    run = landscape.probe(
        tmp_path / "start.pt",
        model=spec,
        data=f"webdataset:{tmp_path}",
        lr=RATE,
        steps="1:2:2",
        batch_size=6,
    )
    assert run.complete
    assert np.isfinite(run["loss"]).all()
