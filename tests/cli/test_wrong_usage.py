"""Wrong usage and bad input: three lines on standard error, the offending value in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PROBE = ["probe", "x.pt", "--model", "sample:mlp", "--data", "sample:gaussian"]
TRAIN = ["train", "--model", "sample:mlp", "--data", "sample:gaussian", "--out", "somewhere"]

ROWS = [
    (["prob"], "there is no command 'prob'", "probe, compare", "landscape probe"),
    (["--bogus"], "there is no option --bogus", "--bogus", "landscape --help"),
    (["probe", "--nope"], "there is no option --nope", "probe --nope", "landscape probe --help"),
    (["probe", "--modle", "x"], "there is no option --modle", "--modle", "--model"),
    (["probe"], "a probe needs checkpoints", "(nothing)", "landscape probe CHECKPOINT"),
    (["probe", "x.pt"], "a probe needs model", "(nothing)", "--model SPEC"),
    (["probe", "x.pt", "--model", "a:b"], "a probe needs data", "(nothing)", "--data SPEC"),
    (["probe", "x.pt", "--model"], "requires an argument", "x.pt --model", "landscape probe"),
    ([*PROBE, "--batch-size", "many"], "--batch-size has no such value", "many", "--help"),
    ([*PROBE, "--batch-size=1.5"], "--batch-size has no such value", "1.5", "--help"),
    ([*PROBE, "--batch-size", "0"], "--batch-size is out of range", "0", "from 1"),
    ([*PROBE, "--batches", "-3"], "--batches is out of range", "-3", "from 1"),
    ([*PROBE, "--workers", "0"], "--workers is out of range", "0", "from 1"),
    ([*PROBE, "--seed", "-1"], "--seed is out of range", "-1", "from 0"),
    (
        [*PROBE, "--seed", str(2**63)],
        "--seed is out of range",
        str(2**63),
        "to 9223372036854775807",
    ),
    ([*PROBE, "--chunk", "0"], "--chunk is out of range", "0", "or auto"),
    ([*PROBE, "--chunk", "all"], "--chunk is out of range", "all", "or auto"),
    ([*PROBE, "--micro-batch", "0"], "--micro-batch is out of range", "0", "from 1"),
    ([*PROBE, "--lr", "fast"], "--lr has no such value", "fast", "--help"),
    ([*PROBE, "--lr", "0"], "the learning rate is not a positive number", "0.0", "--lr 0.1"),
    ([*PROBE, "--lr", "-1"], "the learning rate is not a positive number", "-1.0", "--lr 0.1"),
    ([*PROBE, "--lr", "nan"], "the learning rate is not a positive number", "nan", "--lr 0.1"),
    ([*PROBE, "--lr", "inf"], "the learning rate is not a positive number", "inf", "--lr 0.1"),
    ([*PROBE, "--loss", "hinge"], "no loss is named 'hinge'", "cross-entropy, mse", "FILE.py"),
    ([*PROBE, "--norm-mode", "eval"], "--norm-mode has no such value", "eval", "running"),
    ([*PROBE, "--dtype", "float16"], "--dtype has no such value", "float16", "bfloat16"),
    ([*PROBE, "--engine", "dask"], "--engine has no such value", "dask", "ray"),
    ([*PROBE, "--strategy", "magic"], "--strategy has no such value", "magic", "plain"),
    ([*PROBE, "--steps", "1:2"], "the steps are not LO:HI:COUNT", "1:2", "--steps"),
    ([*PROBE, "--steps", "2:1:4"], "not below the last", "2:1:4", "--steps"),
    ([*PROBE, "--steps", "1:2:0"], "the number of steps", "1:2:0", "--steps"),
    ([*PROBE, "--steps", "-1:1:3"], "must start above 0", "-1:1:3", "lin"),
    ([*PROBE, "--steps", "0:inf:3:lin"], "not finite", "0:inf:3", "--steps"),
    ([*PROBE, "--steps", "1:2:3:cubic"], "neither log nor lin", "cubic", "--steps"),
    ([*PROBE, "--direction", "up"], "no such direction", "up", "random:N"),
    ([*PROBE, "--direction", "random:0"], "no such direction", "random:0", "random:N"),
    ([*PROBE, "--direction", "eigenvector:x"], "no such direction", "eigenvector:x", "random:N"),
    (["compare", "a.h5", "--align", "time"], "--align has no such value", "time", "step, loss"),
    (["compare"], "A.h5 B.h5 is missing", "compare", "landscape compare --help"),
    (["plot", "a.h5"], "--output is missing", "plot a.h5", "landscape plot --help"),
    (["plot", "-o", "x.html"], "RUN.h5 is missing", "plot -o x.html", "landscape plot --help"),
    (["show"], "RUN.h5 is missing", "show", "landscape show --help"),
    (["show", "a.h5", "b.h5"], "unexpected extra argument", "show a.h5 b.h5", "landscape show"),
    (["inspect"], "CHECKPOINT is missing", "inspect", "landscape inspect --help"),
    (["train"], "a training needs --model", "(nothing)", "--out DIR"),
    (TRAIN[:-2], "a training needs --out", "(nothing)", "--out DIR"),
    ([*TRAIN, "--steps", "0"], "steps is not a whole number", "steps=0", "from 1"),
    ([*TRAIN, "--lr", "-1"], "lr is not a positive number", "lr=-1.0", "lr=0.1"),
    ([*TRAIN, "--steps", "5", "--epochs", "1"], "not both", "steps=5, epochs=1", "leave one"),
    (["demo", "--steps", "0"], "--steps is out of range", "0", "from 1"),
]


@pytest.mark.parametrize(
    ("args", "what", "seen", "hint"), ROWS, ids=[" ".join(row[0])[-40:] for row in ROWS]
)
def test_wrong_usage_is_told_in_three_lines(
    landscape, tmp_path: Path, monkeypatch, args: list[str], what: str, seen: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = landscape(*args)
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert len(answer.lines) == 3, answer.err
    assert answer.lines[0].startswith("error: ")
    assert what in answer.lines[0]
    assert answer.lines[1].startswith("  seen:  ")
    assert seen in answer.lines[1]
    assert answer.lines[2].startswith("  try:   ")
    assert hint in answer.lines[2]
    assert list(tmp_path.iterdir()) == [], "nothing is written"


SPECS = [
    ("--model", "mlp", 2, "the model spec names no adapter and target", "mlp"),
    ("--model", "sample:", 2, "the model spec names no adapter and target", "sample:"),
    ("--model", "sample:mlp?wide", 2, "an option of the model spec is not key=value", "'wide'"),
    ("--model", "sample:mlp?a=1&a=2", 2, "is given twice", "'a'"),
    ("--model", "smaple:mlp", 2, "no model adapter is named 'smaple'", "sample"),
    ("--model", "sample:nonsense", 1, "no sample model is named 'nonsense'", "nonsense"),
    ("--model", "sample:mlp?wdth=3", 1, "has no option 'wdth'", "wdth=3"),
    ("--model", "gone.py:make", 1, "the file with the model does not exist", "gone.py"),
    ("--model", "mine.py:mak", 1, "mine.py has no function 'mak'", "make"),
    ("--model", "mine.py:crash", 1, "mine.py:crash raised an error", "no such weights, mine.py"),
    ("--model", "mine.py:make?depth=1", 1, "does not take these options", "'depth'"),
    ("--data", "npz", 2, "the data spec names no adapter and target", "npz"),
    ("--data", "nzp:data.npz", 2, "no data adapter is named 'nzp'", "npz"),
    ("--data", "npz:gone.npz", 1, "the npz file does not exist", "gone.npz"),
    ("--data", "npz:data.npz?x=inputs", 1, "data.npz has no array 'inputs'", "x, y"),
    ("--data", "npz:mine.py", 1, "the npz file cannot be read", "mine.py"),
    ("--loss", "mine.py:nothing", 1, "mine.py has no function 'nothing'", "make"),
    ("--measure", "colour", 2, "no measure is named 'colour'", ""),
]


@pytest.mark.parametrize(("option", "value", "code", "what", "seen"), SPECS)
def test_a_spec_that_cannot_be_meant_is_told_in_three_lines(
    landscape, place, monkeypatch, option: str, value: str, code: int, what: str, seen: str
) -> None:
    monkeypatch.chdir(place.folder)
    options = {"--model": "mine.py:make", "--data": "npz:data.npz", option: value}
    args = [word for pair in options.items() for word in pair]
    answer = landscape("probe", place.step, *args, "-q", "-o", "run.h5")
    assert answer.code == code, answer.err
    assert answer.out == ""
    assert [line.split(":")[0].strip() for line in answer.lines] == ["error", "seen", "try"]
    assert what in answer.lines[0]
    assert seen in answer.lines[1]
    assert not (place / "run.h5").exists()


def test_a_checkpoint_that_does_not_fit_its_model_is_told(landscape, place) -> None:
    args = place.probe_args("-o", place / "run.h5")
    args[args.index("--model") + 1] += "?width=7"
    answer = landscape(*args)
    assert answer.code == 1
    assert [line.split(":")[0].strip() for line in answer.lines] == ["error", "seen", "try"]
    assert "no checkpoint could be measured" in answer.lines[0]
    assert "0.weight" in answer.lines[1]


def test_options_that_exclude_each_other_are_told(landscape, place) -> None:
    answer = landscape(*place.probe_args("-o", place / "r.h5", "--resume", "--overwrite"))
    assert answer.code == 2
    assert "--resume and --overwrite exclude each other" in answer.lines[0]


def test_no_traceback_without_debug_and_one_with_it(landscape, tmp_path: Path) -> None:
    for args in (["show", tmp_path / "gone.h5", "--debug"], ["--debug", "show", tmp_path / "g.h5"]):
        answer = landscape(*args)
        assert answer.code == 1
        assert "Traceback (most recent call last)" in answer.err
        assert answer.lines[-3].startswith("error: ")
    answer = landscape("show", tmp_path / "gone.h5")
    assert answer.code == 1
    assert len(answer.lines) == 3


def test_control_characters_in_an_error_are_made_visible(landscape) -> None:
    answer = landscape("show", "a\x1b[31m\nb.h5")
    assert "\x1b" not in answer.err
    assert "\\x1b[31m" in answer.lines[1]
    assert len(answer.lines) == 3


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (ZeroDivisionError("of all things"), 1, "this is a bug"),
        (MemoryError("3 TiB"), 1, "there is not enough memory"),
        (PermissionError(13, "Permission denied", "/x"), 1, "the system refused"),
    ],
)
def test_every_other_exception_ends_in_lines_too(landscape, monkeypatch, error, code, what) -> None:
    def fail(path: str) -> None:
        raise error

    monkeypatch.setattr("landscape_cli.store.open_run", fail)
    answer = landscape("show", "run.h5")
    assert answer.code == code
    assert what in answer.lines[0]
    assert len(answer.lines) <= 3
    assert "Traceback" not in answer.err


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.from_regex(r"-?[0-9.e]{1,6}:-?[0-9.e]{1,6}:[0-9]{1,4}(:log|:lin|)", fullmatch=True),
    st.sampled_from(["1e999", "-0", "random:99999999999999999999", "gradient:", "sample:mlp?a=(1"]),
)
OPTIONS = st.sampled_from(
    [
        *(
            "--model",
            "--data",
            "--loss",
            "--batch-size",
            "--lr",
            "--steps",
            "--direction",
            "--seed",
        ),
        *("--measure", "--norm-mode", "--dtype", "--chunk", "--engine", "--plane", "--config"),
        *("--device", "--strategy", "--weights", "--parameters", "--freeze", "--micro-batch"),
    ]
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(option=OPTIONS, value=VALUES)
def test_no_value_of_an_option_brings_the_program_down(landscape, option: str, value: str) -> None:
    args = ["probe", "gone-8f3a.pt", "--model", "sample:mlp", "--data", "sample:gaussian"]
    answer = landscape(*args, f"{option}={value}")
    assert answer.code in (1, 2), answer
    assert len(answer.lines) <= 3
    assert "this is a bug" not in answer.err, answer.err
    assert "Traceback" not in answer.err


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_file_of_options_brings_the_program_down(landscape, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    answer = landscape("probe", "gone-8f3a.pt", "--config", tmp_path / "c.toml")
    assert answer.code == 2
    assert len(answer.lines) == 3
