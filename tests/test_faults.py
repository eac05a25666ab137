"""What happens to a probe on a shared machine: it is told, what was measured stays, it goes on."""

from __future__ import annotations

import datetime as dt
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import Dataset

import landscape_cli as landscape
from landscape_cli.engine.chunks import ChunkedSweep
from landscape_cli.errors import AdapterError, MeasurementError, StoreError
from landscape_cli.journal import Journal, read


class Listening:
    """Progress that keeps its notices, and calls back once the measuring begins."""

    def __init__(self, begin=lambda: None) -> None:
        self.notices: list[str] = []
        self._begin = begin

    def start(self, points: int) -> None:
        self._begin()

    def advance(self, points: int, where: str) -> None:
        pass

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def trajectory(tmp_path: Path) -> Path:
    folder = tmp_path / "trajectory"
    folder.mkdir()
    for step in range(3):
        write(folder / f"step-{step}.safetensors", cases.Awkward(seed=step), step)
    return folder


def write(path: Path, model: torch.nn.Module, step: int) -> None:
    state = {n: t.clone() for n, t in model.state_dict().items() if n != "again.weight"}
    save_file(state, path, metadata={"training_step": str(step), "learning_rate": "0.1"})


def probe(trajectory: Path, output: Path | None = None, **options) -> landscape.Run:
    arguments = {
        "model": cases.Awkward(seed=9),
        "data": cases.awkward_data(),
        "directions": ("gradient", "random:1"),
        "steps": "0.5:4:12",
        **options,
    }
    return landscape.probe(trajectory, output=output, **arguments)


def assert_same(run: landscape.Run, other: landscape.Run) -> None:
    assert set(run) == set(other)
    for path in run:
        np.testing.assert_array_equal(run[path], other[path], err_msg=path)


def measured(run: landscape.Run) -> list[bool]:
    """Whether any point of a checkpoint was measured, by checkpoint."""
    return run["status"].any(axis=(1, 2)).tolist()


# --- memory


def short_of_memory(monkeypatch: pytest.MonkeyPatch, fitting) -> list[int]:
    """Let chunks of more than so many points run out of memory; return the sizes attempted."""
    attempted: list[int] = []
    begin = ChunkedSweep.__init__

    def limited(self, slice_, evaluation, chunk) -> None:
        def evaluate(points):
            attempted.append(len(points))
            if len(points) > fitting():
                raise torch.OutOfMemoryError("CUDA out of memory, or so it seems")
            return evaluation(points)

        begin(self, slice_, evaluate, chunk)

    monkeypatch.setattr(ChunkedSweep, "__init__", limited)
    return attempted


def test_out_of_memory_the_chunk_is_halved_and_the_run_goes_on(
    trajectory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = probe(trajectory, strategy="plain")
    attempted = short_of_memory(monkeypatch, fitting=lambda: 3)
    run = probe(trajectory, strategy="stacked", chunk=8)
    assert max(attempted) == 8
    assert run.complete
    assert run.attributes["strategy"] == "stacked"
    assert run.attributes["chunk"] == 2
    np.testing.assert_allclose(run["loss"], expected["loss"], rtol=1e-5)


def test_memory_that_others_take_meanwhile_halves_the_chunk_from_there_on(
    trajectory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected, output = probe(trajectory, strategy="plain"), tmp_path / "run.h5"
    taken = Listening(begin=lambda: None)
    short = {"fitting": 8}
    attempted = short_of_memory(monkeypatch, fitting=lambda: short["fitting"])

    def advance(points: int, where: str) -> None:
        short["fitting"] = 5

    taken.advance = advance
    run = probe(trajectory, output, strategy="stacked", chunk=8, progress=taken)
    assert run.complete
    assert run.attributes["chunk"] == 4
    assert attempted.count(8) > 1
    np.testing.assert_allclose(run["loss"], expected["loss"], rtol=1e-5)


def test_where_not_one_point_fits_the_plain_strategy_takes_over(
    trajectory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = probe(trajectory, strategy="plain")
    short_of_memory(monkeypatch, fitting=lambda: 0)
    run = probe(trajectory, strategy="stacked", chunk=8)
    assert run.attributes["strategy"] == "plain"
    np.testing.assert_array_equal(run["loss"], expected["loss"])
    assert "gave way to plain" in run.attributes["notices"]


class Hungry(cases.Awkward):
    """Runs out of memory wherever its first weight is what `trigger` says."""

    trigger = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.enter.weight[0, 0].item() == Hungry.trigger:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(x)


@pytest.mark.parametrize("step", [0, 1])
def test_a_checkpoint_that_does_not_fit_the_memory_is_recorded_and_skipped(
    trajectory: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    weight = cases.Awkward(seed=step).enter.weight[0, 0].item()
    monkeypatch.setattr(Hungry, "trigger", weight)
    run = probe(trajectory, model=Hungry(seed=9))
    assert run.attributes["status"] == "partial"
    assert measured(run) == [index != step for index in range(3)]
    assert "out of memory" in run.attributes["notices"]


# --- data, loss and weights


class Failing(Dataset):
    """A data set on a disk that fails after some samples."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.read += 1
        if self.read > 20:
            raise OSError(errno.EIO, "Input/output error")
        return torch.zeros(4), 0


def failing_batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield torch.zeros(4, 4), torch.zeros(4, dtype=torch.long)
    raise ConnectionError("the server with the data hung up")


@pytest.mark.parametrize(
    ("data", "seen"),
    [(Failing(), "Input/output error"), (failing_batches(), "the server with the data hung up")],
)
def test_data_that_fail_in_the_middle_are_told(
    trajectory: Path, tmp_path: Path, data: object, seen: str
) -> None:
    output = tmp_path / "run.h5"
    with pytest.raises(AdapterError, match="data raised an error") as caught:
        probe(trajectory, output, data=data, batches=3, batch_size=8)
    assert seen in caught.value.seen
    assert not output.exists()
    assert not Journal.path_of(output).exists()


def test_a_loss_that_is_not_a_scalar_is_told(trajectory: Path, tmp_path: Path) -> None:
    (tmp_path / "vector.py").write_text("def loss(output, batch):\n    return output.sum(1)\n")
    with pytest.raises(MeasurementError) as caught:
        probe(trajectory, loss=f"{tmp_path / 'vector.py'}:loss")
    assert "the loss is not a scalar" in str(caught.value)
    assert "(23,)" in caught.value.seen


def test_a_loss_that_fails_at_some_points_only_fails_there(
    trajectory: Path, tmp_path: Path
) -> None:
    """The loss raises ValueError, as somebody's own code may, where weights were moved far."""
    (tmp_path / "picky.py").write_text(
        "import torch\n"
        "def loss(output, batch):\n"
        "    if output.abs().max() > 40:\n"
        "        raise ValueError('that far I do not go')\n"
        "    return torch.nn.functional.cross_entropy(output, batch[1])\n"
    )
    spec = f"{tmp_path / 'picky.py'}:loss"
    run = probe(trajectory, loss=spec, steps="1:1e6:4", chunk=1)
    assert run.attributes["status"] == "partial"
    assert run["status"][:, :, 0].all()
    assert not run["status"].all()
    assert "that far I do not go" in run.attributes["notices"]


def test_a_nan_in_the_weights_is_measured_as_it_is_and_the_others_go_on(trajectory: Path) -> None:
    expected = probe(trajectory)
    broken = cases.Awkward(seed=1)
    with torch.no_grad():
        broken.leave.bias[0] = torch.nan
    write(trajectory / "step-1.safetensors", broken, 1)
    run = probe(trajectory)
    assert run.complete
    assert np.isnan(run["base_loss"][1])
    assert (run["status"][1] == 2).all()
    assert np.isnan(run["loss"][1]).all()
    assert np.isnan(run["effective_smoothness/beta"][1]).all()
    for index in (0, 2):
        np.testing.assert_array_equal(run["loss"][index], expected["loss"][index])
    assert "the loss at the checkpoint is nan" in run.attributes["notices"]


# --- files


def test_a_checkpoint_that_disappears_is_recorded_and_skipped(
    trajectory: Path, tmp_path: Path
) -> None:
    expected = probe(trajectory)
    gone = trajectory / "step-1.safetensors"
    content, output = gone.read_bytes(), tmp_path / "run.h5"
    progress = Listening(begin=gone.unlink)
    run = probe(trajectory, output, progress=progress)
    assert run.attributes["status"] == "partial"
    assert measured(run) == [True, False, True]
    assert any(notice.startswith("step-1") for notice in progress.notices)
    np.testing.assert_array_equal(run["loss"][2], expected["loss"][2])
    gone.write_bytes(content)
    assert_same(probe(trajectory, output, resume=True), expected)


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_is_there(
    trajectory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, output = probe(trajectory), tmp_path / "run.h5"
    write_to_disk, left = os.pwrite, 9

    def pwrite(descriptor, content, offset) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_to_disk(descriptor, content, offset)

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", pwrite)
        with pytest.raises(StoreError, match="could not be written") as caught:
            probe(trajectory, output)
    assert "No space left on device" in caught.value.seen
    assert "--resume" in caught.value.hint
    _, units = read(Journal.path_of(output))
    assert len(units) == 8  # one write was the header's
    assert not landscape.open_run(output).complete
    assert_same(probe(trajectory, output, resume=True), expected)


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    trajectory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    output, begun = tmp_path / "run.h5", []
    really_open = os.open

    def refuse(path, flags, *more, **others) -> int:
        if str(path).endswith(".journal"):
            raise OSError(reason, os.strerror(reason))
        return really_open(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="could not be opened") as caught:
        probe(trajectory, output, progress=Listening(begin=lambda: begun.append(1)))
    assert os.strerror(reason) in caught.value.seen
    assert "-o in a folder" in caught.value.hint
    assert not begun


# --- time


def test_a_clock_that_jumps_changes_nothing(
    trajectory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, output = probe(trajectory), tmp_path / "run.h5"
    jumps = iter(range(10_000))

    def jumping() -> float:
        return 1e9 + (-1) ** next(jumps) * 1e7

    monkeypatch.setattr(time, "time", jumping)
    assert_same(probe(trajectory, output), expected)


def test_files_from_the_future_and_the_past_are_gone_on_with(
    trajectory: Path, tmp_path: Path
) -> None:
    expected, output = probe(trajectory), tmp_path / "run.h5"

    class Stopping(Listening):
        left = 4

        def advance(self, points: int, where: str) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    future = dt.datetime(2100, 1, 1, tzinfo=dt.UTC).timestamp()
    for times in ((0, 0), (future, future)):
        with pytest.raises(KeyboardInterrupt):
            probe(trajectory, output, resume=True, progress=Stopping())
        os.utime(Journal.path_of(output), times)
        os.utime(output, (future - times[0], future - times[1]))
        assert not landscape.open_run(output).complete
    assert_same(probe(trajectory, output, resume=True), expected)
