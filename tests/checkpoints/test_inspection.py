from __future__ import annotations

import json
import shlex

import pytest
import torch
from safetensors.torch import save_file
from saved_checkpoints import WRITERS, make_optimiser
from torch import nn

from landscape_cli.checkpoints import inspect
from landscape_cli.checkpoints.inspection import NormLayer, TensorRow, Total
from landscape_cli.errors import CheckpointError


@pytest.fixture
def described(net, tmp_path):
    return inspect(WRITERS["nested"](net, tmp_path))


def test_every_tensor_is_listed_with_shape_and_type(described, net):
    assert [row.name for row in described.tensors] == list(net.state_dict())
    assert described.tensors[0] == TensorRow("conv.weight", (3, 1, 3, 3), "float32")
    assert described.tensors[0].elements == 27


def test_amounts_are_counted_by_type(described, net):
    floats = [t for t in net.state_dict().values() if t.is_floating_point()]
    count = sum(tensor.numel() for tensor in floats)
    assert described.totals == {
        "float32": Total(len(floats), count, 4 * count),
        "int64": Total(1, 1, 8),
    }


def test_the_state_of_an_optimiser_is_noticed(described, net, tmp_path):
    assert described.optimiser
    assert not inspect(WRITERS["plain"](net, tmp_path)).optimiser
    torch.save({"w": torch.ones(1), "opt": make_optimiser(net).state_dict()}, tmp_path / "b.pt")
    assert inspect(tmp_path / "b.pt").optimiser


def test_norm_layers_are_found_by_their_tensors(tmp_path):
    class Rms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

    model = nn.ModuleDict(
        {
            "first": nn.BatchNorm1d(4),
            "plain": nn.BatchNorm2d(5, affine=False),
            "ln_1": nn.LayerNorm(8),
            "layer_norm": nn.GroupNorm(2, 4),
            "input_layernorm": Rms(),
            "linear": nn.Linear(3, 3),
            "normaliser": nn.Linear(3, 3),
        }
    )
    torch.save(model.state_dict(), tmp_path / "a.pt")
    assert inspect(tmp_path / "a.pt").norm_layers == (
        NormLayer("first", "batch", 4),
        NormLayer("plain", "batch", 5),
        NormLayer("ln_1", "layer or group", 8),
        NormLayer("layer_norm", "layer or group", 4),
        NormLayer("input_layernorm", "rms", 6),
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_tensors_that_are_not_finite_are_named(dtype, value, tmp_path):
    bad = torch.ones(5).to(torch.float32)
    bad[3] = value
    torch.save(
        {"good": torch.ones(2), "bad": bad.to(dtype), "whole": torch.arange(3)}, tmp_path / "a.pt"
    )
    assert inspect(tmp_path / "a.pt").non_finite == ("bad",)


def test_tensors_that_cannot_be_used_are_listed_with_a_note(tmp_path):
    torch.save({"w": torch.eye(2).to_sparse(), "b": torch.ones(1)}, tmp_path / "a.pt")
    found = inspect(tmp_path / "a.pt")
    assert [row.name for row in found.tensors] == ["w", "b"]
    assert found.notes == ("w: the checkpoint holds a sparse tensor",)


def test_many_views_of_one_storage_are_not_searched_without_end(tmp_path):
    base = torch.ones(2**18)
    torch.save({f"w{i}": base[i:] for i in range(40)}, tmp_path / "a.pt")
    assert "not all were searched" in inspect(tmp_path / "a.pt").notes[0]


def test_the_command_repeats_what_the_file_says_of_itself(tmp_path):
    path = tmp_path / "step 1.safetensors"
    metadata = {
        "model": "sample:vgg?width=8&norm=batch",
        "data": "sklearn:digits",
        "learning_rate": "0.1",
    }
    save_file({"w": torch.ones(1)}, path, metadata=metadata)
    found = inspect(path)
    assert shlex.split(found.suggested_command) == [
        *("landscape", "probe", str(path), "--model", "sample:vgg?width=8&norm=batch"),
        *("--data", "sklearn:digits", "-o", "run.h5"),
    ]
    assert found.placeholders == ()
    assert found.family == "sample:vgg?width=8&norm=batch"


def test_what_has_to_be_filled_in_is_named(net, tmp_path):
    found = inspect(WRITERS["plain"](net, tmp_path))
    assert found.placeholders == ("--model", "--data", "--lr")
    assert found.suggested_command.startswith("landscape probe ")


@pytest.mark.parametrize(
    "spec", ["x; rm -rf ~", "a:b\n--data evil", "\x1b[2Ja:b", "a:b" * 1000, "a:b?x", ""]
)
def test_specs_that_mean_nothing_are_not_repeated(spec, tmp_path):
    save_file({"w": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"model": spec})
    found = inspect(tmp_path / "a.safetensors")
    words = shlex.split(found.suggested_command)
    assert words[words.index("--model") + 1] in ("FILE.py:FACTORY", found.model)
    assert found.model in ("", spec)
    assert found.suggested_command.isprintable()


def test_a_shell_cannot_be_reached_through_a_spec(tmp_path):
    spec = "a:$(touch /tmp/x);`id`"
    save_file({"w": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"model": spec})
    assert spec in shlex.split(inspect(tmp_path / "a.safetensors").suggested_command)


def test_a_hugging_face_folder_proposes_its_own_model_and_loss(net, tmp_path):
    folder = WRITERS["hugging face"](net, tmp_path)
    found = inspect(folder)
    assert found.model == f"hf:{folder}"
    assert found.family == "transformers tiny"
    assert "--loss model" in found.suggested_command


def test_the_inspection_is_plain_data(described):
    values = json.loads(json.dumps(described.to_dict()))
    assert values["info"]["training_step"] == 1200
    assert values["tensors"][0] == {
        "name": "conv.weight",
        "shape": [3, 1, 3, 3],
        "dtype": "float32",
    }
    assert values["suggested_command"] == described.suggested_command


def test_variants_are_named(net, tmp_path):
    torch.save({"model": net.state_dict(), "ema": net.state_dict()}, tmp_path / "a.pt")
    assert inspect(tmp_path / "a.pt").variants == ("ema",)


def test_a_folder_of_several_checkpoints_is_refused_with_a_hint(net, tmp_path):
    WRITERS["plain"](net, tmp_path)
    with pytest.raises(CheckpointError, match="not one checkpoint") as error:
        inspect(tmp_path)
    assert error.value.hint == "name one of the checkpoints in it"
