"""The table of all claims, written from the ``claims.json`` of studies that were run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from landscape_cli.errors import StoreError
from landscape_cli.studies.registry import NAMES
from landscape_cli.studies.reproduce import CLAIMS, VERDICTS


def read_claims(root: str | Path) -> list[dict[str, Any]]:
    """Return the contents of every ``claims.json`` in a folder and below, in the studies' order.

    Raises:
        StoreError: If there is none, or one cannot be read.
    """
    paths = sorted(Path(root).rglob(CLAIMS))
    if not paths:
        raise StoreError(
            f"no {CLAIMS} is in the folder", seen=root, hint="landscape reproduce STUDY first"
        )
    found = [_read(path) for path in paths]
    order = {name: place for place, name in enumerate(NAMES)}
    return sorted(found, key=lambda item: order.get(item["study"], len(order)))


def _read(path: Path) -> dict[str, Any]:
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
        return {name: values[name] for name in ("study", "title", "source", "preset", "claims")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"a {CLAIMS} cannot be read", seen=f"{path}: {error}", hint="run the study again"
        ) from None


def render_table(studies: Iterable[Mapping[str, Any]]) -> str:
    """Return the claims of studies as Markdown: counts, then a heading and a table for each."""
    told = list(studies)
    return "\n".join([_counts(told), *map(_section, told)])


def _counts(studies: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"| study | {' | '.join(VERDICTS.values())} |", "|---|--:|--:|--:|"]
    for study in studies:
        holds = [claim["holds"] for claim in study["claims"]]
        counts = [str(sum(one is verdict for one in holds)) for verdict in VERDICTS]
        lines.append(f"| `{study['study']}` | {' | '.join(counts)} |")
    return "\n".join([*lines, ""])


def _section(study: Mapping[str, Any]) -> str:
    lines = [
        f"### `{study['study']}`: {study['title']}",
        "",
        f"{study['source']}; preset `{study['preset']}`.",
        "",
        "| claim | expected | observed | verdict |",
        "|---|---|---|---|",
    ]
    for claim in study["claims"]:
        observed = " ".join(filter(None, (f"{claim['observed']}.", claim.get("explanation", ""))))
        cells = (claim["claim"], claim["expected"], observed, f"**{VERDICTS[claim['holds']]}**")
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
