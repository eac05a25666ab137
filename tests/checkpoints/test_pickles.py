from __future__ import annotations

import collections
import contextlib
import pickle
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from landscape_cli.checkpoints.damage import DAMAGE
from landscape_cli.checkpoints.mapped import Window
from landscape_cli.checkpoints.pickles import Inert, Opaque, Reference, key_of, load
from landscape_cli.checkpoints.reconstruction import rebuild

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(-9, 9), inner, max_size=4)
    ),
    max_leaves=12,
)


def run(data: bytes):
    return load(Window(memoryview(data)), rebuild)


@given(value=PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
@settings(max_examples=150, deadline=None)
def test_plain_values_are_what_the_standard_unpickler_gives(value, protocol):
    data = pickle.dumps(value, protocol=protocol)
    assert run(data) == pickle.loads(data)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_shared_and_circular_values_stay_so(protocol):
    shared: list[object] = [1]
    shared.append(shared)
    first, second = run(pickle.dumps([shared, shared], protocol=protocol))
    assert first is second
    assert first[1] is first


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_ordered_and_default_dictionaries_are_dictionaries(protocol):
    values = [collections.OrderedDict(a=1, b=2), collections.defaultdict(list, {"c": 3})]
    assert run(pickle.dumps(values, protocol=protocol)) == [{"a": 1, "b": 2}, {"c": 3}]


@pytest.mark.parametrize("protocol", [4, 5])
def test_sets_are_sets(protocol):
    assert run(pickle.dumps([{1, 2}, frozenset("ab")], protocol=protocol)) == [{1, 2}, {"a", "b"}]


class Thing:
    def __init__(self, size: int) -> None:
        self.size = size

    def __setstate__(self, state) -> None:
        raise AssertionError("code of the pickle was run")


class Bag(dict):
    pass


class Row(list):
    pass


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_unknown_object_is_inert_and_keeps_its_attributes(protocol):
    made = run(pickle.dumps(Thing(3), protocol=protocol))
    assert isinstance(made, Inert)
    assert made.attributes == {"size": 3}


def test_subclasses_of_collections_keep_what_they_hold():
    bag, row = run(pickle.dumps([Bag(a=1), Row([1, 2])]))
    assert bag.entries == {"a": 1}
    assert row.elements == [1, 2]


def test_a_class_is_a_name():
    made = run(pickle.dumps(Thing))
    assert isinstance(made, Reference)
    assert made.name == "Thing"


def test_two_pickles_in_one_stream_are_read_one_after_the_other():
    window = Window(memoryview(pickle.dumps([1]) + pickle.dumps("two")))
    assert [load(window, rebuild), load(window, rebuild)] == [[1], "two"]


def _nested_tuples(depth: int) -> bytes:
    """Return a tuple of two equal tuples of two equal tuples …, used as a key."""
    body = b"(t" + b"".join(b"q\x010h\x01h\x01\x86" for _ in range(depth))
    return b"\x80\x02}" + body + b"K\x01s."


BOMBS = {
    "a key of 2^60 leaves": _nested_tuples(60),
    "a key 200,000 deep": b"}" + b")" + b"\x85" * 200_000 + b"K\x01s.",
    "a value 200,000 deep": b")" + b"\x85" * 200_000 + b".",
    "a list 200,000 deep": b"]" * 200_000 + b"a" * 199_999 + b".",
    "a memo of two billion": b"Nr" + struct.pack("<I", 2**31 - 1) + b".",
    "bytes without end": b"\x8e" + struct.pack("<Q", 2**60) + b"x.",
    "text without end": b"\x8d" + struct.pack("<Q", 2**62) + b"x.",
    "a long integer without end": b"\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
    "a frame without end": b"\x80\x04\x95" + struct.pack("<Q", 2**63 - 1) + b"N.",
    "digits without end": b"I" + b"9" * 1_000_000 + b"\n.",
    "keys that collide": b"}("
    + b"".join(b"\x8a\x0a" + (i * (2**61 - 1)).to_bytes(10, "little") + b"N" for i in range(20_000))
    + b"u.",
    "copies of copies": b"ccollections\nOrderedDict\nq\x000](" + b"(K\x01K\x01e" * 0
    + b"".join(b"K\x01K\x01\x86" for _ in range(2_000)) + b"eq\x010"
    + b"h\x00h\x01\x85R" * 20_000 + b".",
    "text encoded over and over": b"c_codecs\nencode\nq\x000X" + struct.pack("<I", 10**6)
    + b"a" * 10**6 + b"q\x010" + b"h\x00h\x01\x85R" * 20_000 + b".",
}  # fmt: skip


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_bombs_end_at_once(bomb):
    started = time.process_time()
    with contextlib.suppress(DAMAGE):
        run(BOMBS[bomb])
    assert time.process_time() - started < 3, "a fraction of a second is usual"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"N",
        b"(.",
        b"\x85.",
        b"\x86.",
        b"0.",
        b"h\x07.",
        b"]K\x01s.",
        b"NNR.",
        b"N)R.",
        b"(K\x01d.",
        b"N(K\x01e.",
        b"NNNs.",
        b"NN\x93.",
        b"N(K\x01\x90.",
        b"cos\nsystem\nNR.",
        b"Pid\n.",
        b"NQ.",
        b"\x82\x01.",
        b"\x97.",
        b"\x96" + bytes(8) + b"\x98.",
        b"cos.",
        b"i.",
        b"(o.",
        b"Vx\\ud",
    ],
)
def test_nonsense_is_damage(data):
    with pytest.raises(DAMAGE):
        run(data)


@given(st.lists(st.integers(0, 255), max_size=60).map(bytes))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_a_value_or_damage(data):
    with contextlib.suppress(DAMAGE):
        run(b"(](}N(" + data + b".")


def test_keys_that_are_costly_to_compare_are_opaque():
    assert isinstance(key_of(2**61 - 1), Opaque)
    assert isinstance(key_of(((1,),)), Opaque)
    assert isinstance(key_of([]), Opaque)
    assert key_of(("a", 1)) == ("a", 1)
    assert key_of(-5) == -5
