"""Imports point one way, and what should start fast does not load torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import landscape_cli

PACKAGE = Path(landscape_cli.__file__).parent

LAYERS = (
    ("errors", "progress", "specs", "runs", "disk", "planes", "contract"),
    ("checkpoints", "adapters"),
    (
        *("randomness", "threads", "devices", "parameters", "points", "units", "norm_layers"),
        *("batches", "buffers", "derivatives", "prefetch", "losses"),
        *("directions", "plan", "objective", "site"),
        *("sums", "lanczos", "curvature"),
    ),
    (
        "layers",
        "design",
        "captures",
        "features",
        "precision",
        "unit_hessians",
        "lanczos",
        "curvature",
    ),
    ("measures",),
    ("engine",),
    ("journal", "assembly", "store", "ledger"),
    ("compare", "figures"),
    ("probing", "record", "training", "sending"),
    ("studies", "demo", "doctor", "verify"),
    ("cli",),
)
"""Parts from below to above: each imports its own layer and those below it.

``contract`` is every contract.py, which is vocabulary, whatever folder it is in.
"""

LIBRARY = "landscape_cli"
TORCH_FREE = (
    *("__init__", "errors", "specs", "runs", "progress", "plan", "units", "demo"),
    *("assembly", "ledger", "journal", "store", "compare", "figures", "cli"),
)
"""What never loads torch by being imported."""

APART = {
    "compare": ("engine", "objective", "probing", "checkpoints", "parameters"),
    "figures": ("engine", "objective", "probing", "checkpoints", "parameters"),
    "store": ("engine", "objective", "probing", "checkpoints", "measures"),
    "journal": ("engine", "objective", "probing", "store"),
    "engine": ("cli", "store", "journal", "figures", "compare", "adapters"),
    "measures": ("cli", "store", "journal", "figures", "compare"),
    "checkpoints": ("engine", "objective", "measures", "store", "cli"),
    "adapters": ("engine", "objective", "measures", "store", "cli"),
}
"""What a part must not import anywhere, in functions included."""


@dataclass(frozen=True)
class Import:
    where: Path
    line: int
    target: str
    at_import: bool

    @property
    def part(self) -> str:
        """The part of the library that is imported, empty for other packages."""
        names = self.target.split(".")
        if names[0] == LIBRARY and names[-1] == "contract":
            return "contract"
        return names[1] if names[0] == LIBRARY and len(names) > 1 else ""

    def __str__(self) -> str:
        return f"{self.where.relative_to(PACKAGE)}:{self.line} imports {self.target}"


def part_of(path: Path) -> str:
    if path.name == "contract.py":
        return "contract"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(part: str) -> int | None:
    return next((index for index, names in enumerate(LAYERS) if part in names), None)


def is_above(part: str, other: str) -> bool:
    layers = layer_of(part), layer_of(other)
    return None not in layers and layers[0] > layers[1]


def targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        if node.module == LIBRARY:
            return [f"{LIBRARY}.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def walk(node: ast.AST, path: Path, at_import: bool = True) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for target in targets(child):
            yield Import(path, child.lineno, target, at_import)
        if is_for_types(child):
            continue
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from walk(child, path, at_import and not inside)


def imports() -> list[Import]:
    return [
        found
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in walk(ast.parse(path.read_text(encoding="utf-8")), path)
    ]


ALL = imports()


def test_every_module_has_its_layer() -> None:
    parts = {part_of(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    unplaced = sorted(part for part in parts if layer_of(part) is None)
    assert not unplaced, f"say in LAYERS where these belong: {unplaced}"


def test_modules_import_only_what_lies_below_them() -> None:
    upward = [
        str(found)
        for found in ALL
        if found.at_import
        and found.part
        and part_of(found.where) != "__init__"
        and is_above(found.part, part_of(found.where))
    ]
    assert not upward


@pytest.mark.parametrize("part", APART)
def test_parts_that_are_to_stay_apart_do(part: str) -> None:
    wrong = [
        str(found) for found in ALL if part_of(found.where) == part and found.part in APART[part]
    ]
    assert not wrong


def test_no_torch_at_import_where_it_is_not_needed() -> None:
    wrong = [
        str(found)
        for found in ALL
        if found.at_import
        and found.target.split(".")[0] == "torch"
        and part_of(found.where) in TORCH_FREE
    ]
    assert not wrong


@pytest.mark.parametrize("part", [name for name in TORCH_FREE if name not in ("__init__", "cli")])
def test_importing_a_torch_free_part_loads_no_torch(part: str) -> None:
    code = f"import sys, {LIBRARY}.{part}; assert 'torch' not in sys.modules, 'torch was loaded'"
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


def test_parts_do_not_import_each_other_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for found in ALL:
        if found.at_import and found.part and part_of(found.where) != "__init__":
            edges.setdefault(part_of(found.where), set()).add(found.part)
    graph = TopologicalSorter({part: others - {part} for part, others in edges.items()})
    graph.prepare()  # raises CycleError, which names the circle


def test_the_library_imports_the_sample_models_only_where_they_are_asked_for() -> None:
    wrong = [
        str(found)
        for found in ALL
        if found.target.split(".")[0] == "sample_models"
        and found.at_import
        and part_of(found.where) != "studies"
    ]
    assert not wrong


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "helpers", "common", "misc", "core"}
    roots = (PACKAGE, PACKAGE.parent / "sample_models")
    assert not [path for root in roots for path in root.rglob("*.py") if path.stem in drawers]
