"""L(θ), ∇L(θ) and H·v over fixed batches, with everything but θ held still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from landscape_cli import norm_layers, randomness
from landscape_cli.batches import Batch
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.losses import Loss
from landscape_cli.parameters import Parameters, Tensors, inner_product
from landscape_cli.specs import NormMode


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
    norm mode's state; on leaving, mode flags, buffers and the caller's random state are what
    they were, bit for bit, whatever happened in between.

    Args:
        model: the module, on its device, in the type to compute in.
        batches: the batches, on the same device.
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
        self.batches = tuple(batches)
        self.loss = loss
        self.norm_mode = norm_mode
        self.seed = seed
        self.parameters = Parameters(model)
        self.terms = sum(loss.terms(batch) for batch in self.batches)
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
        self._buffers = _Buffers(model)
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

    @property
    def divisor(self) -> int:
        """What totals are divided by: the number of terms, or 1 for a summed loss."""
        return 1 if self.summed else self.terms

    def __enter__(self) -> Objective:
        with ExitStack() as stack:
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

    def value_and_reduction(self, reduce: Callable[[int, Tensor | None], None]) -> Tensor:
        """Return L(θ), and hand ∇L to `reduce` a tensor at a time, so that it is never whole.

        `reduce` is called once for the position of every tensor of θ, with None where the loss
        does not reach. Only for a single batch: several would have to be added up first.
        """
        (batch,) = self.batches
        tensors = self.parameters.tensors
        waiting = set(range(len(tensors)))

        def receive(position: int, tensor: Tensor) -> None:
            gradient, tensor.grad = tensor.grad, None
            waiting.discard(position)
            reduce(position, gradient)

        with ExitStack() as stack:
            stack.enter_context(_set_aside(tensors))
            for position, tensor in enumerate(tensors):
                hook = tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    partial(receive, position)
                )
                stack.callback(hook.remove)
            with self.still(0), torch.enable_grad():
                value = self._total(0, batch) / self.divisor
            if value.requires_grad:
                torch.autograd.backward(value, inputs=list(tensors))
        for position in sorted(waiting):
            reduce(position, None)
        return value.detach()

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
        return self._accumulate(self.batches, tap)

    def value_and_gradient_of(self, batches: Sequence[Batch]) -> tuple[Tensor, list[Tensor]]:
        """Return L and ∇L with other batches in the places of the objective's own."""
        return self._accumulate(batches, None)

    def _accumulate(self, batches: Sequence[Batch], tap: Tap | None) -> tuple[Tensor, list[Tensor]]:
        tensors = self.parameters.tensors
        value = torch.zeros((), dtype=torch.float64, device=self.parameters.device)
        gradient: list[Tensor | None] = [None] * len(tensors)
        for index, batch in enumerate(batches):
            with self.still(index), torch.enable_grad():
                share, part = self._batch_gradient(index, batch, tap)
            value = value + share.to(value.device)
            gradient = [
                new if old is None else old if new is None else old.add_(new)
                for old, new in zip(gradient, part, strict=True)
            ]
        names = zip(self.parameters.names, gradient, strict=True)
        self.unreached = tuple(name for name, found in names if found is None)
        return value, [
            torch.zeros_like(p) if g is None else g for p, g in zip(tensors, gradient, strict=True)
        ]

    def _batch_gradient(
        self, index: int, batch: Batch, tap: Tap | None
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the batch's share of L and of ∇L; None where the loss does not reach."""
        with tap.listen(index) if tap else nullcontext():
            value = self._total(index, batch) / self.divisor
        inside = list(tap.tensors()) if tap else []
        found = _gradients(value, [*self.parameters.tensors, *inside])
        if tap:
            own = found[len(self.parameters.tensors) :]
            tap.receive([None if g is None else g.detach() * self.divisor for g in own])
        shares = found[: len(self.parameters.tensors)]
        return value.detach(), [None if g is None else g.detach() for g in shares]

    def hessian_vector_product(self, vector: Tensors) -> list[Tensor]:
        """Return H·v at the model's present θ, by differentiating ⟨∇L(θ), v⟩.

        Raises:
            MeasurementError: If an operation of the model has no second derivative.
        """
        product: list[Tensor] | None = None
        for index in range(len(self.batches)):
            with self.still(index), torch.enable_grad(), twice_differentiable():
                part = self._batch_curvature(index, vector)
            if product is None:
                product = part
            else:
                torch._foreach_add_(product, part)
        return product or []

    def _batch_curvature(self, index: int, vector: Tensors) -> list[Tensor]:
        tensors = self.parameters.tensors
        value = self._total(index) / self.divisor
        try:
            first = _gradients(value, tensors, create_graph=True)
            reached = [
                (g, v)
                for g, v in zip(first, vector, strict=True)
                if g is not None and g.requires_grad
            ]
            if not reached:
                return [torch.zeros_like(p) for p in tensors]
            slope = torch.stack([(g * v).sum(dtype=torch.float64) for g, v in reached]).sum()
            _refuse_once_differentiable(slope)
            second = _gradients(slope, tensors)
        except (RuntimeError, NotImplementedError) as error:
            raise MeasurementError(
                "the model cannot be differentiated twice",
                seen=str(error).splitlines()[0],
                hint="an operation lacks a second derivative",
            ) from error
        return [
            torch.zeros_like(p) if h is None else h.detach()
            for p, h in zip(tensors, second, strict=True)
        ]

    def directional_curvature(self, direction: Tensors) -> float:
        """Return the limit of the smoothness as a → 0: ‖H d‖₂ ÷ ‖d‖₂; NaN where d is zero."""
        length = inner_product(direction, direction).sqrt()
        product = self.hessian_vector_product(direction)
        return float(inner_product(product, product).sqrt() / length)


def _gradients(
    value: Tensor, tensors: Sequence[Tensor], *, create_graph: bool = False
) -> list[Tensor | None]:
    if not value.requires_grad:
        return [None] * len(tensors)
    return list(
        torch.autograd.grad(value, list(tensors), create_graph=create_graph, allow_unused=True)
    )


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Choose implementations that have a second derivative."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
        yield


def _refuse_once_differentiable(value: Tensor) -> None:
    """Raise where autograd would take a derivative for constant, as its function has no second.

    Torch marks such a place with a node that raises when it is reached; asked for the gradient by
    given tensors alone, it never gets there.
    """
    waiting, seen = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "torch::autograd::Error":
            raise RuntimeError("a function marked once_differentiable")
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)


@contextmanager
def _set_aside(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Keep the gradients that somebody accumulated in the tensors out of the way."""
    kept = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in zip(tensors, kept, strict=True):
            tensor.grad = gradient


@contextmanager
def _training_flags(model: nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


class _Buffers:
    """The buffers of a model, and which of them a forward pass changes."""

    def __init__(self, model: nn.Module) -> None:
        self._owners = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._values = [buffer.detach().clone() for _, _, buffer in self._owners]
        self._volatile: set[int] = set()

    @property
    def volatile(self) -> bool:
        """Whether any buffer changes by itself."""
        return bool(self._volatile)

    def find_volatile(self) -> None:
        """Note the buffers that differ from their first value, and put them back."""
        for position, (module, name, buffer) in enumerate(self._owners):
            present = getattr(module, name)
            if present is not buffer or not _same(present, self._values[position]):
                self._volatile.add(position)
        self.reset_volatile()

    def reset_volatile(self) -> None:
        """Put the buffers that change by themselves back to their first value."""
        for position in self._volatile:
            self._reset(position)

    def restore(self) -> None:
        """Put every buffer back, the same tensor with the same bits."""
        for position, (module, name, buffer) in enumerate(self._owners):
            present = getattr(module, name)
            if present is not buffer or not _same(buffer, self._values[position]):
                self._reset(position)

    def _reset(self, position: int) -> None:
        module, name, buffer = self._owners[position]
        with torch.no_grad():
            buffer.copy_(self._values[position])
        setattr(module, name, buffer)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two buffers are equal bit for bit, NaN and the sign of zero included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat
