from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from saved_checkpoints import make_net, make_optimiser
from torch import nn

from landscape_cli.checkpoints import load_into, read
from landscape_cli.errors import CheckpointError


def saved(tree, folder):
    torch.save(tree, folder / "a.pt")
    return folder / "a.pt"


@pytest.mark.parametrize(
    "key",
    ["state_dict", "model_state_dict", "model", "module", "network", "net", "params", "weights"],
)
def test_weights_are_found_under_the_usual_keys(key, net, tmp_path):
    optimiser = make_optimiser(net).state_dict()
    tree = {"epoch": 3, "optimizer": optimiser, "mean": torch.ones(1), key: net.state_dict()}
    assert list(read(saved(tree, tmp_path)).tensors) == list(net.state_dict())


def test_weights_under_an_unusual_key_are_found_and_it_is_said(net, tmp_path):
    tree = {"student": net.state_dict(), "optimizer": make_optimiser(net).state_dict()}
    checkpoint = read(saved(tree, tmp_path))
    assert list(checkpoint.tensors) == list(net.state_dict())
    assert checkpoint.notes == ("the weights are those under 'student'",)


def test_several_sets_of_weights_can_each_be_chosen(tmp_path):
    first, second = nn.Linear(2, 2), nn.Linear(3, 3)
    path = saved({"generator": first.state_dict(), "critic": second.state_dict()}, tmp_path)
    assert read(path).variants == ("generator", "critic")
    assert set(read(path).tensors) == {
        "generator.weight", "generator.bias", "critic.weight", "critic.bias"
    }  # fmt: skip
    load_into(second, read(path, weights="critic"))


def test_the_parts_of_a_model_saved_one_by_one_are_put_together(tmp_path):
    model = nn.ModuleDict({"encoder": nn.Linear(2, 3), "head": nn.Linear(3, 1)})
    path = saved({name: part.state_dict() for name, part in model.items()}, tmp_path)
    load_into(model, read(path))


def test_deeply_nested_parameters_are_named_by_their_path(tmp_path):
    path = saved(
        {"params": {"dense": {"kernel": torch.ones(2)}, "out": {"w": torch.ones(1)}}}, tmp_path
    )
    assert list(read(path).tensors) == ["dense.kernel", "out.w"]


def test_a_tensor_called_weights_does_not_hide_the_others(tmp_path):
    path = saved({"weights": torch.ones(2), "bias": torch.ones(1)}, tmp_path)
    assert list(read(path).tensors) == ["weights", "bias"]


def test_a_module_keeps_what_it_saves_and_drops_what_it_does_not(net, tmp_path):
    net.head = None
    net.register_parameter("absent", None)
    names = list(read(saved(net, tmp_path)).tensors)
    assert names == list(net.state_dict())
    assert "scratch" not in names


def test_a_module_used_twice_appears_under_both_names(tmp_path):
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert list(read(saved(model, tmp_path)).tensors) == list(model.state_dict())


def test_parametrised_modules_give_their_originals(tmp_path):
    model = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    state = model.state_dict()
    path = saved(OrderedDict(state), tmp_path)
    assert list(read(path).tensors) == list(state)


class Holder:
    def __init__(self, net) -> None:
        self.model = net
        self.best = 0.5


def test_a_module_in_an_object_of_an_unknown_class_is_found(net, tmp_path):
    assert list(read(saved(Holder(net), tmp_path)).tensors) == list(net.state_dict())


def test_the_class_of_a_module_is_told(net, tmp_path):
    from landscape_cli.checkpoints import inspect

    assert inspect(saved(net, tmp_path)).family == "saved_checkpoints.Net"


@pytest.mark.parametrize("key", ["ema", "state_dict_ema", "model_ema", "ema_model"])
def test_averaged_weights_under_a_key_are_a_variant(key, net, tmp_path):
    path = saved({"model": net.state_dict(), key: make_net(1).state_dict()}, tmp_path)
    averaged = read(path, weights="ema").tensors
    assert torch.equal(averaged["conv.weight"], make_net(1).conv.weight)
    assert torch.equal(read(path).tensors["conv.weight"], net.conv.weight)


def test_averaged_weights_within_an_averaging_object_are_a_variant(net, tmp_path):
    ema = {"decay": 0.99, "num_updates": 7, "shadow": make_net(1).state_dict()}
    path = saved({"model": net, "ema": ema}, tmp_path)
    assert list(read(path, weights="ema").tensors) == list(net.state_dict())


def test_averaged_weights_alone_are_the_weights_and_it_is_said(net, tmp_path):
    checkpoint = read(saved({"model": None, "ema": net}, tmp_path))
    assert list(checkpoint.tensors) == list(net.state_dict())
    assert checkpoint.notes == ("the weights are the averaged ones: the file holds no others",)


@pytest.mark.parametrize("dotted", [True, False])
def test_averaged_copies_among_the_weights_take_the_names_of_their_originals(dotted, net, tmp_path):
    plain = {f"model.{name}": tensor for name, tensor in net.state_dict().items()}
    copies = {
        "model_ema." + (name if dotted else name.replace(".", "")): tensor + 1
        for name, tensor in net.named_parameters()
    }
    tree = {"state_dict": {**plain, **copies, "model_ema.decay": torch.tensor(0.9)}}
    path = saved(tree, tmp_path)
    checkpoint = read(path)
    assert checkpoint.variants == ("ema", "all")
    assert set(checkpoint.tensors) == set(plain)
    averaged = read(path, weights="ema").tensors
    assert set(averaged) == set(plain)
    assert torch.equal(averaged["model.conv.weight"], net.conv.weight + 1)
    assert torch.equal(averaged["model.norm.running_mean"], net.norm.running_mean)
    assert len(read(path, weights="all").tensors) == len(tree["state_dict"])
    assert "--weights ema" in checkpoint.notes[0]


def test_low_rank_tensors_are_a_variant(tmp_path):
    names = ["base.weight", "base.lora_A.default.weight", "base.lora_B.default.weight"]
    path = saved({name: torch.ones(2) for name in names}, tmp_path)
    assert read(path).variants == ("lora",)
    assert list(read(path).tensors) == names
    assert list(read(path, weights="lora").tensors) == names[1:]


def test_low_rank_tensors_alone_are_the_weights(tmp_path):
    path = saved({"a.lora_A.weight": torch.ones(2), "a.lora_B.weight": torch.ones(2)}, tmp_path)
    assert read(path).variants == ()


def test_values_nested_in_themselves_come_to_an_end(tmp_path):
    tree: dict[str, object] = {"w": 1}
    tree["model"] = tree["other"] = tree
    with pytest.raises(CheckpointError):
        read(saved(tree, tmp_path))


def test_modules_nested_in_themselves_come_to_an_end(net, tmp_path):
    net._modules["self"] = net
    with pytest.raises(CheckpointError) as error:
        read(saved(net, tmp_path))
    assert "without end" in error.value.seen


def test_values_shared_without_end_come_to_an_end(tmp_path):
    tree: dict[str, object] = {"w": torch.ones(1)}
    for _ in range(40):
        tree = {"a": tree, "b": tree}
    with pytest.raises(CheckpointError) as error:
        read(saved(tree, tmp_path))
    assert "without end" in error.value.seen


def test_averages_in_parts_do_not_add_variants(net, tmp_path):
    parts = {"a": net.conv.state_dict(), "b": net.norm.state_dict()}
    path = saved({"model": net.state_dict(), "ema": parts}, tmp_path)
    assert read(path).variants == ("ema",)


def test_a_long_list_of_tensors_is_kept_whole(tmp_path):
    path = saved([torch.ones(1)] * 1500, tmp_path)
    assert len(read(path).tensors) == 1500
