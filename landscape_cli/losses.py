"""The objective's per-batch loss: a total over terms, summed in float64, and how many terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape_cli.batches import TARGET_NAMES, Batch
from landscape_cli.errors import LandscapeError, MeasurementError, SpecError

IGNORED = -100
"""The target that cross-entropy leaves out, as everywhere in PyTorch."""


class Loss(Protocol):
    """A loss as the objective needs it: L = Σ total ÷ Σ terms over the batches.

    Attributes:
        whole: whether the model is given the target as well, and computes the loss itself.
    """

    @property
    def whole(self) -> bool:
        """Whether the model computes the loss itself."""
        ...

    def terms(self, batch: Batch) -> int:
        """Return how many terms the batch's mean is over: samples, elements or tokens."""
        ...

    def total(self, output: Any, batch: Batch) -> Tensor:
        """Return the sum of the batch's terms; float64 where the terms are known, shape ()."""
        ...


def logits(output: Any) -> Tensor:
    """Return the prediction in a model's output: itself, its ``logits``, or its first item."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]  # type: ignore[no-any-return]
    if isinstance(getattr(output, "logits", None), Tensor):
        return output.logits  # type: ignore[no-any-return]
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    raise MeasurementError(
        "the model's output is not a prediction",
        seen=type(output).__name__,
        hint="return a tensor or an object with .logits, or use --loss model",
    )


def _target(batch: Batch) -> Tensor:
    if isinstance(batch.target, Tensor):
        return batch.target
    raise MeasurementError(
        "a batch has no target tensor",
        seen=type(batch.target).__name__,
        hint=f"give (input, target) or a field named {', '.join(TARGET_NAMES)}; or --loss model",
    )


def _sum(terms: Tensor) -> Tensor:
    return terms.sum(dtype=torch.float64)


@dataclass(frozen=True)
class Classification:
    """Cross-entropy on logits, or negative log-likelihood on log-probabilities.

    Integer targets have shape (N, …) against outputs (N, C, …), or (N, …, C) as language models
    have them; floating targets are class probabilities. A term is a sample or a token; those
    with the target −100 are left out.
    """

    function: Callable[..., Tensor]
    whole: bool = False

    def terms(self, batch: Batch) -> int:
        """Return the number of targets that count."""
        target = _target(batch)
        if target.is_floating_point():
            return int(target.numel() // target.shape[1])
        return int((target != IGNORED).sum())

    def total(self, output: Any, batch: Batch) -> Tensor:
        """Return the summed loss of the batch."""
        target, scores = _target(batch), logits(output)
        if not target.is_floating_point():
            target = target.long()
            if target.dim() == scores.dim() and target.shape[-1] == 1:
                target = target.squeeze(-1)
            scores, target = _by_class(scores, target)
        try:
            return _sum(self.function(scores, target, reduction="none"))
        except (ValueError, RuntimeError, IndexError) as error:
            raise _mismatch(scores, target, error) from error


def _by_class(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores with the classes on the axis where torch expects them, and their targets."""
    if scores.dim() == target.dim() + 1 and scores.dim() > 2 and scores.shape[:-1] == target.shape:
        # One row per token: classes that stay next to each other are twice as fast.
        return scores.reshape(-1, scores.shape[-1]), target.reshape(-1)
    if scores.dim() == 2 and target.dim() == 2 and scores.shape[0] == target.numel():
        raise MeasurementError(
            "outputs are flattened over tokens, targets are not",
            seen=f"output {tuple(scores.shape)}, target {tuple(target.shape)}",
            hint="return outputs of shape (batch, tokens, classes)",
        )
    return scores, target


@dataclass(frozen=True)
class Elementwise:
    """A loss of every output element against its target: squared, absolute or binary.

    A term is an element of the output, except where the loss is summed (``sse``): there the
    total is the loss, and the number of terms is 0.
    """

    function: Callable[..., Tensor]
    summed: bool = False
    whole: bool = False

    def terms(self, batch: Batch) -> int:
        """Return the number of elements; 0 where the total is not divided."""
        return 0 if self.summed else int(_target(batch).numel())

    def total(self, output: Any, batch: Batch) -> Tensor:
        """Return the summed loss of the batch."""
        prediction = logits(output)
        target = _target(batch).to(prediction.dtype)
        if prediction.shape != target.shape and prediction.numel() == target.numel():
            if prediction.dim() == target.dim():
                raise _mismatch(prediction, target, None)
            target = target.reshape(prediction.shape)
        if prediction.shape != target.shape:
            raise _mismatch(prediction, target, None)
        return _sum(self.function(prediction, target, reduction="none"))


def _mismatch(output: Tensor, target: Tensor, error: Exception | None) -> MeasurementError:
    seen = f"output {tuple(output.shape)}, target {tuple(target.shape)} {target.dtype}"
    return MeasurementError(
        "the model's output and the target do not fit together",
        seen=seen + (f": {str(error).splitlines()[0]}" if error else ""),
        hint="check --loss, the model's classes and the data's target",
    )


@dataclass(frozen=True)
class OwnLoss:
    """The loss that the model returns itself, a mean over its samples or tokens."""

    causal: bool = False
    whole: bool = True

    def terms(self, batch: Batch) -> int:
        """Return the number of labels that count: tokens where labels are sequences."""
        labels = batch.keywords.get("labels", batch.target)
        if isinstance(labels, Tensor) and labels.dim() > 1 and not labels.is_floating_point():
            return int(((labels[:, 1:] if self.causal else labels) != IGNORED).sum())
        return batch.size

    def total(self, output: Any, batch: Batch) -> Tensor:
        """Return the mean that the model gave, times the terms."""
        loss = _own_loss(output)
        return _scalar(loss).double() * self.terms(batch)


def _own_loss(output: Any) -> Any:
    if isinstance(output, Mapping) and "loss" in output:
        return output["loss"]
    if getattr(output, "loss", None) is not None:
        return output.loss
    if isinstance(output, tuple | list) and output:
        return output[0]
    return output


def _scalar(loss: Any) -> Tensor:
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss.reshape(())
    seen = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)[:80]
    raise MeasurementError(
        "the loss is not a scalar", seen=seen, hint="return the mean over the batch"
    )


@dataclass(frozen=True)
class UserLoss:
    """``FILE.py:FUNCTION``, called as ``FUNCTION(output, batch)``, a mean over samples."""

    function: Callable[[Any, Any], Any]
    whole: bool = False

    def terms(self, batch: Batch) -> int:
        """Return the number of samples."""
        return batch.size

    def total(self, output: Any, batch: Batch) -> Tensor:
        """Return the mean that the function gave, times the samples."""
        try:
            loss = self.function(output, batch.raw)
        except LandscapeError:
            raise
        except Exception as error:
            raise MeasurementError(
                "the loss function raised an error",
                seen=f"{type(error).__name__}: {error}",
                hint="it is called as FUNCTION(output, batch); --debug shows where",
            ) from error
        return _scalar(loss).double() * batch.size


def resolve(name: str, model: nn.Module | None = None) -> Loss:
    """Return the loss called `name`; `model` decides how its own loss counts tokens.

    Raises:
        SpecError: If there is no such loss.
    """
    named: dict[str, Loss] = {
        "cross-entropy": Classification(F.cross_entropy),
        "nll": Classification(F.nll_loss),
        "mse": Elementwise(F.mse_loss),
        "sse": Elementwise(F.mse_loss, summed=True),
        "l1": Elementwise(F.l1_loss),
        "bce": Elementwise(F.binary_cross_entropy_with_logits),
        "model": OwnLoss(causal=_is_causal(model)),
    }
    if name in named:
        return named[name]
    if ".py:" in name:
        from landscape_cli.adapters.file import load

        return UserLoss(load(name, "loss"))
    raise SpecError(f"no loss is named {name!r}", seen=", ".join(named), hint="or FILE.py:FUNCTION")


def _is_causal(model: nn.Module | None) -> bool:
    """Whether the model shifts its labels, as decoder-only language models do."""
    if model is None:
        return False
    shifts = getattr(model, "shifts_labels", None)
    if isinstance(shifts, bool):
        return shifts
    names = [type(model).__name__, *(type(child).__name__ for child in model.children())]
    return any("CausalLM" in name or "LMHeadModel" in name for name in names)
