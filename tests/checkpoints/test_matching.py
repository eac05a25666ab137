from __future__ import annotations

import pytest
import torch
from saved_checkpoints import make_net
from torch import nn

from landscape_cli.checkpoints import Checkpoint, CheckpointInfo, load_into, match
from landscape_cli.errors import CheckpointError


def checkpoint(tensors, notes=()) -> Checkpoint:
    return Checkpoint(CheckpointInfo("x", "x", "torch"), tensors, notes=notes)


def renamed(net: nn.Module, change) -> dict[str, torch.Tensor]:
    return {change(name): tensor for name, tensor in net.state_dict().items()}


def equal(model: nn.Module, other: nn.Module) -> bool:
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture
def other():
    return make_net(seed=9)


def test_names_that_fit_are_taken_as_they_are_without_a_note(net, other):
    assert load_into(other, checkpoint(net.state_dict())) == []
    assert equal(other, net)


@pytest.mark.parametrize(
    "prefix",
    [
        "module.",
        "_orig_mod.",
        "model.",
        "_fsdp_wrapped_module.",
        "net.",
        "a.b.c.",
        "module._orig_mod.",
        "_orig_mod.module.",
        "model.module._orig_mod.",
        "module.module.",
        "_forward_module.model.",
        "model.model.",
    ],
)
def test_prefixes_of_wrappers_are_matched_away_and_said(prefix, net, other):
    notes = load_into(other, checkpoint(renamed(net, lambda name: prefix + name)))
    assert equal(other, net)
    (note,) = notes
    assert note.startswith("names matched without")
    assert any(part in note for part in prefix.split(".") if part)


def test_wrappers_within_the_names_are_matched_away(net, other):
    def change(name: str) -> str:
        head, _, tail = name.partition(".")
        return f"module.{head}._fsdp_wrapped_module._checkpoint_wrapped_module.{tail}"

    notes = load_into(other, checkpoint(renamed(net, change)))
    assert equal(other, net)
    assert notes == [
        "names matched without _checkpoint_wrapped_module., _fsdp_wrapped_module., module."
    ]


class Compiled(nn.Module):
    """Keeps a module as torch.compile does, which takes seconds to import."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod = module


@pytest.mark.parametrize("wrap", [nn.DataParallel, Compiled])
def test_a_wrapped_model_takes_bare_names(wrap, net, other):
    notes = load_into(wrap(other), checkpoint(net.state_dict()))
    assert equal(other, net)
    assert notes[0].startswith("names matched under")


def test_a_wrapped_model_takes_names_with_another_wrapper(net, other):
    names = renamed(net, lambda name: "_orig_mod." + name)
    load_into(nn.DataParallel(other), checkpoint(names))
    assert equal(other, net)


def test_a_prefix_that_the_model_has_is_added():
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
            self.lm_head = nn.Linear(3, 4, bias=False)
            self.lm_head.weight = self.transformer[1].weight

    source, target = Head(), Head()
    bare = source.transformer.state_dict()
    notes = load_into(target, checkpoint(bare))
    assert equal(source, target)
    assert notes == [
        "names matched with the prefix transformer. added",
        "lm_head.weight is tied to transformer.1.weight, which the checkpoint holds",
    ]


def test_a_model_with_a_part_called_module_keeps_its_names():
    model, source = (nn.ModuleDict({"module": nn.Linear(2, 2), "x": nn.Linear(2, 2)}) for _ in "ab")
    assert load_into(model, checkpoint(source.state_dict())) == []
    assert equal(model, source)


def test_missing_tensors_are_named_with_their_number(net, other):
    state = net.state_dict()
    for name in ("norm.running_mean", "conv.weight"):
        del state[name]
    with pytest.raises(CheckpointError) as error:
        match(state, other)
    assert error.value.seen == "2 missing: conv.weight, norm.running_mean"


def test_tensors_left_over_are_named_with_their_number(net, other):
    extra = {f"extra.{i}": torch.ones(1) for i in range(9)}
    with pytest.raises(CheckpointError) as error:
        match({**net.state_dict(), **extra}, other)
    assert error.value.seen == ("9 unexpected: extra.0, extra.1, extra.2, extra.3, … (9 in all)")


def test_a_prefix_that_leaves_tensors_over_is_an_error(net, other):
    state = renamed(net, lambda name: "net." + name) | {"criterion.weight": torch.ones(3)}
    with pytest.raises(CheckpointError) as error:
        match(state, other)
    assert error.value.seen == "1 unexpected: criterion.weight"


def test_misshapen_tensors_show_both_shapes(net):
    with pytest.raises(CheckpointError, match=r"4 tensors .* another shape") as error:
        match(net.state_dict(), _without_tie(make_net(width=4)))
    assert "conv.weight: (3, 1, 3, 3), not (4, 1, 3, 3)" in error.value.seen


def _without_tie(net):
    net.encode, net.decode = nn.Linear(3, 5), nn.Linear(3, 5)
    net.norm.running_var = None
    net.norm.register_buffer("running_var", torch.ones(4))
    net.norm.running_mean = torch.ones(3)
    return net


def test_a_model_of_other_names_has_nothing_in_common(net):
    with pytest.raises(CheckpointError, match="no tensor in common") as error:
        match(net.state_dict(), nn.Sequential(nn.Linear(2, 2)))
    assert "conv.weight" in error.value.seen
    assert "0.weight" in error.value.seen


def test_nothing_is_copied_when_something_does_not_fit(net, other):
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    state = {**net.state_dict(), "conv.weight": torch.zeros(1)}
    with pytest.raises(CheckpointError):
        load_into(other, checkpoint(state))
    assert all(torch.equal(other.state_dict()[name], value) for name, value in before.items())


def test_a_missing_twin_is_filled_from_the_tensor_it_is_tied_to(net, other):
    state = net.state_dict()
    del state["decode.weight"]
    matching = match(state, other)
    assert torch.equal(matching.state["decode.weight"], net.encode.weight)
    assert matching.notes == ("decode.weight is tied to encode.weight, which the checkpoint holds",)


def test_a_missing_tensor_of_an_untied_model_is_an_error(net, other):
    other.decode.weight = nn.Parameter(other.encode.weight.detach().clone())
    state = net.state_dict()
    del state["decode.weight"]
    with pytest.raises(CheckpointError, match="not those of the model"):
        match(state, other)


def test_a_name_left_over_that_shares_memory_with_another_is_dropped(net, other):
    state = {**net.state_dict(), "head.weight": net.encode.weight.detach()}
    assert match(state, other).notes[-1].startswith("head.weight is ")


def test_a_name_left_over_that_merely_has_equal_values_is_an_error(net, other):
    state = {**net.state_dict(), "head.weight": net.encode.weight.detach().clone()}
    with pytest.raises(CheckpointError):
        match(state, other)


def test_two_values_for_a_tied_tensor_are_an_error(net, other):
    state = {**net.state_dict(), "decode.weight": net.decode.weight.detach() + 1}
    with pytest.raises(CheckpointError, match="two values for tensors that the model ties"):
        match(state, other)


def test_equal_copies_for_a_tied_tensor_are_fine(net, other):
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state["encode.weight"][0, 0] = state["decode.weight"][0, 0] = float("nan")
    assert match(state, other).notes == ()


def test_counters_that_old_checkpoints_lack_are_allowed_with_a_note(net, other):
    state = net.state_dict()
    del state["norm.num_batches_tracked"]
    matching = match(state, other)
    assert matching.notes == (
        "1 num_batches_tracked are not in the checkpoint, and left as they are",
    )
    assert "norm.num_batches_tracked" not in matching.state


def test_running_statistics_that_are_missing_are_an_error(net, other):
    state = net.state_dict()
    del state["norm.running_var"]
    with pytest.raises(CheckpointError):
        match(state, other)


def test_a_buffer_that_is_not_saved_is_not_asked_for_but_refused_as_pytorch_does(net, other):
    assert "scratch" not in match(net.state_dict(), other).state
    with pytest.raises(RuntimeError):
        other.load_state_dict({**net.state_dict(), "scratch": torch.zeros(7)})
    with pytest.raises(CheckpointError):
        match({**net.state_dict(), "scratch": torch.zeros(7)}, other)


def test_what_a_model_declares_to_be_of_no_use_is_left_out(net, other):
    other._keys_to_ignore_on_load_unexpected = [r"\.masked_bias$"]
    notes = match({**net.state_dict(), "h.0.masked_bias": torch.ones(1)}, other).notes
    assert notes == ("left out as the model declares: h.0.masked_bias",)


def test_averaged_models_are_matched(net, other):
    averaged = torch.optim.swa_utils.AveragedModel(net)
    notes = load_into(other, checkpoint(averaged.state_dict()))
    assert equal(other, net)
    assert "n_averaged, a counter of averaged weights, is left out" in notes


def test_values_are_converted_to_the_types_of_the_model_and_it_is_said(net, other):
    other.to(torch.float64)
    notes = load_into(other, checkpoint(net.to(torch.bfloat16).state_dict()))
    assert notes == ["9 tensors converted from bfloat16 to float64"]
    assert other.conv.weight.dtype == torch.float64
    assert torch.equal(other.conv.weight, net.conv.weight.double())


def test_parameters_stay_the_same_objects(net, other):
    before = {name: (id(p), p.data_ptr()) for name, p in other.named_parameters()}
    load_into(other, checkpoint(net.state_dict()))
    assert {name: (id(p), p.data_ptr()) for name, p in other.named_parameters()} == before
    assert other.conv.weight.requires_grad
    assert other.conv.weight.is_leaf


def test_complex_values_are_not_made_real(net, other):
    state = {**net.state_dict(), "conv.weight": net.conv.weight.detach().to(torch.complex64)}
    with pytest.raises(CheckpointError, match="cannot be converted") as error:
        load_into(other, checkpoint(state))
    assert error.value.seen == "conv.weight: complex64, the model has float32"


def test_a_model_without_values_is_refused(net):
    with torch.device("meta"):
        target = make_net_on_meta()
    with pytest.raises(CheckpointError, match="meta device"):
        load_into(target, checkpoint(net.state_dict()))


def make_net_on_meta():
    from saved_checkpoints import Net

    return Net()


def test_lazy_layers_are_refused(net):
    with pytest.raises(CheckpointError, match="without a shape") as error:
        match(net.state_dict(), nn.Sequential(nn.LazyLinear(3)))
    assert error.value.seen == "0.weight, 0.bias"


def test_scalars_of_one_element_become_scalars_as_in_pytorch():
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.0))

    model = Scale()
    load_into(model, checkpoint({"scale": torch.tensor([2.5])}))
    assert model.scale.item() == 2.5


def test_the_notes_of_the_checkpoint_come_first(net, other):
    notes = load_into(other, checkpoint(renamed(net, "module.{}".format), notes=("read",)))
    assert notes == ["read", "names matched without module."]


def test_names_whose_short_forms_collide_are_left_as_they_are():
    tensors = {"module.weight": torch.ones(2, 2), "weight": torch.zeros(2, 2)}
    with pytest.raises(CheckpointError):
        match(tensors, nn.Linear(2, 2, bias=False))


def test_a_state_that_is_a_copy_is_written_to_the_model_itself(net, other):
    def copy(_module, state, *_):
        for name in list(state):
            state[name] = state[name].detach().clone()

    other.register_state_dict_post_hook(copy)
    load_into(other, checkpoint(net.state_dict()))
    assert torch.equal(other.conv.weight, net.conv.weight)


def test_a_state_of_copies_under_other_names_is_refused(net, other):
    def rename(_module, state, *_):
        state["renamed"] = state.pop("conv.weight").detach().clone()

    other.register_state_dict_post_hook(rename)
    with pytest.raises(CheckpointError, match="copies of its tensors") as error:
        load_into(other, checkpoint(net.state_dict()))
    assert error.value.seen == "renamed"
