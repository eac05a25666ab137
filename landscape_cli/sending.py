"""What is sent to other processes: by name where they can import it, by value where they cannot."""

from __future__ import annotations

import importlib
import io
import pickle
from types import FunctionType
from typing import Any

from landscape_cli.adapters import file
from landscape_cli.errors import MeasurementError

BY_VALUE = ("cloudpickle", "ray.cloudpickle")
"""Where to find a pickler that sends the code of classes and functions, if one is installed."""


def pack(value: Any) -> bytes:
    """Return a pickle of `value` for other processes of this program.

    The script that runs is never imported there, as that would run it once more: what it defines
    is sent by value. For that cloudpickle has to be installed.

    Raises:
        MeasurementError: If something in it cannot be sent.
    """
    stream = io.BytesIO()
    try:
        _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:  # noqa: BLE001  somebody else's objects may raise anything
        return _pack_by_value(value, error)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    """Refuses what is defined in the script that runs; finds again what is in a FILE.py."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, type | FunctionType):
            return NotImplemented
        if value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is defined in the script that runs")
        home = file.home_of(value.__module__)
        if home is None:
            return NotImplemented
        if file.find(home, value.__qualname__) is not value:
            raise pickle.PicklingError(f"{home[0]} has changed since it was read")
        return file.find, (home, value.__qualname__)


def _pack_by_value(value: Any, reason: Exception) -> bytes:
    for name in BY_VALUE:
        try:
            pickler = importlib.import_module(name)
        except ImportError:
            continue
        try:
            packed: bytes = pickler.dumps(value)
        except Exception as error:
            raise _refusal(error) from error
        return packed
    raise _refusal(reason, ", or pip install cloudpickle") from reason


def _refusal(reason: Exception, more: str = "") -> MeasurementError:
    lines = str(reason).strip().splitlines() or [type(reason).__name__]
    return MeasurementError(
        "the model or the data cannot be sent to other processes",
        seen=lines[0][:200],
        hint=f"give them as specs: FILE.py:FACTORY or ADAPTER:TARGET{more}",
    )
