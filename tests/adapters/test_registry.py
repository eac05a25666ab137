"""Finding plugins by name, and what happens to those that are broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from landscape_cli.adapters import registry
from landscape_cli.adapters.checking import check
from landscape_cli.errors import AdapterError, LandscapeError, SpecError

MODULES = {
    "fine": "def build(target, **options):\n    return target",
    "raises_runtime": "raise RuntimeError('no licence\\nfound')",
    "raises_import": "import a_module_that_is_not_there",
    "exits": "import sys; sys.exit(3)",
    "raises_base": "class Panic(BaseException): pass\nraise Panic('rust')",
    "does_not_parse": "def build(:",
    "no_attribute": "x = 1",
    "not_callable": "build = 5",
    "prints": "print('hello'); import sys; sys.stdout.flush()\ndef build(target): return target",
    "ends_interpreter": "import os; os._exit(7)",
    "sleeps": "import time; time.sleep(60)",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path where distributions can be made up."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(f"plugin_{name}", None)


def install(folder: Path, distribution: str, entries: dict[str, str], group: str) -> None:
    info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(lines) + "\n")


def install_modules(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"plugin_{name}.py").write_text(MODULES[name])
    entries = {name: f"plugin_{name}:build" for name in names}
    install(folder, "some-plugins", entries, registry.MODEL_GROUP)


def test_builtins_are_found_as_anybodys_plugins_are() -> None:
    assert {"file", "sample"} <= set(registry.models().names())
    assert {"file", "npz", "safetensors", "sample"} <= set(registry.data().names())
    assert registry.models().find("sample").distribution == registry.OURS


def test_every_builtin_can_be_imported_and_called() -> None:
    for found in (registry.models(), registry.data(), registry.measures()):
        for plugin in found.plugins:
            if plugin.distribution == registry.OURS:
                assert callable(found.load(plugin.name)), plugin


def test_a_plugin_is_found_with_its_distribution_and_version(installed: Path) -> None:
    install_modules(installed, "fine")
    plugin = registry.models().find("fine")
    assert (plugin.distribution, plugin.version) == ("some-plugins", "1.2")
    assert registry.models().load("fine")("x") == "x"


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("raises_runtime", "RuntimeError: no licence found"),
        ("raises_import", "No module named 'a_module_that_is_not_there'"),
        ("exits", "SystemExit: 3"),
        ("raises_base", "Panic: rust"),
        ("does_not_parse", "SyntaxError"),
        ("no_attribute", "AttributeError"),
        ("not_callable", "is a int"),
    ],
)
def test_a_broken_plugin_is_named_with_the_reason(installed: Path, name: str, seen: str) -> None:
    install_modules(installed, name, "fine")
    with pytest.raises(AdapterError) as caught:
        registry.models().load(name)
    assert repr(name) in caught.value.what
    assert seen in caught.value.seen
    assert "some-plugins" in caught.value.hint
    assert registry.models().load("fine"), "the others are not harmed"


def test_checking_survives_every_way_to_break_and_reports_each(installed: Path) -> None:
    install_modules(installed, *MODULES)
    found = [p for p in registry.models().plugins if p.distribution == "some-plugins"]
    errors = {plugin.name: plugin.error for plugin in check(found, seconds=2)}
    assert list(errors) == [plugin.name for plugin in found]
    assert errors["fine"] == errors["prints"] == ""
    assert errors["raises_runtime"] == "RuntimeError: no licence found"
    assert errors["exits"] == "SystemExit: 3"
    assert errors["raises_base"] == "Panic: rust"
    assert "a_module_that_is_not_there" in errors["raises_import"]
    assert errors["does_not_parse"].startswith("SyntaxError")
    assert errors["no_attribute"].startswith("AttributeError")
    assert errors["not_callable"] == "plugin_not_callable:build cannot be called"
    assert errors["ends_interpreter"] == "the import ends the interpreter (exit status 7)"
    assert errors["sleeps"] == "the import takes more than 2 seconds"
    assert not any(name.startswith("plugin_") for name in sys.modules), "nothing comes in here"


def test_a_builtin_keeps_its_name_and_the_clash_is_reported(installed: Path) -> None:
    (installed / "plugin_fine.py").write_text(MODULES["fine"])
    install(installed, "aaa-thief", {"sample": "plugin_fine:build"}, registry.MODEL_GROUP)
    found = registry.models()
    assert found.find("sample").distribution == registry.OURS
    shadowed = [plugin for plugin in found.plugins if plugin.distribution == "aaa-thief"]
    assert [plugin.shadowed_by for plugin in shadowed] == [registry.OURS]
    assert found.names().count("sample") == 1


def test_of_two_strangers_the_first_by_distribution_has_the_name(installed: Path) -> None:
    for distribution in ("zeta", "alpha"):
        install(installed, distribution, {"same": "plugin_fine:build"}, registry.MODEL_GROUP)
    found = registry.models()
    assert found.find("same").distribution == "alpha"
    assert [p.shadowed_by for p in found.plugins if p.distribution == "zeta"] == ["alpha"]


def test_an_unknown_name_lists_the_known_and_suggests_the_closest() -> None:
    with pytest.raises(SpecError) as caught:
        registry.models().load("sampel")
    assert caught.value.what == "no model adapter is named 'sampel'"
    assert caught.value.seen == ", ".join(registry.models().names())
    assert caught.value.hint == "--model sample:TARGET, or `landscape adapters`"


def test_an_unknown_measure_is_refused_as_a_measure() -> None:
    with pytest.raises(LandscapeError, match="no measure is named 'nonsense'") as caught:
        registry.measures().load("nonsense")
    assert caught.value.exit_code == 2


def test_listing_the_plugins_imports_none_of_them() -> None:
    code = (
        "import sys; from landscape_cli.adapters import registry, checking, file;"
        "registry.models(); registry.data(); registry.measures();"
        "print([n for n in ('torch', 'numpy', 'h5py', 'sample_models') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
