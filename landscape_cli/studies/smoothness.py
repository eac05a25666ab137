"""Claims about the landscape along a direction, as Fig. 4, 9, 11 and 12 make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.compare.quantities import QUANTITIES, Quantity
from landscape_cli.errors import SpecError
from landscape_cli.studies.contract import Claim
from landscape_cli.studies.estimates import Estimate, ratio_over_seeds
from landscape_cli.studies.networks import LABELS, Runs

if TYPE_CHECKING:
    from landscape_cli.runs import Run

PARTS = ("loss_range", "gradient_change", "beta")
"""What the panels of the published figures show, from left to right."""
SATURATED = (
    "β* is saturated at {shares} of the checkpoints: ‖Δg‖ is about ‖g‖ at the smallest step "
    "already, and β* there is about one over that step, whatever the network."
)
LIMIT = "The limit ‖Hd‖/‖d‖, which does not depend on the steps, has the ratio {limit}."
FIRST_STEPS = (
    "At initialisation the ratio is {first}: a normalised network is worse in its first steps."
)
UNTRAINED = (
    "{label} has not left its initial loss ({count} of {seeds} seeds): a plateau is smooth, "
    "whatever the network."
)
LEFT = 0.9
"""Share of the initial loss above which a network has not left it."""
EQUAL_LOSS = "At equal loss instead of equal step the ratio is {ratio}."


def quantity(name: str) -> Quantity:
    """Return a quantity of `landscape.compare` by name."""
    return next(item for item in QUANTITIES if item.name == name)


@dataclass(frozen=True)
class Pairs:
    """Runs of two norms, paired by seed, along one direction.

    Attributes:
        runs: by norm.
        first: the norm that is held against.
        other: the norm that is held against it.
        direction: label on the direction axis.
    """

    runs: Runs
    first: str
    other: str
    direction: str = "gradient"

    def ratio(self, name: str, part: slice = slice(None)) -> Estimate:
        """Return other ÷ first: the geometric mean over checkpoints, then over seeds.

        Args:
            name: of a quantity of `landscape.compare`.
            part: of the checkpoints that both have, in order of training.
        """
        rows = [self._values(*pair, quantity(name))[:, part] for pair in self._pairs()]
        means = [np.exp(np.log(row).mean(axis=1)) if row.size else [np.nan] * 2 for row in rows]
        first, other = np.transpose(means)
        return ratio_over_seeds(other, first)

    def _pairs(self) -> list[tuple[Run, Run]]:
        return list(zip(self.runs[self.first], self.runs[self.other], strict=True))

    def _values(self, first: Run, other: Run, what: Quantity) -> np.ndarray:
        """Return a quantity at the steps that both have, where both are positive: (2, N)."""
        steps = np.intersect1d(first["training_step"], other["training_step"])
        rows = []
        for run in (first, other):
            values = what.values(run)[:, run.labels("direction").index(self.direction)]
            rows.append(values[np.isin(run["training_step"], steps)])
        table = np.array(rows)
        return table[:, (np.isfinite(table) & (table > 0)).all(axis=0)]

    def saturated(self) -> dict[str, float]:
        """Return the share of the checkpoints where β* is saturated, by norm."""
        return {
            norm: float(np.mean([_saturated(run, self.direction) for run in self.runs[norm]]))
            for norm in (self.first, self.other)
        }

    def ratio_at_equal_loss(self, name: str) -> Estimate | None:
        """Return the ratio at points of equal loss; None where the runs have no loss in common."""
        from landscape_cli.compare import compare

        groups = [(norm, run) for norm in (self.first, self.other) for run in self.runs[norm]]
        labels, runs = [norm for norm, _ in groups], [run for _, run in groups]
        try:
            found = compare(*runs, labels=labels, align="loss")
        except SpecError:
            return None
        contrasts = found.pairings[0].contrasts
        found_one = next(
            c for c in contrasts if (c.quantity, c.direction) == (name, self.direction)
        )
        if not found_one.pairs:
            return None
        return Estimate(found_one.ratio, found_one.interval, len(self.runs[self.first]))


def _saturated(run: Run, direction: str) -> float:
    place = run.labels("direction").index(direction)
    return float((run["effective_smoothness/saturated"][:, place] > 0).mean())


def smoother_claims(pairs: Pairs, *, claims: Sequence[str], sources: Sequence[str]) -> list[Claim]:
    """Return whether loss range, gradient change and β* are lower with `other`.

    Args:
        pairs: the runs.
        claims: as published, one for each of `PARTS`.
        sources: where, one for each.
    """
    return [
        _claim(pairs, name, claim, source)
        for name, claim, source in zip(PARTS, claims, sources, strict=True)
    ]


def _claim(pairs: Pairs, name: str, claim: str, source: str) -> Claim:
    ratio = pairs.ratio(name)
    where = "" if pairs.direction == "gradient" else f" along {pairs.direction}"
    return Claim(
        claim=claim,
        source=source,
        expected=f"{quantity(name).title} of {LABELS[pairs.other]} over {LABELS[pairs.first]}"
        f"{where} below 1",
        observed=f"ratio {ratio}",
        holds=ratio.below(1.0),
        interval=ratio.interval,
        explanation=explain(pairs, name),
    )


def explain(pairs: Pairs, name: str) -> str:
    """Return what is known of why a ratio is what it is."""
    texts = []
    if name == "beta":
        shares = {norm: share for norm, share in pairs.saturated().items() if share}
        if shares:
            named = ", ".join(f"{share:.0%} ({LABELS[n]})" for n, share in shares.items())
            texts.append(SATURATED.format(shares=named))
            texts.append(LIMIT.format(limit=pairs.ratio("limit")))
    texts += [explain_untrained(pairs), explain_first_steps(pairs, name)]
    at_equal_loss = pairs.ratio_at_equal_loss(name)
    if at_equal_loss is not None:
        texts.append(EQUAL_LOSS.format(ratio=at_equal_loss))
    return " ".join(filter(None, texts))


def explain_first_steps(pairs: Pairs, name: str) -> str:
    """Return what the ratio is at initialisation, where it is worse than 1 and than later."""
    first = pairs.ratio(name, slice(0, 1))
    worse = first.value > max(1.0, pairs.ratio(name).value)
    return FIRST_STEPS.format(first=first) if worse else ""


def explain_untrained(pairs: Pairs) -> str:
    """Return which of the two networks have a loss at the end that is about the first one."""
    texts = []
    for norm in (pairs.first, pairs.other):
        losses = [run["base_loss"] for run in pairs.runs[norm]]
        count = sum(bool(loss[-1] > LEFT * loss[0]) for loss in losses)
        if count:
            told = {"label": LABELS[norm], "count": count, "seeds": len(losses)}
            texts.append(UNTRAINED.format(**told))
    return " ".join(texts)
