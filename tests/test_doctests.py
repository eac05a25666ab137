"""The examples in the docstrings run and give what they show."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import landscape_cli
import sample_models

OPTIONAL = ("landscape_cli.record.lightning", "landscape_cli.record.transformers")


def modules() -> list[str]:
    found = []
    for package in (landscape_cli, sample_models):
        prefix = f"{package.__name__}."
        found += [item.name for item in pkgutil.walk_packages(package.__path__, prefix)]
    return [name for name in found if name not in OPTIONAL and not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_examples_give_what_they_show(name: str) -> None:
    failures, _ = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert failures == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder()
    counted = sum(
        bool(test.examples)
        for name in modules()
        for test in finder.find(importlib.import_module(name))
    )
    assert counted > 20
