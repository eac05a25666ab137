"""The studies of Lange et al.: the published protocol, and numbers by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from landscape_cli.errors import SpecError
from landscape_cli.runs import Run, Variable
from landscape_cli.studies import registry
from landscape_cli.studies.contests import Contest, Outcome
from landscape_cli.studies.estimates import mean_over_seeds
from landscape_cli.studies.lange_fig4 import untrained_claim
from landscape_cli.studies.lange_fig6 import jumps
from landscape_cli.studies.lange_fig8 import typical
from landscape_cli.studies.lange_table1 import PUBLISHED
from landscape_cli.studies.reproduce import reproduce
from landscape_cli.studies.workbench import Trained, Workbench

NEEDING_DATA = [name for name in registry.NAMES if name.startswith(("lange-", "flaherty-"))]


@pytest.mark.parametrize("name", NEEDING_DATA)
def test_the_published_protocol_needs_the_published_data(name, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("LANDSCAPE_DATA", raising=False)
    with pytest.raises(SpecError) as caught:
        reproduce(name, preset="paper", out=tmp_path)
    assert "published data are needed" in caught.value.what
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.fixture
def contests(tmp_path: Path):
    """The published contests of a study, by name."""

    def build(name: str) -> dict[str, Contest]:
        bench = Workbench(tmp_path, "paper", data_root=tmp_path)
        return {contest.name: contest for contest in registry.find(name).contests(bench)}

    return build


def rates(contest: Contest) -> dict[str, float]:
    return {method.label: method.lr for method in contest.methods}


def test_dense_networks_have_the_learning_rates_of_table_2(contests) -> None:
    third, fourth = contests("lange-fig3"), contests("lange-fig4")
    assert rates(third["mnist-60"]) == {"vanilla": 0.1, "BN": 0.5, "LN": 0.1, "BNP": 0.5}
    assert rates(third["cifar10-60"]) == {"vanilla": 0.01, "BN": 0.5, "LN": 0.5, "BNP": 0.1}
    six = {"vanilla": 5e-3, "BN": 0.05, "BN Renorm": 0.05, "LN": 0.05, "BNP": 0.05}
    assert rates(fourth["dense-6"]) == six
    one = rates(fourth["dense-1"])
    assert (one["vanilla"], one["LN"], one["BNP"]) == (5e-4, 0.01, 0.1)
    assert all("hidden=100,100,100&" in c.model for c in third.values())


def test_convolutional_networks_have_the_learning_rates_of_table_3(contests) -> None:
    fifth = contests("lange-fig5")
    assert set(rates(fifth["cnn-128"]).values()) == {0.1}
    small = {"vanilla": 1e-3, "BN": 1e-3, "BN Renorm": 0.01, "BNP": 0.01}
    assert rates(fifth["cnn-2"]) == small
    one = rates(contests("lange-fig4")["cnn-1"])
    assert (one["vanilla"], one["BNP"]) == (1e-3, 0.1)
    assert all("channels=32,64,32&" in c.model for c in fifth.values())


def test_residual_networks_have_the_settings_of_appendix_b(contests) -> None:
    sixth = contests("lange-fig6")
    left, right = sixth["cifar10"], sixth["cifar100"]
    assert rates(left) == {"BN": 0.1, "GN": 0.1, "BNP": 0.1, "BNP+GN": 0.1}
    assert rates(right)["BNP"] == 0.01
    assert left.settings["decay_at"] == (80 * 391, 120 * 391)
    assert right.settings["decay_at"] == (150 * 391, 220 * 391)
    assert (left.settings["momentum"], left.settings["weight_decay"]) == (0.9, 1e-4)
    combined = {name: contest.methods[-1] for name, contest in sixth.items()}
    assert combined["cifar10"].settings["weight_decay"] == 1.5e-4
    assert combined["cifar100"].settings["weight_decay"] == 2e-4
    assert "init_scale=0.1" in combined["cifar10"].style
    assert "init_scale=0.4" in combined["cifar100"].style
    assert "init_scale=0.1" in left.methods[2].style
    assert "classes=100&preactivation=True" in right.model
    assert all("augment=True" in contest.data[0] for contest in sixth.values())
    assert not any("augment" in contest.data[1] for contest in sixth.values())


def test_the_published_times_have_the_published_order() -> None:
    ratios = {size: round(bnp / bn, 3) for size, (bn, bnp) in PUBLISHED.items()}
    assert ratios == {16: 1.038, 256: 0.99, 512: 0.991}


def test_times_are_per_epoch_and_without_the_first_repetition(reproduced) -> None:
    result = reproduced("lange-table1")
    folders = {path.name for path in (result.folder / "trainings").iterdir()}
    assert folders == {
        f"{n}-{m}-{s}" for n in (16, 256, 512) for m in ("bn", "bnp") for s in range(3)
    }
    assert len(result.claims) == 6


def jumping(before: float, behind: float, count: int = 2) -> list[Trained]:
    steps = np.arange(41)
    tested = np.full(41, np.nan)
    tested[::2] = np.where(np.arange(21) * 2 <= 20, before, behind)
    history = {"step": steps, "loss": steps.astype(float), "test_accuracy": tested}
    one = Trained("t", "m", "d", "cross-entropy", 0.1, (), history, None, 1.0)
    return [one] * count


def outcome(trainings, refusals=None) -> Outcome:
    contest = Contest("cnn-1", "C", "m", ("d", "t"), (), (), 40, 1, "S (2022)", {"decay_at": (20,)})
    return Outcome(contest, trainings, refusals or {})


def test_a_jump_is_what_the_decay_brings() -> None:
    found = outcome({"BN": jumping(0.5, 0.7), "BNP": jumping(0.6, 0.6)})
    assert jumps(found, "BN") == pytest.approx([0.2, 0.2])
    assert jumps(found, "BNP") == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize(("accuracy", "holds"), [(0.1, True), (0.6, False)])
def test_what_stays_near_chance_has_not_trained(accuracy, holds) -> None:
    claim = untrained_claim(outcome({"BN": jumping(accuracy, accuracy)}), "BN")
    assert claim.holds is holds


def test_what_cannot_make_a_step_has_not_trained() -> None:
    claim = untrained_claim(outcome({}, {"BN": "the model raised an error"}), "BN")
    assert claim.holds is True
    assert claim.observed == "no step: the model raised an error"


def test_typical_condition_numbers_are_geometric_and_of_common_checkpoints() -> None:
    dims = ("checkpoint", "unit")
    run = Run(
        {
            "conditioning/hessian": Variable(dims, np.array([[1e2], [1e4], [np.nan]])),
            "conditioning/preconditioned": Variable(dims, np.array([[10.0], [1e3], [5.0]])),
        }
    )
    assert typical(run, "hessian", "preconditioned") == pytest.approx([1e3, 1e2])


def test_proposition_7_holds_at_smoke(reproduced) -> None:
    equal, step, through, _ = reproduced("lange-prop7").claims
    assert equal.holds
    assert step.holds
    assert through.holds
    assert mean_over_seeds(list(step.interval)).value < 1e-12
