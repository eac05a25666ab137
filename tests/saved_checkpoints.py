"""One small network, and every way in which its weights are saved."""

from __future__ import annotations

import argparse
import json
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn

STEP, RATE = 1200, 0.0375


class Net(nn.Module):
    """Convolution, batch norm and a tied pair, with a buffer that is not saved."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.encode = nn.Linear(width, 5)
        self.decode = nn.Linear(width, 5)
        self.decode.weight = self.encode.weight
        self.register_buffer("scratch", torch.zeros(7), persistent=False)

    def forward(self, x):
        hidden = self.norm(self.conv(x)).mean(dim=(2, 3))
        return self.encode(hidden) + self.decode(hidden)


class HyperConfig:
    """Stands for OmegaConf and its like: a class that the reader cannot know."""

    def __init__(self) -> None:
        self._content = {"lr": 0.1, "nested": {"a": [1, 2]}}

    def __setstate__(self, state) -> None:
        raise AssertionError("the state of an unknown class was set")


def make_net(seed: int = 0, width: int = 3) -> Net:
    torch.manual_seed(seed)
    net = Net(width)
    net(torch.randn(4, 1, 6, 6)).sum().backward()
    return net


def make_optimiser(net: nn.Module) -> torch.optim.Optimizer:
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE)
    optimiser.step()
    return optimiser


def _write_safetensors(net: Net, folder: Path) -> Path:
    path = folder / "model-a.safetensors"
    metadata = {"training_step": str(STEP), "learning_rate": repr(RATE)}
    save_file(_untied(net), path, metadata=metadata)
    return path


def _untied(net: Net) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def _write_sharded(net: Net, folder: Path) -> Path:
    state = _untied(net)
    names = list(state)
    weight_map = {}
    for shard in range(2):
        file = f"model-0000{shard + 1}-of-00002.safetensors"
        save_file({name: state[name] for name in names[shard::2]}, folder / file)
        weight_map.update(dict.fromkeys(names[shard::2], file))
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def _write_sharded_bin(net: Net, folder: Path) -> Path:
    state = net.state_dict()
    names = list(state)
    for shard in range(2):
        torch.save({name: state[name] for name in names[shard::2]}, folder / f"part-{shard}.bin")
    weight_map = {name: f"part-{i % 2}.bin" for i, name in enumerate(names)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"model_type": "tiny"}))
    return folder


def _saver(name: str, make: Callable[[Net], object], **options) -> Callable[[Net, Path], Path]:
    def write(net: Net, folder: Path) -> Path:
        torch.save(make(net), folder / name, **options)
        return folder / name

    return write


def _lightning(net: Net) -> dict[str, object]:
    return {
        "epoch": 3,
        "global_step": np.int64(STEP),
        "pytorch-lightning_version": "2.4.0",
        "state_dict": {f"net.{name}": tensor for name, tensor in net.state_dict().items()},
        "optimizer_states": [make_optimiser(net).state_dict()],
        "lr_schedulers": [],
        "callbacks": {"EarlyStopping{'monitor': 'loss'}": {"best": torch.tensor(0.5)}},
        "hyper_parameters": {
            "root": Path("/data/x"),
            "flags": argparse.Namespace(width=3, deep={"a": (1, 2)}),
            "lr": np.float64(0.1),
            "config": HyperConfig(),
            "dtype": torch.float32,
            "device": torch.device("cpu"),
            "array": np.arange(3),
        },
    }


def _nested(net: Net) -> dict[str, object]:
    optimiser = make_optimiser(net)
    return {"step": STEP, "model": net.state_dict(), "optimizer": optimiser.state_dict()}


def _write_pickle(net: Net, folder: Path) -> Path:
    (folder / "plain.pth").write_bytes(pickle.dumps(OrderedDict(net.state_dict())))
    return folder / "plain.pth"


def _write_hugging_face(net: Net, folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "tiny"}))
    save_file(_untied(net), folder / "model.safetensors", metadata={"format": "pt"})
    torch.save({name: tensor + 1 for name, tensor in net.state_dict().items()}, folder / "x.bin")
    (folder / "x.bin").rename(folder / "pytorch_model.bin")
    torch.save(make_optimiser(make_net()).state_dict(), folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": STEP}))
    return folder


def _write_distributed(net: Net, folder: Path) -> Path:
    state = {
        "app": {"model": net.state_dict(), "optimizer": make_optimiser(make_net()).state_dict()},
        "step": STEP,
    }
    save_distributed({**state.pop("app"), **state}, folder)
    return folder


def save_distributed(state: dict[str, object], folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it saves from a single process
        dcp.save(state, checkpoint_id=folder)


WRITERS: dict[str, Callable[[Net, Path], Path]] = {
    "safetensors": _write_safetensors,
    "sharded safetensors": _write_sharded,
    "sharded bin": _write_sharded_bin,
    "plain": _saver("a.pt", lambda net: net.state_dict()),
    "plain, keys in a list": _saver("a.pt", lambda net: [net.state_dict(), {"lr": 0.1}]),
    "legacy": _saver("a.pt", lambda net: net.state_dict(), _use_new_zipfile_serialization=False),
    "legacy, protocol 4": _saver(
        "a.pt", _nested, _use_new_zipfile_serialization=False, pickle_protocol=4
    ),
    "nested": _saver("a.pth", _nested),
    "nested twice": _saver("a.pth", lambda net: {"model": {"state_dict": net.state_dict()}}),
    "parameters": _saver("a.pt", lambda net: net.state_dict(keep_vars=True)),
    "lightning": _saver("a.ckpt", _lightning),
    "whole module": _saver("a.pt", lambda net: net),
    "whole module, legacy": _saver("a.pt", lambda net: net, _use_new_zipfile_serialization=False),
    "module in a dictionary": _saver("a.bin", lambda net: {"net": net, "epoch": 3}),
    "module in a wrapper": _saver("a.pt", nn.DataParallel),
    "protocol 5": _saver("a.pt", lambda net: net, pickle_protocol=5),
    "pickled without torch.save": _write_pickle,
    "hugging face": _write_hugging_face,
    "distributed": _write_distributed,
}
