from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from saved_checkpoints import WRITERS, make_net

from landscape_cli.checkpoints import describe, find
from landscape_cli.errors import CheckpointError


def put(path: Path, step: int | None = None, value: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"w": torch.full((2,), value)}
    if path.suffix == ".safetensors":
        save_file(tensors, path, metadata={} if step is None else {"training_step": str(step)})
    else:
        torch.save(tensors if step is None else {"model": tensors, "step": step}, path)
    return path


def labels(paths) -> list[str]:
    return [info.label for info in find(paths)]


def test_a_folder_is_the_trajectory_of_the_checkpoints_in_it(tmp_path):
    for name, step in (("c.safetensors", 1), ("b.pt", 3), ("a.ckpt", 2)):
        put(tmp_path / name, step)
    put(tmp_path / "deeper" / "d.pt", 4)
    assert labels([tmp_path]) == ["c", "a", "b"]


def test_order_is_by_step_then_number_then_as_given(tmp_path):
    late = put(tmp_path / "a-9.pt", step=9)
    ten, two, none, other = (
        put(tmp_path / name) for name in ("x-10.pt", "x-2.pt", "none.pt", "last.pt")
    )
    assert labels([late, ten, other, two, none]) == ["last", "none", "x-2", "x-10", "a-9"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("epoch=3-step=40", "epoch=2-step=100"),
        ("checkpoint_9", "checkpoint_10"),
        ("v2_iter5_lr0.1", "v1_iter6_lr0.01"),
        ("step-1", "step-20"),
        ("model.3", "model.12"),
    ],
)
def test_the_number_in_a_name_is_that_of_the_step(first, second, tmp_path):
    paths = [put(tmp_path / f"{name}.pt") for name in (second, first)]
    assert labels(paths) == [first, second]


def test_states_of_optimisers_and_generators_are_ignored(tmp_path):
    put(tmp_path / "step-1.pt")
    for name in (
        *("optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_0.pth", "scaler.pt"),
        *("training_args.bin", "random_states_0.pt", "optimizer-1.pt", "step-1.optimizer.pt"),
        *("step-1_optim.pt", "optim.pth", "zero_pp_rank_0_mp_rank_00_optim_states.pt", ".x.pt"),
    ):
        (tmp_path / name).write_bytes(b"not read")
    assert labels([tmp_path]) == ["step-1"]


def test_a_model_named_after_its_optimiser_is_kept(tmp_path):
    put(tmp_path / "optimal.pt")
    put(tmp_path / "with_optim_adam-3.pt")
    assert labels([tmp_path]) == ["optimal", "with_optim_adam-3"]


def test_a_glob_is_the_checkpoints_it_matches(tmp_path):
    for step in (10, 9):
        put(tmp_path / f"step-{step}.safetensors", step)
    put(tmp_path / "other.safetensors")
    (tmp_path / "step-log.txt").write_text("x")
    assert labels([str(tmp_path / "step-*")]) == ["step-9", "step-10"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    path = put(tmp_path / "run[1].pt")
    assert labels([str(path)]) == ["run[1]"]


@pytest.mark.parametrize("kind", ["sharded safetensors", "sharded bin", "hugging face"])
def test_a_folder_with_an_index_or_a_config_is_one_checkpoint(kind, net, tmp_path):
    home = tmp_path / "run"
    home.mkdir()
    WRITERS[kind](net, home)
    put(home / "checkpoint-3" / "a.pt")
    assert labels([home]) == ["run"]


def test_a_distributed_folder_is_one_checkpoint(net, tmp_path):
    home = tmp_path / "step_12"
    WRITERS["distributed"](net, home)
    (info,) = find([home])
    assert (info.label, info.format, info.training_step) == ("step_12", "distributed", 1200)


def _trainer_output(folder: Path) -> None:
    for step in (20, 100):
        home = folder / f"checkpoint-{step}"
        put(home / "model.safetensors", value=step)
        (home / "config.json").write_text('{"model_type": "bert"}')
        (home / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        (home / "optimizer.pt").write_bytes(b"broken")
    (folder / "training_args.bin").write_bytes(b"not read")


def test_the_output_of_a_trainer_is_the_trajectory_of_its_folders(tmp_path):
    _trainer_output(tmp_path)
    infos = find([tmp_path])
    assert [(i.label, i.training_step) for i in infos] == [
        ("checkpoint-20", 20),
        ("checkpoint-100", 100),
    ]


def test_the_output_of_a_trainer_with_its_final_model_is_that_model(tmp_path):
    _trainer_output(tmp_path)
    put(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert [info.format for info in find([tmp_path])] == ["hugging-face"]


def test_a_config_beside_several_steps_does_not_make_them_one(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    put(tmp_path / "step-1.pt")
    assert [info.format for info in find([tmp_path])] == ["hugging-face"]
    put(tmp_path / "step-2.pt")
    assert labels([tmp_path]) == ["step-1", "step-2"]


def test_an_index_may_be_named_itself(net, tmp_path):
    home = tmp_path / "shards"
    home.mkdir()
    WRITERS["sharded safetensors"](net, home)
    assert labels([home / "model.safetensors.index.json"]) == ["shards"]


def test_equal_names_are_told_apart_by_their_folders(tmp_path):
    for run in ("a/run/x", "b/run/x", "c"):
        put(tmp_path / run / "model.pt")
    put(tmp_path / "c" / "other.pt")
    found = labels([tmp_path / "a/run/x", tmp_path / "b/run/x", tmp_path / "c"])
    assert found == ["a/run/x/model", "b/run/x/model", "c/model", "other"]


def test_files_that_differ_by_suffix_alone_have_different_labels(tmp_path):
    put(tmp_path / "a.pt")
    put(tmp_path / "a.safetensors")
    assert len(set(labels([tmp_path]))) == 2


def test_a_damaged_checkpoint_of_several_is_listed_as_such(tmp_path):
    put(tmp_path / "step-1.pt", 1)
    (tmp_path / "step-2.pt").write_bytes(b"torn")
    put(tmp_path / "step-3.pt", 3)
    infos = find([tmp_path])
    assert sorted((i.label, i.format) for i in infos) == [
        ("step-1", "torch"),
        ("step-2", "damaged"),
        ("step-3", "torch"),
    ]
    assert all(len(info.sha256) == 64 for info in infos)


def test_a_checkpoint_of_several_that_disappears_is_listed_as_such(tmp_path, monkeypatch):
    put(tmp_path / "step-1.pt", 1)
    gone = put(tmp_path / "step-2.pt", 2)

    def describe_late(path):
        gone.unlink(missing_ok=True)
        return describe(path)

    monkeypatch.setattr("landscape_cli.checkpoints.trajectories.describe", describe_late)
    assert [(i.label, i.sha256 == "") for i in find([tmp_path])] == [
        ("step-2", True),
        ("step-1", False),
    ]


def test_a_damaged_checkpoint_alone_is_an_error(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="damaged"):
        find([tmp_path])


def test_damaged_checkpoints_alone_are_an_error(tmp_path):
    for name in ("a.pt", "b.pt"):
        (tmp_path / name).write_bytes(b"torn")
    with pytest.raises(CheckpointError, match="damaged"):
        find([tmp_path])


def test_what_is_not_there_is_an_error_that_shows_what_is(tmp_path):
    put(tmp_path / "step-1.pt")
    with pytest.raises(CheckpointError, match="no such checkpoint") as error:
        find([tmp_path / "step-2.pt"])
    assert "step-1.pt" in error.value.hint


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(CheckpointError) as error:
        find([tmp_path / "no" / "a.pt"])
    assert "does not exist either" in error.value.hint


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoints") as error:
        find([tmp_path])
    assert "it is empty" in error.value.seen


def test_a_folder_of_other_files_is_an_error_that_names_them(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "optimizer.pt").write_text("x")
    with pytest.raises(CheckpointError, match="holds no checkpoints") as error:
        find([tmp_path])
    assert "notes.txt, optimizer.pt" in error.value.seen


def test_a_glob_without_matches_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="matches no checkpoint"):
        find([str(tmp_path / "*.pt")])


def test_a_checkpoint_given_twice_is_an_error(tmp_path):
    path = put(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="given twice"):
        find([path, tmp_path])


def test_a_link_to_a_checkpoint_that_is_given_too_is_an_error(tmp_path):
    path = put(tmp_path / "a.pt")
    (tmp_path / "b.pt").symlink_to(path)
    with pytest.raises(CheckpointError, match="given twice"):
        find([tmp_path])


def test_shards_without_their_index_are_an_error(net, tmp_path):
    WRITERS["sharded safetensors"](net, tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match="shards without the index"):
        find([tmp_path])


def test_a_path_of_impossible_length_is_an_error(tmp_path):
    with pytest.raises(CheckpointError):
        find([tmp_path / ("x" * 5000)])


def test_many_checkpoints_are_found_quickly_and_in_order(tmp_path):
    net = make_net()
    for step in range(60):
        metadata = {"training_step": str(step)}
        state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        save_file(state, tmp_path / f"{60 - step}.safetensors", metadata=metadata)
    assert [info.training_step for info in find([tmp_path])] == list(range(60))
