"""A pickle machine that executes nothing.

A pickle is a program for a stack machine. This one runs the instructions that move values about;
where the program names a class or function it gets an inert `Reference`, and where it calls one,
`build` decides what stands for the result. No name is ever imported and no object of the program's
choosing is ever called. Time and memory are linear in the bytes read, and bounded.
"""

from __future__ import annotations

import itertools
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, cast

from landscape_cli.checkpoints.damage import DamagedError
from landscape_cli.checkpoints.mapped import Window

_LARGEST_KEY = 2**61 - 2
"""Larger integers share hash values at will, which makes a dictionary slow."""
_MOST_INSTRUCTIONS = 5_000_000
"""A large model with its optimiser and history takes some hundred thousand."""
_FREE_COPIES = 1 << 16
"""Elements that calls may copy from their arguments; beyond it, two for each byte read."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The name of a class or function in a pickle; never the thing itself."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Inert:
    """What stands for an object of a class that is not rebuilt.

    Attributes:
        reference: the class, or the function that was called.
        arguments: what it was called with.
        attributes: its state, where that is a dictionary.
        state: its state, where that is anything else.
        entries: what was set by key, as in a subclass of dict.
        elements: what was appended, as in a subclass of list.
    """

    reference: Reference
    arguments: tuple[Any, ...] = ()
    attributes: dict[Any, Any] = field(default_factory=dict)
    state: Any = None
    entries: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A dictionary key that would be costly or impossible to compare; equal only to itself."""

    value: Any


Build = Callable[[Reference, tuple[Any, ...]], Any]
Persistent = Callable[[Any], Any]


def refuse_persistent(_: Any) -> Any:
    """Refuse a reference to something outside the pickle."""
    raise DamagedError("a pickle refers to data outside itself")


def load(stream: Window, build: Build, persistent: Persistent = refuse_persistent) -> Any:
    """Return the value of the pickle at the position of `stream`, and move past it.

    Args:
        stream: the bytes.
        build: makes what stands for a call of a reference with arguments.
        persistent: makes what stands for a persistent identifier.

    Raises:
        ValueError: If the bytes are not a pickle, or need what is not allowed; other exceptions
            of `damage.DAMAGE` where they contradict themselves.
    """
    machine = _Machine(build, persistent)
    start = stream.tell()
    instructions = pickletools.genops(cast("IO[bytes]", stream))
    for opcode, argument, _ in itertools.islice(instructions, _MOST_INSTRUCTIONS):
        if opcode.name == "STOP":
            return machine.stack.pop()
        machine.run(opcode.name, argument)
        if machine.copied > _FREE_COPIES and machine.copied > 2 * (stream.tell() - start):
            raise DamagedError("a pickle copies its values over and over")
    raise DamagedError("a pickle does not end")


class _Machine:
    def __init__(self, build: Build, persistent: Persistent) -> None:
        self.stack: list[Any] = []
        self.copied = 0
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._build = build
        self._persistent = persistent

    def run(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        instruction = _INSTRUCTIONS.get(name)
        if instruction is None:
            raise DamagedError(f"a pickle uses {name}, which no checkpoint needs")
        instruction(self, argument)

    def push(self, argument: Any) -> None:
        self.stack.append(argument)

    def ignore(self, _: Any) -> None:
        pass

    def _since_mark(self) -> list[Any]:
        values, self.stack = self.stack, self._marked.pop()
        return values

    def mark(self, _: Any) -> None:
        self._marked.append(self.stack)
        self.stack = []

    def pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._since_mark()

    def pop_mark(self, _: Any) -> None:
        self._since_mark()

    def duplicate(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def put(self, index: int) -> None:
        self._memo[index] = self.stack[-1]

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self._memo[index])

    def tuple_of(self, size: int) -> None:
        if len(self.stack) < size:
            raise DamagedError("a pickle takes from an empty stack")
        self.stack[-size:] = [tuple(self.stack[-size:])]

    def tuple_since_mark(self, _: Any) -> None:
        values = self._since_mark()
        self.stack.append(tuple(values))

    def list_since_mark(self, _: Any) -> None:
        values = self._since_mark()
        self.stack.append(values)

    def dict_since_mark(self, _: Any) -> None:
        values = self._since_mark()
        self.stack.append(_paired(values))

    def frozenset_since_mark(self, _: Any) -> None:
        values = self._since_mark()
        self.stack.append(frozenset(map(key_of, values)))

    def append(self, _: Any) -> None:
        value = self.stack.pop()
        _extend(self.stack[-1], [value])

    def appends(self, _: Any) -> None:
        values = self._since_mark()
        _extend(self.stack[-1], values)

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _update(self.stack[-1], {key_of(key): value})

    def set_items(self, _: Any) -> None:
        values = self._since_mark()
        _update(self.stack[-1], _paired(values))

    def add_items(self, _: Any) -> None:
        values = self._since_mark()
        if not isinstance(self.stack[-1], set):
            raise DamagedError("a pickle adds members to what is not a set")
        self.stack[-1].update(map(key_of, values))

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(Reference(module, name))

    def stack_name(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise DamagedError("a pickle names a class by what is not text")
        self.stack.append(Reference(module, name))

    def reduce(self, _: Any) -> None:
        arguments, callee = self.stack.pop(), self.stack.pop()
        self.stack.append(self._call(callee, arguments))

    def new_object_with_keywords(self, _: Any) -> None:
        keywords, arguments, callee = self.stack.pop(), self.stack.pop(), self.stack.pop()
        made = self._call(callee, arguments)
        if isinstance(made, Inert) and isinstance(keywords, dict):
            made.attributes.update(keywords)
        self.stack.append(made)

    def instance(self, argument: str) -> None:
        arguments = self._since_mark()
        module, _, name = argument.partition(" ")
        self.stack.append(self._call(Reference(module, name), tuple(arguments)))

    def object_since_mark(self, _: Any) -> None:
        callee, *arguments = self._since_mark()
        self.stack.append(self._call(callee, tuple(arguments)))

    def _call(self, callee: Any, arguments: Any) -> Any:
        if not isinstance(arguments, tuple):
            raise DamagedError("a pickle calls with what is not a tuple")
        self.copied += sum(len(item) for item in arguments if isinstance(item, _SIZED))
        if isinstance(callee, Reference):
            return self._build(callee, arguments)
        if isinstance(callee, Inert):
            return Inert(callee.reference, arguments)
        raise DamagedError("a pickle calls what is not a name")

    def set_state(self, _: Any) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, Inert):
            return  # attributes of dictionaries and tensors: hooks, versions
        parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        if all(part is None or isinstance(part, dict) for part in parts):
            for part in parts:
                target.attributes.update(part or {})
        else:
            target.state = state

    def persist(self, identifier: Any) -> None:
        self.stack.append(self._persistent(identifier))

    def persist_stack(self, _: Any) -> None:
        self.stack.append(self._persistent(self.stack.pop()))


_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_LITERALS = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("BYTEARRAY8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
)
_INSTRUCTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(_LITERALS, _Machine.push),
    "PROTO": _Machine.ignore,
    "FRAME": _Machine.ignore,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": _Machine.duplicate,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "TUPLE": _Machine.tuple_since_mark,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": _Machine.list_since_mark,
    "DICT": _Machine.dict_since_mark,
    "FROZENSET": _Machine.frozenset_since_mark,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "ADDITEMS": _Machine.add_items,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "NEWOBJ_EX": _Machine.new_object_with_keywords,
    "INST": _Machine.instance,
    "OBJ": _Machine.object_since_mark,
    "BUILD": _Machine.set_state,
    "PERSID": _Machine.persist,
    "BINPERSID": _Machine.persist_stack,
}


def key_of(value: Any) -> Any:
    """Return `value` if it is cheap to hash and compare, else an `Opaque` that holds it."""
    if isinstance(value, tuple):
        flat = len(value) <= 64 and all(_is_scalar(item) for item in value)
        return value if flat else Opaque(value)
    return value if _is_scalar(value) or isinstance(value, Inert | Reference) else Opaque(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, int):
        return -_LARGEST_KEY <= value <= _LARGEST_KEY
    return value is None or isinstance(value, str | bytes | float)


def _paired(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise DamagedError("a pickle sets a key without a value")
    return {key_of(values[i]): values[i + 1] for i in range(0, len(values), 2)}


def _extend(target: Any, values: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, Inert):
        target.elements.extend(values)
    else:
        raise DamagedError("a pickle appends to what is not a list")


def _update(target: Any, items: dict[Any, Any]) -> None:
    if isinstance(target, dict):
        target.update(items)
    elif isinstance(target, Inert):
        target.entries.update(items)
    else:
        raise DamagedError("a pickle sets a key of what is not a dictionary")
