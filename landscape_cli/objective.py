"""L(θ), ∇L(θ) and H·v over fixed batches, with everything but θ held still."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from landscape_cli import norm_layers, randomness
from landscape_cli.batches import Batch
from landscape_cli.buffers import Buffers
from landscape_cli.derivatives import (
    Reduction,
    Sum,
    gradients,
    handed_over,
    hessian_product,
    set_aside,
    twice_differentiable,
)
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.losses import Loss
from landscape_cli.parameters import Parameters, Tensors, inner_product, squared_difference
from landscape_cli.prefetch import Prefetched
from landscape_cli.specs import NormMode

STREAMED = 20_000_000
"""Parameters from which gradients are reduced, and added up, one tensor at a time."""

Change = Callable[[int, Batch], Batch]
"""Makes another batch of the one at an index."""


class Tap(Protocol):
    """Somebody who wants tensors from inside the forward pass, and the gradients there."""

    def listen(self, batch: int) -> Any:
        """Return a context manager that is held while the batch's forward pass runs."""
        ...

    def tensors(self) -> Sequence[Tensor]:
        """Return the tensors of this forward pass to differentiate the batch's total by."""
        ...

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Take the gradients of the batch's *summed* loss, in the order of `tensors`."""
        ...


class Objective:
    """The sample-weighted mean loss L over fixed batches, as a function of the model's θ.

    L(θ) = Σⱼ total(batch j) ÷ Σⱼ terms(batch j). Inside ``with objective:`` the model is in the
    norm mode's state; on leaving, mode flags, buffers, θ and the caller's random state are what
    they were, bit for bit, whatever happened in between.

    Args:
        model: the module, on its device, in the type to compute in.
        batches: the batches, on the same device when they are asked for.
        loss: gives total and terms of a batch.
        norm_mode: what layers that look at the whole batch normalise by.
        seed: decides dropout masks and whatever else the forward pass draws.

    Raises:
        MeasurementError: If no batch has a term that counts.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        loss: Loss,
        *,
        norm_mode: NormMode = "batch",
        seed: int = 0,
    ) -> None:
        self.model = model
        self.call: Callable[..., Any] = model
        self.batches = batches if isinstance(batches, Prefetched) else tuple(batches)
        self.loss = loss
        self.norm_mode = norm_mode
        self.seed = seed
        self.parameters = Parameters(model)
        self.terms = sum(map(loss.terms, self.batches))
        self.summed = bool(getattr(loss, "summed", False))
        if not self.terms and not self.summed:
            raise MeasurementError(
                "no target counts towards the loss",
                seen=f"{len(self.batches)} batches, every target ignored",
                hint="check the labels of the data",
            )
        self.draws_random = False
        self.unreached: tuple[str, ...] = ()
        self._seeds = [randomness.derived_seed(seed, "forward", j) for j in range(len(batches))]
        self._buffers = Buffers(model)
        self._frozen: norm_layers.FrozenStatistics | None = None
        self._opened: ExitStack | None = None

    @contextmanager
    def calling(self, call: Callable[..., Any]) -> Iterator[None]:
        """Let `call` stand for the model's forward pass, a compiled one for example."""
        before, self.call = self.call, call
        try:
            yield
        finally:
            self.call = before

    def replica(self) -> Objective:
        """Return an open objective like this one on a copy of the model, θ₀ and batches shared.

        It may be evaluated in another thread, and is not closed: nothing but the copy changes.
        What the forward pass draws or changes by itself must be nothing.
        """
        model, frozen = copy.deepcopy((self.model, self._frozen))
        replica = copy.copy(self)
        vars(replica).update(
            model=model,
            call=model,
            parameters=Parameters(model, origin=self.parameters.origin),
            _buffers=Buffers(model),
            _frozen=frozen,
            _opened=None,
        )
        return replica

    @property
    def resident(self) -> bool:
        """Whether all batches are on the device at once, and stay where they are."""
        return not isinstance(self.batches, Prefetched)

    @property
    def divisor(self) -> int:
        """What totals are divided by: the number of terms, or 1 for a summed loss."""
        return 1 if self.summed else self.terms

    def __enter__(self) -> Objective:
        with ExitStack() as stack:
            # Once more than is needed, for whoever interrupts the program while θ is put back.
            stack.callback(self.parameters.restore)
            stack.enter_context(randomness.preserved())
            stack.callback(self._buffers.restore)
            stack.enter_context(_training_flags(self.model))
            self.model.train(self.norm_mode != "running")
            stack.enter_context(norm_layers.untracked(self.model))
            stack.callback(self.parameters.restore)
            self._opened = stack.pop_all()
            try:
                self._observe()
            except BaseException:
                self._opened.close()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _observe(self) -> None:
        """Run θ₀ once: find what changes by itself, and what frozen statistics are."""
        frozen = norm_layers.FrozenStatistics(self.model)
        for index in range(len(self.batches)):
            randomness.seed_all(self._seeds[index])
            before = randomness.capture()
            with torch.no_grad(), frozen.record():
                self._total(index)
            self.draws_random |= randomness.capture() != before
            self._buffers.find_volatile()
        if self.norm_mode == "frozen":
            self._frozen = frozen

    @contextmanager
    def still(self, index: int) -> Iterator[Batch]:
        """Hold everything but θ still for one forward pass of batch `index`, and yield it."""
        self._buffers.reset_volatile()
        if self.draws_random:
            randomness.seed_all(self._seeds[index])
        if self._frozen is None:
            yield self.batches[index]
        else:
            with self._frozen.replay(index):
                yield self.batches[index]

    @property
    def volatile_buffers(self) -> bool:
        """Whether a forward pass changes buffers, which are put back before every one."""
        return self._buffers.volatile

    def total_at(self, index: int, tensors: Sequence[Tensor]) -> Tensor:
        """Return the summed loss of batch `index` with `tensors` in the place of θ's own.

        To be called inside `still`; the tensors may be those of a transform such as vmap.
        """
        values = dict(zip(self.parameters.names, tensors, strict=True))

        def call(*inputs: Any, **keywords: Any) -> Any:
            return torch.func.functional_call(self.model, values, inputs, keywords)

        return self._total(index, call=call)

    def total_of(self, batch: Batch) -> Tensor:
        """Return the summed loss of any batch at the model's present θ; float64, shape ()."""
        return self._total(0, batch)

    def value_and_reduction(self, reduce: Reduction, *, change: Change | None = None) -> Tensor:
        """Return L(θ), and hand ∇L to `reduce` a tensor at a time, so that it is never whole.

        `reduce` is called once for the position of every tensor of θ, with None where the loss
        does not reach. Several batches have to be added up first, in one copy of θ, of which
        every tensor is let go as it is handed on.

        Args:
            reduce: takes the tensors of ∇L.
            change: makes another batch of the one at an index, to be evaluated in its place.
        """
        value = torch.zeros((), dtype=torch.float64, device=self.parameters.device)
        tensors, last = self.parameters.tensors, len(self.batches) - 1
        with set_aside(tensors):
            for index in range(last + 1):
                with handed_over(tensors, reduce) if index == last else nullcontext():
                    value = value + self._backward(index, change).to(value.device)
        return value

    def _backward(self, index: int, change: Change | None) -> Tensor:
        """Accumulate the batch's share of ∇L in the tensors of θ, and return that of L."""
        with self.still(index) as batch, torch.enable_grad():
            value = self._total(index, change(index, batch) if change else batch) / self.divisor
            if value.requires_grad:
                torch.autograd.backward(value, inputs=list(self.parameters.tensors))
        return value.detach()

    def value_and_change(
        self, reference: Tensors, *, change: Change | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return L(θ) and ‖∇L(θ) − r‖₂², both float64 of shape (); ∇L is never whole.

        Args:
            reference: r, shaped as the parameters.
            change: as for `value_and_reduction`.
        """
        squared = torch.zeros((), dtype=torch.float64, device=self.parameters.device)

        def reduce(position: int, gradient: Tensor | None) -> None:
            r = reference[position]
            part = torch.zeros_like(r) if gradient is None else gradient
            squared.add_(squared_difference([part], [r]).to(squared.device))

        value = self.value_and_reduction(reduce, change=change)
        return value, squared

    def _total(
        self, index: int, batch: Batch | None = None, call: Callable[..., Any] | None = None
    ) -> Tensor:
        """Return the batch's summed loss, float64, shape ()."""
        batch = self.batches[index] if batch is None else batch
        try:
            output = (call or self.call)(*batch.inputs, **batch.keywords)
        except (LandscapeError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise MeasurementError(
                "the model raised an error in its forward pass",
                seen=f"{type(error).__name__}: {error}".splitlines()[0],
                hint="check that --data fits --model; --debug shows where",
            ) from error
        return self.loss.total(output, batch)

    def value(self) -> Tensor:
        """Return L(θ) at the model's present θ; float64, shape ()."""
        totals = []
        for index in range(len(self.batches)):
            with torch.no_grad(), self.still(index):
                totals.append(self._total(index))
        return torch.stack(totals).sum() / self.divisor

    def value_and_gradient(self, tap: Tap | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return L(θ), float64 of shape (), and ∇L(θ), shaped and typed as the parameters.

        A parameter that the loss does not reach has a zero gradient.
        """
        large = self.parameters.count >= STREAMED
        if large and tap is None and len(self.batches) > 1:
            value, found = self._collect()
        else:
            value, found = self._accumulate(tap)
        tensors, names = self.parameters.tensors, self.parameters.names
        self.unreached = tuple(name for name, g in zip(names, found, strict=True) if g is None)
        pairs = zip(tensors, found, strict=True)
        return value, [torch.zeros_like(p) if g is None else g for p, g in pairs]

    def _accumulate(self, tap: Tap | None) -> tuple[Tensor, list[Tensor | None]]:
        """Return L and ∇L; of several batches, two gradients are held for a moment."""
        value = torch.zeros((), dtype=torch.float64, device=self.parameters.device)
        total = Sum(len(self.parameters.tensors))
        for index in range(len(self.batches)):
            share, part = self._batch_gradient(index, tap)
            value = value + share.to(value.device)
            total.add(part)
        return value, total.tensors

    def _collect(self) -> tuple[Tensor, list[Tensor | None]]:
        """Return L and ∇L, of which there is one copy at any time."""
        found: list[Tensor | None] = [None] * len(self.parameters.tensors)
        return self.value_and_reduction(found.__setitem__), found

    def _batch_gradient(self, index: int, tap: Tap | None) -> tuple[Tensor, list[Tensor | None]]:
        """Return the batch's share of L and of ∇L; None where the loss does not reach."""
        count = len(self.parameters.tensors)
        with self.still(index) as batch, torch.enable_grad():
            with tap.listen(index) if tap else nullcontext():
                value = self._total(index, batch) / self.divisor
            inside = list(tap.tensors()) if tap else []
            found = gradients(value, [*self.parameters.tensors, *inside])
            if tap:
                own = found[count:]
                tap.receive([None if g is None else g.detach() * self.divisor for g in own])
        return value.detach(), [None if g is None else g.detach() for g in found[:count]]

    def hessian_vector_product(self, vector: Tensors) -> list[Tensor]:
        """Return H·v at the model's present θ, by differentiating ⟨∇L(θ), v⟩.

        Beside v and the product a single batch takes no copy of θ, several take one.

        Raises:
            MeasurementError: If an operation of the model has no second derivative.
        """
        product = Sum(len(self.parameters.tensors))
        for index in range(len(self.batches)):
            product.add(self._batch_curvature(index, vector))
        pairs = zip(self.parameters.tensors, product.tensors, strict=True)
        return [torch.zeros_like(p) if h is None else h for p, h in pairs]

    def _batch_curvature(self, index: int, vector: Tensors) -> list[Tensor | None]:
        with self.still(index) as batch, torch.enable_grad(), twice_differentiable():
            value = self._total(index, batch) / self.divisor
            try:
                found = hessian_product(value, self.parameters.tensors, vector)
            except (RuntimeError, NotImplementedError) as error:
                raise MeasurementError(
                    "the model cannot be differentiated twice",
                    seen=str(error).splitlines()[0],
                    hint="an operation lacks a second derivative",
                ) from error
        return [None if h is None else h.detach() for h in found]

    def directional_curvature(self, direction: Tensors) -> float:
        """Return the limit of the smoothness as a → 0: ‖H d‖₂ ÷ ‖d‖₂; NaN where d is zero."""
        length = inner_product(direction, direction).sqrt()
        product = self.hessian_vector_product(direction)
        return float(inner_product(product, product).sqrt() / length)


@contextmanager
def _training_flags(model: nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training
