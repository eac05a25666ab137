"""What each command gives, where everything is as it should be."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import landscape_cli
from landscape_cli.adapters import registry
from landscape_cli.errors import AdapterError


def test_version_and_help_are_given(landscape) -> None:
    assert landscape("--version").out.strip() == f"landscape {landscape_cli.__version__}"
    for args in (["--help"], ["-h"], []):
        answer = landscape(*args)
        assert answer.code == 0
        assert "Probe the loss landscape" in answer.out
        for name in ("probe", "compare", "plot", "show", "inspect", "train", "adapters", "demo"):
            assert name in answer.out


def test_probe_writes_a_run_and_says_what_it_found(landscape, place) -> None:
    answer = landscape(*place.probe_args("-o", place / "run.h5"))
    assert answer.code == 0, answer.err
    assert answer.err == ""
    for text in ("checkpoint", "loss range", "max ‖Δg‖", "β*", "limit", "β*·lr", "noise floor"):
        assert text in answer.out
    with h5py.File(place / "run.h5") as file:
        beta = file["effective_smoothness/beta"][0, 0]
        assert file.attrs["status"] == "complete"
    assert f"{beta:.4g}" in answer.out


def test_probe_proposes_the_next_command_unless_quiet(landscape, place) -> None:
    args = [arg for arg in place.probe_args("-o", place / "run.h5") if arg != "-q"]
    answer = landscape(*args)
    assert f"landscape plot {place / 'run.h5'} -o {place / 'run.html'}" in answer.err
    assert "3/3 points" in answer.err
    assert "landscape plot" not in answer.out


def test_the_json_of_a_probe_has_the_numbers_of_the_file(landscape, place) -> None:
    answer = landscape(*place.probe_args("-o", place / "run.h5", "--json"))
    summary = answer.json
    line = summary["checkpoints"][0]["directions"][0]
    assert (summary["status"], summary["steps"]) == ("complete", [0.5, 1.0, 2.0])
    assert summary["checkpoints"][0]["training_step"] == 10
    with h5py.File(place / "run.h5") as file:
        assert line["beta"] == file["effective_smoothness/beta"][0, 0]
        assert line["loss_minimum"] == file["loss"][0, 0].min()
        assert line["loss_maximum"] == file["loss"][0, 0].max()
        assert line["gradient_change_maximum"] == file["gradient_change"][0, 0].max()
        assert line["beta_times_lr"] == pytest.approx(0.1 * line["beta"])


def test_json_has_null_where_a_number_is_not_finite(landscape, place) -> None:
    answer = landscape(*place.probe_args("--direction", "toward:" + str(place.step), "--json"))
    assert answer.code == 0, answer.err
    assert answer.json["checkpoints"][0]["directions"][0]["beta"] is None


def test_without_an_output_a_probe_only_shows(landscape, place) -> None:
    before = sorted(place.folder.rglob("*"))
    args = [arg for arg in place.probe_args() if arg != "-q"]
    answer = landscape(*args)
    assert answer.code == 0
    assert "nothing was written" in answer.err
    assert [p for p in sorted(place.folder.rglob("*")) if "__pycache__" not in str(p)] == before


def test_an_existing_output_is_replaced_or_gone_on_with_only_when_asked(landscape, place) -> None:
    run = place / "run.h5"
    assert landscape(*place.probe_args("-o", run)).code == 0
    refused = landscape(*place.probe_args("-o", run))
    assert refused.code == 2
    assert "the output exists already" in refused.lines[0]
    assert landscape(*place.probe_args("-o", run, "--resume")).code == 0
    assert landscape(*place.probe_args("-o", run, "--overwrite")).code == 0


def test_the_folder_of_the_output_must_exist(landscape, place) -> None:
    answer = landscape(*place.probe_args("-o", place / "gone" / "run.h5"))
    assert answer.code == 2
    assert "the folder of the output does not exist" in answer.lines[0]


def test_what_a_model_prints_is_no_result(landscape, place) -> None:
    args = place.probe_args("--json")
    args[args.index("--model") + 1] = f"{place / 'mine.py'}:chatty"
    answer = landscape(*args)
    assert "building the model" in answer.err
    assert answer.json["status"] == "complete"


def test_a_trajectory_with_one_bad_checkpoint_is_partial_and_exits_with_1(landscape, place) -> None:
    bad = place / "trajectory" / "step-20.safetensors"
    bad.write_bytes(bad.read_bytes()[:-40])
    run = place / "run.h5"
    answer = landscape(
        "probe", place / "trajectory", *place.specs, "--steps", "0.5:2:3", "-q", "-o", run
    )
    assert answer.code == 1, answer.out + answer.err
    assert [line.split(":")[0].strip() for line in answer.lines] == ["error", "seen", "try"]
    assert "not everything could be measured" in answer.lines[0]
    assert "step-10" in answer.out, "what was measured is shown all the same"
    with h5py.File(run) as file:
        assert file.attrs["status"] == "partial"
        labels = [label.decode() for label in file["checkpoint"][:]]
        assert sorted(labels) == ["step-10", "step-20", "step-30"]
        measured = file["status"][:].any(axis=(1, 2))
        assert dict(zip(labels, measured, strict=True)) == {
            "step-10": True,
            "step-20": False,
            "step-30": True,
        }


def test_an_interrupted_probe_keeps_what_it_has_and_says_how_to_go_on(
    landscape, place, monkeypatch
) -> None:
    from landscape_cli.engine import worker

    measure = worker.Worker.line

    def interrupt(self, *args, **options):
        if args[0] == 1:
            raise KeyboardInterrupt
        return measure(self, *args, **options)

    monkeypatch.setattr(worker.Worker, "line", interrupt)
    args = ["probe", place / "trajectory", *place.specs, "--steps", "0.5:2:3", "-q"]
    answer = landscape(*args, "-o", place / "run.h5")
    assert answer.code == 130
    assert answer.lines[0] == "error: interrupted"
    assert str(place / "run.h5") in answer.lines[1]
    assert "--resume" in answer.lines[2]
    monkeypatch.undo()
    assert landscape("show", place / "run.h5").code == 0
    assert landscape(*args, "-o", place / "run.h5", "--resume").code == 0
    with h5py.File(place / "run.h5") as file:
        assert (file["status"][:] == 1).all()


def test_ctrl_c_ends_a_running_probe_with_130_and_a_file_that_opens(landscape, place) -> None:
    run = place / "run.h5"
    args = [
        str(arg)
        for arg in place.probe_args("-o", run, "--steps", "0.5:2:200000", "--strategy", "plain")
    ]
    program = subprocess.Popen(
        [sys.executable, "-m", "landscape_cli.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = Path(f"{run}.journal")
    sizes = {0}
    deadline = time.monotonic() + 60
    while program.poll() is None and time.monotonic() < deadline and len(sizes) < 8:
        time.sleep(0.05)
        sizes.add(journal.stat().st_size if journal.exists() else 0)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert out == ""
    assert [line.split(":")[0].strip() for line in err.splitlines()] == ["error", "seen", "try"]
    shown = landscape("show", run, "--json").json
    assert shown["status"] == "partial"
    assert shown["checkpoints"][0]["directions"][0]["measured"] > 0


def test_show_gives_the_numbers_of_the_file(landscape, measured) -> None:
    answer = landscape("show", measured / "a.h5")
    assert answer.code == 0
    assert "random:1" in answer.out
    shown = landscape("show", measured / "a.h5", "--json").json
    with h5py.File(measured / "a.h5") as file:
        for index, checkpoint in enumerate(shown["checkpoints"]):
            for position, line in enumerate(checkpoint["directions"]):
                assert line["limit"] == file["effective_smoothness/limit"][index, position]
    assert shown["settings"]["seed"] == 0


def test_show_gives_every_array_when_asked(landscape, measured) -> None:
    arrays = landscape("show", measured / "a.h5", "--json", "--all").json["variables"]
    with h5py.File(measured / "a.h5") as file:
        np.testing.assert_array_equal(arrays["loss"]["values"], file["loss"][:])
    assert arrays["loss"]["dims"] == ["checkpoint", "direction", "step"]


def test_compare_gives_ratios_that_can_be_read_off_the_files(landscape, measured) -> None:
    runs = [measured / "a.h5", measured / "b.h5"]
    answer = landscape("compare", *runs, "--label", "first", "--label", "second")
    assert answer.code == 0, answer.err
    assert "first" in answer.out
    assert "verdict" in answer.out
    found = landscape("compare", *runs, "--json").json
    betas = []
    for run in runs:
        with h5py.File(run) as file:
            betas.append(file["effective_smoothness/beta"][:, 0])
    contrast = next(
        item
        for item in found["pairings"][0]["contrasts"]
        if (item["quantity"], item["direction"]) == ("beta", "gradient")
    )
    expected = math.exp(np.log(betas[1] / betas[0]).mean())
    assert contrast["ratio"] == pytest.approx(expected)
    assert contrast["pairs"] == 3


def test_compare_and_plot_write_reports(landscape, measured, tmp_path: Path) -> None:
    runs = [measured / "a.h5", measured / "b.h5"]
    for command in ("compare", "plot"):
        report = tmp_path / f"{command}.html"
        answer = landscape(command, *runs, "-o", report)
        assert answer.code == 0, answer.err
        assert report.read_text().lstrip().startswith("<!")
        assert str(report) in answer.err


def test_inspect_shows_tensors_and_a_command_that_works(landscape, place) -> None:
    answer = landscape("inspect", place.step)
    assert answer.code == 0
    for text in ("safetensors", "0.weight", "6×4", "float32", "1 batch norm layers", "start from"):
        assert text in answer.out
    found = landscape("inspect", place.step, "--json").json
    assert found["info"]["training_step"] == 10
    assert found["suggested_command"].startswith(f"landscape probe {place.step}")


def test_train_records_a_trajectory_that_probe_takes(landscape, place) -> None:
    out = place / "trained"
    args = ["train", *place.specs, "--out", out, "--steps", 20, "--every", 10, "--lr", "0.05"]
    answer = landscape(*args)
    assert answer.code == 0, answer.err
    assert "3 checkpoints" in answer.out
    assert f"landscape probe {out} --model" in answer.err
    refused = landscape(*args)
    assert refused.code == 2
    again = landscape(*args, "--overwrite", "-q", "--json").json
    assert again["steps"] == 20
    assert len(again["checkpoints"]) == 3
    rows = list(csv.DictReader(io.StringIO((out / "history.csv").read_text())))
    assert float(rows[-1]["loss"]) == pytest.approx(again["last"]["loss"])
    probed = landscape("probe", out, *place.specs, "--steps", "1:2:2", "-q", "--json").json
    assert [c["training_step"] for c in probed["checkpoints"]] == [0, 10, 20]
    assert {c["learning_rate"] for c in probed["checkpoints"]} == {0.05}


def test_an_interrupted_training_says_what_is_kept(landscape, place, monkeypatch) -> None:
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("landscape_cli.training.run.forward", interrupt)
    answer = landscape("train", *place.specs, "--out", place / "trained", "-q")
    assert answer.code == 130
    assert str(place / "trained") in answer.lines[1]


def test_adapters_lists_what_is_installed(landscape) -> None:
    answer = landscape("adapters", "--no-check")
    assert answer.code == 0
    for text in ("sample", "npz", "landscape-cli", "loss_range", "not tried"):
        assert text in answer.out
    listed = landscape("adapters", "--no-check", "--json").json
    assert ("model", "sample") in [(item["kind"], item["name"]) for item in listed]
    assert all(item["usable"] for item in listed if item["distribution"] == "landscape-cli")


def narrow(monkeypatch, *distributions: str) -> None:
    """Leave only the plugins of some distributions, as all of them take long to import."""
    for name in ("models", "data", "measures"):
        found = getattr(registry, name)()
        kept = tuple(p for p in found.plugins if p.distribution in distributions)
        narrowed = dataclasses.replace(found, plugins=kept)
        monkeypatch.setattr(registry, name, lambda narrowed=narrowed: narrowed)


def test_adapters_names_the_broken_ones_with_the_reason(landscape, tmp_path, monkeypatch) -> None:
    info = tmp_path / "unlucky-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unlucky\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text(
        "[landscape_cli.models]\nunlucky = unlucky_8f3a:build\nsample = unlucky_8f3a:build\n"
    )
    (tmp_path / "unlucky_8f3a.py").write_text("raise RuntimeError('out of luck')")
    monkeypatch.syspath_prepend(str(tmp_path))
    narrow(monkeypatch, "unlucky", "landscape-cli")
    answer = landscape("adapters")
    assert answer.code == 0
    assert "broken: model unlucky: RuntimeError: out of luck" in answer.out
    assert "not used: landscape-cli has the name" in answer.out
    assert "unlucky_8f3a" not in sys.modules
    listed = landscape("adapters", "--json").json
    by_name = {(item["name"], item["distribution"]): item for item in listed}
    assert by_name["unlucky", "unlucky"]["error"] == "RuntimeError: out of luck"
    assert not by_name["sample", "unlucky"]["usable"]
    assert by_name["sample", "landscape-cli"]["usable"]


@pytest.mark.slow
def test_demo_goes_the_whole_way(landscape, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = landscape("demo", "--steps", "2", "-q")
    assert first.code == 0, first.err
    report, *finding = first.out.splitlines()
    assert report == "report: demo-output/comparison.html"
    assert len(finding) == 2
    assert "BatchNorm" in finding[0]
    assert (tmp_path / "demo-output" / "comparison.html").is_file()
    again = landscape("demo", "--steps", "2", "-q", "--json").json
    assert again["findings"] == finding, "the same seed gives the same numbers"


def test_demo_says_which_plugin_it_needs(landscape, tmp_path, monkeypatch) -> None:
    narrow(monkeypatch, "landscape-cli")
    answer = landscape("demo", "--out", tmp_path / "demo", "-q")
    assert answer.code == AdapterError.exit_code
    assert "the plugin with the digits is not installed" in answer.lines[0]
    assert "landscape-sklearn" in answer.lines[2]
    assert not (tmp_path / "demo").exists()


def test_json_is_strict(landscape, measured) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    for args in (["show", measured / "a.h5"], ["compare", measured / "a.h5", measured / "b.h5"]):
        json.loads(landscape(*args, "--json").out, parse_constant=refuse)
