"""Options: every setting has one, they can come from a file, and the command line wins."""

from __future__ import annotations

import dataclasses
import json
import typing

import h5py
import pytest

from landscape_cli.cli.configuration import merge_config, parse_chunk
from landscape_cli.cli.probe_options import ProbeOptions
from landscape_cli.cli.train import TrainOptions
from landscape_cli.specs import ProbeSpec
from landscape_cli.training import TrainingSpec

NOT_TEXT = {None: "", (): "", False: "no"}


def helps(options: type) -> dict[str, str]:
    hints = typing.get_type_hints(options, include_extras=True)
    return {name: typing.get_args(hint)[-1].help for name, hint in hints.items()}


@pytest.mark.parametrize(
    ("options", "spec"), [(ProbeOptions, ProbeSpec), (TrainOptions, TrainingSpec)]
)
def test_every_setting_has_an_option_of_its_name(options: type, spec: type) -> None:
    assert {f.name for f in dataclasses.fields(spec)} <= {
        f.name for f in dataclasses.fields(options)
    }


@pytest.mark.parametrize(
    ("options", "spec"), [(ProbeOptions, ProbeSpec), (TrainOptions, TrainingSpec)]
)
def test_the_defaults_in_the_help_are_the_settings_defaults(options: type, spec: type) -> None:
    texts = helps(options)
    elsewhere = {"lr": "the checkpoint's", "steps": "500", "every": "a twentieth", "chunk": "auto"}
    for item in dataclasses.fields(spec):
        told = texts[item.name].rpartition("Default: ")[2].rstrip(".")
        if item.default is dataclasses.MISSING:
            assert "Default:" not in texts[item.name]
        elif item.default is None:
            assert item.name not in elsewhere or told.startswith(elsewhere[item.name])
        elif isinstance(item.default, tuple):
            assert told == ", ".join(item.default) or "Default:" not in texts[item.name]
        elif item.default is False:
            assert told == "no" or "Default:" not in texts[item.name]
        else:
            assert told == (
                f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
            )


def write(path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_file_fills_in_what_the_command_line_leaves_out(tmp_path) -> None:
    config = write(
        tmp_path / "c.toml",
        'model = "a:b"\nbatch-size = 7\ndirection = ["gradient", "random:2"]\nchunk = "auto"\n'
        "seed = 3\nallow-tf32 = true\nquiet = true\n",
    )
    options = ProbeOptions(data="c:d", seed=0, allow_tf32=False)
    merged = merge_config(options, config)
    assert (merged.model, merged.data, merged.batch_size) == ("a:b", "c:d", 7)
    assert merged.directions == ["gradient", "random:2"]
    assert merged.seed == 0, "a default that is given on the command line wins all the same"
    assert merged.allow_tf32 is False
    assert merged.quiet is True
    assert merged.settings()["chunk"] is None


@pytest.mark.parametrize(
    ("text", "what", "seen", "hint"),
    [
        ("bacth-size = 7", "an unknown option 'bacth_size'", "batch_size", "batch_size = …"),
        ("seed = 'a'", "the setting 'seed' has the wrong type", "'a'", "int"),
        ("loss = 5", "the setting 'loss' has the wrong type", "5", "str"),
        ("direction = 5", "the setting 'directions' has the wrong type", "5", "tuple"),
        ("quiet = 1", "the option 'quiet' in the config file has the wrong type", "1", "true"),
        ("output = 1", "the option 'output' in the config file has the wrong type", "1", "run.h5"),
        (r'output = "a\u0000b"', "the option 'output' in the config file has a NUL", "x00", "out"),
        ("chunk = 0", "--chunk is out of range", "0", "auto"),
        ("chunk = true", "--chunk is out of range", "True", "auto"),
        ("a = [", "the config file is not TOML", "c.toml", ""),
        ("config = 'c.toml'", "an unknown option 'config'", "batch_size", ""),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    landscape, place, text: str, what: str, seen: str, hint: str
) -> None:
    config = write(place / "c.toml", text)
    args = [arg for arg in place.probe_args("--config", config) if arg != "-q"]
    answer = landscape(*args)
    assert answer.code == 2, answer.err
    assert len(answer.lines) == 3
    assert what in answer.lines[0]
    assert seen in answer.lines[1]
    assert hint in answer.lines[2]


def test_a_file_that_is_not_there_is_told(landscape) -> None:
    answer = landscape("probe", "--config", "gone.toml")
    assert answer.code == 2
    assert "the config file cannot be read" in answer.lines[0]


def test_a_probe_can_be_asked_for_by_a_file_alone(landscape, place) -> None:
    specs = dict(zip(["model", "data"], place.specs[1::2], strict=True))
    lines = [f"{name} = {json.dumps(value)}" for name, value in specs.items()]
    text = "\n".join(
        [*lines, f'checkpoints = ["{place.step}"]', 'steps = "1:2:2"', "json = true", "seed = 5"]
    )
    config = write(place / "c.toml", f'{text}\noutput = "{place / "run.h5"}"\n')
    answer = landscape("probe", "--config", config, "--seed", 6, "-q")
    assert answer.code == 0, answer.err
    assert answer.json["steps"] == [1.0, 2.0]
    with h5py.File(place / "run.h5") as file:
        assert json.loads(file.attrs["settings"])["seed"] == 6


def test_debug_can_be_asked_for_by_a_file(landscape, place) -> None:
    config = write(place / "c.toml", 'debug = true\nloss = "hinge"')
    answer = landscape(*place.probe_args("--config", config))
    assert "Traceback" in answer.err


@pytest.mark.parametrize(("value", "chunk"), [("auto", None), ("1", 1), (16, 16)])
def test_a_chunk_is_a_number_or_auto(value, chunk) -> None:
    assert parse_chunk(value) == chunk
