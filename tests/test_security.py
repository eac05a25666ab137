"""What SECURITY.md promises: whatever a file or an option holds, it is read or refused.

The interpreter itself is the witness: an audit hook sees every ``exec``, every unpickled name,
every process, connection and written file while hostile bytes are being read.
"""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import journal_writer
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from synthetic import synthetic_run
from test_conversion import lay_out_anew

from landscape_cli import checkpoints, store
from landscape_cli.adapters.arrays import open_npz
from landscape_cli.errors import LandscapeError
from landscape_cli.journal import Journal, read
from landscape_cli.specs import ComponentSpec, DirectionSpec, ProbeSpec, StepGrid, read_config
from landscape_cli.store import conversion

SECONDS = 20.0
"""That reading a few kilobytes may take on a machine that others use; a hang is for ever."""

FORBIDDEN = (
    *("exec", "pickle.find_class", "ctypes.dlopen", "os.system", "os.exec", "os.fork"),
    *("os.posix_spawn", "os.remove", "os.rename", "os.mkdir", "os.symlink", "os.chmod"),
    *("subprocess.Popen", "socket.connect", "socket.bind", "shutil.rmtree", "shutil.move"),
)
"""Events of the interpreter that reading a file has no reason for."""


def is_the_converter(event: str, arguments: tuple) -> bool:
    """Whether this is the one process that may start: it reads runs of another layout, confined.

    What that process may do is in test_conversion.py.
    """
    starts = event in ("subprocess.Popen", "os.posix_spawn")  # the second from Python 3.13 on
    return starts and list(arguments[1]) == conversion.command()


class Witness:
    """Notes forbidden events while it watches; a hook cannot be taken away again."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple) -> None:
        if not self.watching or is_the_converter(event, arguments):
            return
        writes = (
            event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        )
        if event in FORBIDDEN or writes:
            self.seen.append(f"{event} {arguments!r:.200}")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what happens inside, and fail if it is forbidden or takes for ever."""
        self.seen.clear()
        started, self.watching = time.monotonic(), True
        try:
            yield
        finally:
            self.watching = False
        assert not self.seen, self.seen
        assert time.monotonic() - started < SECONDS


@pytest.fixture(scope="module")
def witness() -> Witness:
    return Witness()


def test_the_witness_sees_what_it_is_there_for(witness: Witness, tmp_path: Path) -> None:
    """Without this, the tests below could not fail."""
    for misdeed in (
        lambda: pickle.loads(pickle.dumps(Path)),
        lambda: exec("1 + 1"),
        lambda: (tmp_path / "x").write_text("x"),
        (tmp_path / "x").unlink,
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    ):
        with pytest.raises(AssertionError), witness.watch():
            misdeed()


# --- files


class Payload:
    """What a malicious pickle is made of."""

    def __reduce__(self) -> tuple:
        return exec, ("raise SystemExit('executed')",)


def saved(tree: object, **options) -> bytes:
    buffer = io.BytesIO()
    torch.save(tree, buffer, **options)
    return buffer.getvalue()


def journal_bytes(folder: Path) -> bytes:
    path = folder / "run.h5.journal"
    with_units = Journal.create(path, journal_writer.HEADER)
    for index in range(3):
        with_units.append(journal_writer.unit(index))
    with_units.close()
    content = path.read_bytes()
    path.unlink()
    return content


def run_bytes(folder: Path) -> bytes:
    path = folder / "run.h5"
    store.write(synthetic_run(checkpoints=2, steps=3), path)
    content = path.read_bytes()
    path.unlink()
    return content


def foreign_run_bytes(folder: Path) -> bytes:
    """A run as h5py lays it out by default, in pieces."""
    path = folder / "again.h5"
    lay_out_anew(synthetic_run(checkpoints=2, steps=3), path, chunks=True, compression="gzip")
    content = path.read_bytes()
    path.unlink()
    return content


def npz_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_data(path: Path) -> None:
    data = open_npz(str(path))
    data[0], data[len(data) - 1]


def read_settings(path: Path) -> None:
    ProbeSpec.from_mapping(
        {"checkpoints": ["x"], "model": "a:b", "data": "a:b", **read_config(path)}
    )


READERS: dict[str, Callable[[Path], object]] = {
    "x.safetensors": checkpoints.read,
    "x.pt": checkpoints.read,
    "x.npz": read_data,
    "x.toml": read_settings,
    "run.h5": store.open_run,
    "run.h5.journal": read,
}


class Corpus(dict[str, list[bytes]]):
    """Sound and malicious files by name, which Hypothesis need not print."""

    def __repr__(self) -> str:
        return ", ".join(self)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    tensors = {"a.weight": torch.ones(2, 3), "a.bias": torch.zeros(2)}
    objects = np.array([Payload(), Payload()], dtype=object)
    rows = {"x": np.ones((4, 2), np.float32), "y": np.zeros(4, np.int64)}
    toml = b'batch-size = 8\nsteps = "0.5:4:3"\ndirections = ["gradient", "random:2"]\nlr = 0.1\n'
    return Corpus(
        {
            "x.safetensors": [save(tensors, {"training_step": "3"})],
            "x.pt": [
                saved(tensors),
                saved({**tensors, "more": Payload()}),
                pickle.dumps(Payload()),
            ],
            "x.npz": [npz_bytes(**rows), npz_bytes(x=objects, y=rows["y"])],
            "x.toml": [toml],
            "run.h5": [run_bytes(folder), foreign_run_bytes(folder)],
            "run.h5.journal": [journal_bytes(folder)],
        }
    )


EDITS = st.lists(
    st.tuples(
        st.integers(0, 2**16),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from(
                [b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, b"cos\nsystem\n", b"../"]
            ),
        ),
        st.booleans(),
    ),
    max_size=6,
)
"""Places, bytes to put there, and whether they are put between or over what is there."""


def edited(content: bytes, edits: list[tuple[int, bytes, bool]]) -> bytes:
    changed = bytearray(content)
    for place, piece, between in edits:
        start = place % (len(changed) + 1)
        changed[start : start if between else start + len(piece)] = piece
    return bytes(changed)


FUZZED = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None
)


@pytest.mark.parametrize("name", READERS)
def test_files_as_they_are_warm_up_the_readers(corpus: Corpus, tmp_path: Path, name: str) -> None:
    """Sound files are read; what is imported on the way is there before anybody watches."""
    sound, *malicious = corpus[name]
    (tmp_path / name).write_bytes(sound)
    READERS[name](tmp_path / name)
    for content in (*malicious, b"", sound[: len(sound) // 2]):
        (tmp_path / name).write_bytes(content)
        try:
            READERS[name](tmp_path / name)
        except LandscapeError as error:
            assert [label for label, _ in error.lines()] == ["error", "seen", "try"]


@pytest.mark.parametrize("name", READERS)
def test_malicious_files_are_read_or_refused_and_execute_nothing(
    witness: Witness, corpus: Corpus, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    read_all_once(corpus, name, path)

    @FUZZED
    @given(st.sampled_from(range(len(corpus[name]))), EDITS)
    def fuzz(which: int, edits: list) -> None:
        path.write_bytes(edited(corpus[name][which], edits))
        with witness.watch():
            try:
                READERS[name](path)
            except LandscapeError as error:
                assert all("\n" not in text for _, text in error.lines())

    fuzz()


def read_all_once(corpus: Corpus, name: str, path: Path) -> None:
    """Read every file once, so that lazy imports are not taken for execution."""
    for content in (*corpus[name], b"nonsense"):
        path.write_bytes(content)
        try:
            READERS[name](path)
        except LandscapeError:
            continue


# --- options and settings

HOSTILE = (
    "__import__('os').system('id')",
    "exec('raise SystemExit')",
    "sample:mlp?width=__import__('os').system('id')",
    "sample:mlp?a=[].__class__.__base__.__subclasses__()",
    "file:../../etc/passwd",
    "a:b?c=" + "(" * 500,
    "a:b?c=" + "9" * 20_000,
    "a:b?c=" + "-" * 5_000 + "1",
    "1e308:1e309:3",
    "random:99999999999999999999",
    "\x00:\x00",
    "{}".format("[" * 2_000),
)
TEXTS = st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE))
PARSERS: tuple[Callable[[str], object], ...] = (
    lambda text: ComponentSpec.parse(text, "model"),
    StepGrid.parse,
    DirectionSpec.parse,
    ProbeSpec.from_json,
)


@pytest.mark.parametrize("parse", PARSERS)
@FUZZED
@given(text=TEXTS)
def test_texts_are_parsed_or_refused_and_execute_nothing(
    witness: Witness, parse: Callable[[str], object], text: str
) -> None:
    with witness.watch():
        try:
            parse(text)
        except LandscapeError as error:
            assert error.exit_code == 2


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = tuple(ProbeSpec.__dataclass_fields__)


@FUZZED
@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
def test_settings_are_used_or_refused_whatever_they_hold(witness: Witness, values: dict) -> None:
    whole = {"checkpoints": ["x"], "model": "a:b", "data": "a:b", **values}
    with witness.watch():
        try:
            spec = ProbeSpec.from_mapping(whole)
        except LandscapeError as error:
            assert error.exit_code == 2
        else:
            assert ProbeSpec.from_json(spec.to_json()) == spec or "nan" in spec.to_json().lower()


def test_settings_of_a_run_name_no_code_that_is_executed_by_looking(
    witness: Witness, tmp_path: Path
) -> None:
    """Showing and plotting a run build no model, whatever its settings name."""
    import landscape_cli as landscape

    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('executed')\n")
    run = synthetic_run(checkpoints=2, steps=3)
    run.attributes["settings"] = json.dumps({"model": f"{trap}:make", "data": f"{trap}:data"})
    store.write(run, tmp_path / "run.h5")
    opened = landscape.open_run(tmp_path / "run.h5")
    landscape.plot(opened, output=tmp_path / "warm.html")
    modules = set(sys.modules)
    landscape.plot(opened, output=tmp_path / "run.html")
    assert set(sys.modules) == modules
