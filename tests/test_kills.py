from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import journal_writer
import numpy as np
import pytest

from landscape_cli import store
from landscape_cli.errors import StoreError
from landscape_cli.journal import Journal, read

HEADER = journal_writer.HEADER


@pytest.fixture(scope="module")
def context() -> Iterator[multiprocessing.context.ForkServerContext]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["journal_writer", "h5py", "landscape_cli.store.opening"])
    return context


def run_for(context, output: Path, seconds: float | None) -> tuple[set[int], bool]:
    """Let a writer run, kill it, and return what it said was on disk and whether it finished."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=journal_writer.measure, args=(str(output), sender))
    process.start()
    sender.close()
    assert receiver.recv() == journal_writer.READY
    process.join(seconds)
    process.kill()
    process.join()
    said: list[int | None] = []
    try:
        while True:
            said.append(receiver.recv())
    except EOFError:
        pass
    finally:
        receiver.close()
    assert process.exitcode in (0, -signal.SIGKILL)
    process.close()
    return {index for index in said if index is not None}, None in said


def check_files(output: Path, acknowledged: set[int]) -> None:
    """Every file opens; every acknowledged unit is in the journal with its numbers."""
    if acknowledged:
        _, units = read(Journal.path_of(output))
        expected = {journal_writer.unit(index).key: index for index in range(journal_writer.UNITS)}
        found = {expected[one.key] for one in units}
        assert acknowledged <= found
        for one in units:
            again = journal_writer.unit(expected[one.key])
            np.testing.assert_array_equal(one.arrays["columns"], again.arrays["columns"])
            assert one.notices == again.notices
    if output.exists():
        store.open_run(output, include_journal=False)


def kill_often(context, folder: Path, kills: int) -> int:
    """Kill writers at random instants, one run after another, and return how many were killed."""
    generator = np.random.default_rng(0)
    count = runs = 0
    finished = True
    while count < kills or not finished:
        if finished:
            runs += 1
            output, acknowledged = folder / f"run{runs}.h5", set()
        seconds = generator.uniform(0, 0.03) if count < kills else None
        more, finished = run_for(context, output, seconds)
        acknowledged |= more
        count += not finished
        check_files(output, acknowledged)
        if finished:
            check_finished(output)
    return count


def check_finished(output: Path) -> None:
    """The run is what it would have been undisturbed, and no temporary file is left."""
    undisturbed = journal_writer.fold([journal_writer.unit(i) for i in range(journal_writer.UNITS)])
    run = store.open_run(output, include_journal=False)
    assert run.complete
    np.testing.assert_array_equal(run["loss"], undisturbed["loss"])
    assert not list(output.parent.glob(f".{output.name}.*"))


def test_a_few_kills_at_random_instants_lose_no_finished_unit(context, tmp_path: Path) -> None:
    assert kill_often(context, tmp_path, 12) >= 12


@pytest.mark.slow
def test_a_hundred_kills_at_random_instants_lose_no_finished_unit(context, tmp_path: Path) -> None:
    assert kill_often(context, tmp_path, 100) >= 100


def test_the_lock_goes_with_a_killed_writer(context, tmp_path: Path) -> None:
    output = tmp_path / "run.h5"
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=journal_writer.measure, args=(str(output), sender))
    process.start()
    sender.close()
    assert receiver.recv() == journal_writer.READY
    assert receiver.recv() == 0
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(StoreError, match="another process is writing") as caught:
        Journal.resume(Journal.path_of(output), HEADER)
    assert f"process {process.pid} on {os.uname().nodename}" in caught.value.seen
    process.kill()
    process.join()
    journal, units = Journal.resume(Journal.path_of(output), HEADER)
    journal.close()
    assert units
    receiver.close()
    process.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    options = b"size=256k"
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options) != 0:
        pytest.skip(f"mounting is not permitted: {os.strerror(ctypes.get_errno())}")
    yield folder
    libc.umount2(os.fsencode(folder), 2)


def fill(folder: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"x" * 4096):
                pass
        except OSError:
            return ballast


def test_a_full_disk_leaves_the_journal_valid_and_the_run_goes_on_when_there_is_space(
    small_disk: Path,
) -> None:
    path = small_disk / "run.h5.journal"
    journal = Journal.create(path, HEADER)
    journal.append(journal_writer.unit(0))
    ballast = fill(small_disk)
    with pytest.raises(StoreError, match="journal could not be written") as caught:
        for index in range(1, journal_writer.UNITS):
            journal.append(journal_writer.unit(index))
    assert "No space left on device" in caught.value.seen
    assert "free some space" in caught.value.hint
    finished = len(read(path)[1])
    ballast.unlink()
    for index in range(finished, journal_writer.UNITS):
        journal.append(journal_writer.unit(index))
    journal.close()
    units = read(path)[1]
    assert [one.key for one in units] == [
        journal_writer.unit(index).key for index in range(journal_writer.UNITS)
    ]


def test_a_full_disk_leaves_the_old_run_in_place(small_disk: Path) -> None:
    output = small_disk / "run.h5"
    before = journal_writer.fold([journal_writer.unit(0)])
    store.write(before, output)
    content = output.read_bytes()
    fill(small_disk)
    after = journal_writer.fold([journal_writer.unit(i) for i in range(journal_writer.UNITS)])
    with pytest.raises(StoreError, match="the run could not be written") as caught:
        store.write(after, output)
    assert "No space left on device" in caught.value.seen
    assert output.read_bytes() == content
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "run.h5"]


LIMITED = """
import sys, journal_writer, signal
from landscape_cli import store
from landscape_cli.errors import StoreError
from landscape_cli.journal import Journal, read
path = sys.argv[1]
journal = Journal.create(path + ".journal", journal_writer.HEADER)
try:
    for index in range(10_000):
        journal.append(journal_writer.unit(index % journal_writer.UNITS))
except StoreError as error:
    print(error.seen, "|", error.hint)
print(index, len(read(path + ".journal")[1]))
"""


def test_a_limit_on_file_sizes_leaves_the_journal_valid(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "run.h5")],
        preexec_fn=limit,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    message, counts = done.stdout.splitlines()
    assert "File too large | raise the limit on file sizes" in message
    appended, found = map(int, counts.split())
    assert appended == found > 10
