"""The measures that are installed, by the names that ``--measure`` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from landscape_cli.errors import SpecError
from landscape_cli.specs import parse_options

BASIC = ("loss_range", "gradient_predictiveness", "effective_smoothness")
"""What every probe gives, asked for or not."""


def resolve(texts: Sequence[str]) -> dict[str, Any]:
    """Return the measures in ``NAME`` or ``NAME?key=value``, by name, the basic ones left out.

    Raises:
        SpecError: If a measure is given twice or its options do not fit.
        AdapterError: If no measure has the name, or it cannot be imported.
    """
    found: dict[str, Any] = {}
    for text in texts:
        address, _, query = text.partition("?")
        name = address.replace("-", "_")
        if name in BASIC:
            continue
        if name in found:
            raise SpecError("a measure is given twice", seen=name, hint="give each once")
        factory = _load(name)
        try:
            found[name] = factory(**parse_options(query, text, "measure"))
        except TypeError as error:
            raise SpecError(
                f"the measure {name!r} does not take these options", seen=text, hint=str(error)
            ) from None
    return found


def _load(name: str) -> Any:
    from landscape_cli.adapters import registry

    return registry.measures().load(name)
