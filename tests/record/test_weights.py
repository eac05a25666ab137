"""What of a model a checkpoint holds: ties, views, wrappers, and what is refused."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel
from torch.optim.swa_utils import AveragedModel

from landscape_cli.errors import CheckpointError
from landscape_cli.record.weights import Weights


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


class Tied(nn.Module):
    """An embedding whose weight is also the output's."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.output = nn.Linear(3, 5, bias=False)
        self.output.weight = self.embedding.weight


class Odd(nn.Module):
    """Buffers that are views of one another, transposed, empty or not kept."""

    def __init__(self):
        super().__init__()
        base = torch.arange(12.0).reshape(3, 4)
        self.register_buffer("base", base)
        self.register_buffer("row", base[1])
        self.register_buffer("transposed", base.T)
        self.register_buffer("spread", torch.ones(1).expand(3))
        self.register_buffer("first_empty", torch.empty(0))
        self.register_buffer("second_empty", torch.empty(0))
        self.register_buffer("forgotten", torch.ones(2), persistent=False)


class Extra(nn.Linear):
    def get_extra_state(self):
        return {"version": 3}


def test_parameters_and_persistent_buffers_are_kept_by_their_names():
    model = net()
    weights = Weights.of(model)
    assert list(weights.tensors) == list(model.state_dict())
    assert all(torch.equal(weights.tensors[name], t) for name, t in model.state_dict().items())
    assert not weights.tied


def test_a_tied_pair_is_kept_once_and_the_twin_is_named():
    weights = Weights.of(Tied())
    assert list(weights.tensors) == ["embedding.weight"]
    assert weights.tied == {"output.weight": "embedding.weight"}


def test_equal_values_in_different_memory_are_no_twins():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].load_state_dict(model[0].state_dict())
    assert not Weights.of(model).tied


def test_views_of_one_memory_come_apart_with_their_values():
    model = Odd()
    weights = Weights.of(model)
    assert set(weights.tensors) == set(model.state_dict())
    assert not weights.tied
    storages = [t.untyped_storage().data_ptr() for t in weights.tensors.values() if t.numel()]
    assert len(set(storages)) == len(storages)
    for name, tensor in model.state_dict().items():
        assert torch.equal(weights.tensors[name], tensor)
        assert weights.tensors[name].is_contiguous()


@pytest.mark.parametrize(
    "wrap",
    [
        DataParallel,
        AveragedModel,
        lambda model: torch.compile(model, backend="eager"),
        lambda model: torch.compile(DataParallel(model), backend="eager"),
        lambda model: DataParallel(torch.compile(model, backend="eager")),
    ],
)
def test_wrappers_leave_no_trace_in_the_names(wrap):
    model = net()
    weights = Weights.of(wrap(model))
    assert list(weights.tensors) == list(model.state_dict())


def test_a_compiled_part_leaves_no_trace_in_the_names():
    model = net()
    names = list(model.state_dict())
    model[0] = torch.compile(model[0], backend="eager")
    assert list(Weights.of(model).tensors) == names


def test_a_submodule_that_is_called_module_keeps_its_name():
    model = nn.ModuleDict({"module": nn.Linear(2, 2)})
    assert list(Weights.of(model).tensors) == ["module.weight", "module.bias"]


def test_state_that_is_no_tensor_is_left_out():
    assert list(Weights.of(Extra(2, 2)).tensors) == ["weight", "bias"]


def test_a_tensor_without_numbers_is_refused():
    with torch.device("meta"):
        model = net()
    with pytest.raises(CheckpointError, match="not whole in this process") as caught:
        Weights.of(model)
    assert "meta device" in caught.value.seen
