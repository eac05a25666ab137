"""Networks and data as users write them, for ``FILE.py:FACTORY`` specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

WORDS = 13
IGNORED = -100


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Speaker(nn.Module):
    """A language model: embedding, two layers of LSTM, scores of shape (batch, tokens, words)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.memory = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.memory(self.embed(tokens))[0])


def make_lstm(width: int = 6) -> nn.Module:
    return Speaker(width)


class UNet(nn.Module):
    """One step down and one up, with a skip and BatchNorm; scores per pixel."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width))
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.leave = nn.Conv2d(2 * width, classes, 1)

    def forward(self, picture: Tensor) -> Tensor:
        skipped = torch.tanh(self.enter(picture))
        deep = torch.tanh(self.down(skipped))
        return self.leave(torch.cat([skipped, self.up(deep)], dim=1))


def make_unet(width: int = 3) -> nn.Module:
    return UNet(width, classes=3)


@dataclass
class Graphs:
    """Several graphs in one: nodes, edges between them, which graph a node is in, and answers."""

    nodes: Tensor
    edges: Tensor
    graph: Tensor
    y: Tensor

    @property
    def num_graphs(self) -> int:
        return len(self.y)


class MessagePassing(nn.Module):
    """Two rounds of sums over neighbours, then the mean over each graph's nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(2, width)
        self.own = nn.Linear(width, width)
        self.message = nn.Linear(width, width, bias=False)
        self.leave = nn.Linear(width, 2)

    def forward(self, nodes: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        state = torch.tanh(self.enter(nodes))
        for _ in range(2):
            received = torch.zeros_like(state).index_add(0, edges[1], self.message(state)[edges[0]])
            state = torch.tanh(self.own(state) + received)
        count = int(graph.max()) + 1
        sizes = torch.bincount(graph, minlength=count).unsqueeze(1)
        whole = torch.zeros(count, state.shape[1], dtype=state.dtype, device=state.device)
        return self.leave(whole.index_add(0, graph, state) / sizes)


def make_graph_net(width: int = 5) -> nn.Module:
    return MessagePassing(width)


def open_graphs() -> list[Graphs]:
    """Return three and two graphs of four nodes, each a ring."""
    batches = []
    for seed, count in ((0, 3), (1, 2)):
        nodes = torch.randn(4 * count, 2, generator=_generator(seed))
        start = torch.arange(4 * count)
        end = start // 4 * 4 + (start + 1) % 4
        edges = torch.stack([torch.cat([start, end]), torch.cat([end, start])])
        batches.append(Graphs(nodes, edges, start // 4, torch.arange(count) % 2))
    return batches


class Speech(NamedTuple):
    """A batch whose fields have names."""

    tokens: Tensor
    target: Tensor


def open_speech() -> list[Speech]:
    """Return two batches; of the second, half of the answers do not count."""
    batches = []
    for seed in range(2):
        tokens = torch.randint(WORDS, (3, 6), generator=_generator(seed))
        target = tokens.roll(-1, 1)
        target[:, -1 if seed == 0 else 3 :] = IGNORED
        batches.append(Speech(tokens[:, :], target))
    return batches


def open_pictures(channels: int = 3, side: int = 32, classes: int = 3) -> Dataset:
    """Return twelve pictures with classes."""
    pictures = torch.randn(12, channels, side, side, generator=_generator(2))
    return TensorDataset(pictures, torch.arange(12) % classes)


def open_masks() -> Dataset:
    """Return six pictures with a class per pixel."""
    pictures = torch.randn(6, 1, 8, 8, generator=_generator(3))
    return TensorDataset(pictures, (pictures[:, 0] > 0).long() + (pictures[:, 0] > 1).long())


def open_tokens() -> list[dict[str, Tensor]]:
    """Return two batches as language models of transformers take them, of unequal labels."""
    batches = []
    for seed in range(2):
        tokens = torch.randint(3, WORDS, (3, 7), generator=_generator(seed + 10))
        labels = tokens.clone()
        labels[0, : 2 + 3 * seed] = IGNORED
        labels[2, 1 + seed] = IGNORED
        attention = torch.ones_like(tokens)
        batches.append({"input_ids": tokens, "attention_mask": attention, "labels": labels})
    return batches


def smooth_entropy(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A loss of the user's own."""
    return F.cross_entropy(output, batch[1], label_smoothing=0.1)
