"""Dense chains: whether a model is linear layers and elementwise functions in a row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from landscape_cli.objective import Objective

aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """An elementwise function and its derivative; both may write over what they are given.

    Attributes:
        forward: y = f(x); x is not used any more where the derivative takes y.
        backward: takes ∂L/∂y, x and y, and returns ∂L/∂x.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]


def _relu_backward(errors: Tensor, _: Tensor, outputs: Tensor) -> Tensor:
    return aten.threshold_backward.grad_input(errors, outputs, 0, grad_input=errors)  # type: ignore[no-any-return]


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(torch.relu_, _relu_backward),
    "tanh": Activation(torch.tanh_, lambda e, x, y: aten.tanh_backward(e, y)),  # noqa: ARG005
    "sigmoid": Activation(torch.sigmoid_, lambda e, x, y: aten.sigmoid_backward(e, y)),  # noqa: ARG005
    "gelu": Activation(F.gelu, lambda e, x, y: aten.gelu_backward(e, x)),  # noqa: ARG005
    "silu": Activation(F.silu, lambda e, x, y: aten.silu_backward(e, x)),  # noqa: ARG005
    "softplus": Activation(F.softplus, lambda e, x, y: aten.softplus_backward(e, x, 1, 20)),  # noqa: ARG005
}
MODULES: Mapping[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Softplus: "softplus",
}
FUNCTIONS: Mapping[Any, str] = {
    torch.relu: "relu",
    F.relu: "relu",
    torch.tanh: "tanh",
    F.tanh: "tanh",
    torch.sigmoid: "sigmoid",
    F.sigmoid: "sigmoid",
    F.gelu: "gelu",
    F.silu: "silu",
    F.softplus: "softplus",
}
METHODS: Mapping[str, str] = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}
DEFAULTS: Mapping[type[nn.Module], Mapping[str, Any]] = {
    nn.GELU: {"approximate": "none"},
    nn.Softplus: {"beta": 1, "threshold": 20},
}
"""Settings of modules that `ACTIVATIONS` has built in."""


@dataclass(frozen=True)
class Dense:
    """y = W x + b; positions of W and b among θ's tensors, −1 for no bias."""

    weight: int
    bias: int = -1


@dataclass(frozen=True)
class Norm:
    """Normalisation over the batch; positions of γ and β, −1 for none.

    Attributes:
        eps: ε.
        statistics: the mean and variance to use, None for those of the batch.
    """

    weight: int
    bias: int
    eps: float
    statistics: tuple[Tensor, Tensor] | None = None


Step = Dense | Norm | Activation


@dataclass(frozen=True)
class Chain:
    """What a model does to its input, flattened to shape (N, features), step by step."""

    steps: tuple[Step, ...]

    @property
    def linear(self) -> bool:
        """Whether nothing but linear layers and normalisation is in the chain."""
        return not any(isinstance(step, Activation) for step in self.steps)

    @property
    def normalised(self) -> bool:
        """Whether a layer looks at the whole batch."""
        return any(isinstance(s, Norm) and s.statistics is None for s in self.steps)

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the tensors of θ that the chain uses, in the order of use."""
        found = [
            position
            for step in self.steps
            if not isinstance(step, Activation)
            for position in (step.weight, step.bias)
        ]
        return tuple(position for position in found if position >= 0)


class _NotAChain(Exception):  # noqa: N818 - it is an answer, not an error
    """Says in one line what is in the way."""


def read_chain(objective: Objective) -> Chain:
    """Return the chain that the model of an open objective is.

    Raises:
        ValueError: If it is not one; the message says why in one line.
    """
    try:
        _check_surroundings(objective)
    except _NotAChain as reason:
        raise ValueError(str(reason)) from None
    if objective not in _READ:
        _READ[objective] = _read(objective)
    found = _READ[objective]
    if isinstance(found, str):
        raise ValueError(found)
    return found


_READ: WeakKeyDictionary[Objective, Chain | str] = WeakKeyDictionary()
"""What was read of objectives, as tracing takes longer than many points; or why they are none."""


def _read(objective: Objective) -> Chain | str:
    try:
        chain = Chain(tuple(_Reader(objective).steps()))
        _check_chain(chain)
    except _NotAChain as reason:
        return str(reason)
    return chain


def _check_surroundings(objective: Objective) -> None:
    if objective.norm_mode == "frozen":
        raise _NotAChain("frozen statistics are handed over by hooks")
    if objective.draws_random:
        raise _NotAChain("the forward pass draws random numbers")
    if any(m._forward_hooks or m._forward_pre_hooks for m in objective.model.modules()):  # noqa: SLF001
        raise _NotAChain("the model has hooks")
    if not objective.resident:
        raise _NotAChain("the batches do not fit on the device")
    for batch in objective.batches:
        plain = len(batch.inputs) == 1 and not batch.keywords
        if not plain or not isinstance(batch.inputs[0], Tensor):
            raise _NotAChain("the model takes more than one tensor")
        if batch.inputs[0].dim() < 2 or not batch.inputs[0].is_floating_point():
            raise _NotAChain("the input is not a matrix of numbers")


def _check_chain(chain: Chain) -> None:
    if not chain.steps or not isinstance(chain.steps[0], Dense):
        raise _NotAChain("the first step is not a linear layer")
    if len(set(chain.positions)) < len(chain.positions):
        raise _NotAChain("two layers share a tensor")


class _Reader:
    """Walks the traced graph of a model."""

    def __init__(self, objective: Objective) -> None:
        self._model = objective.model
        self._training = objective.model.training
        self._inputs = [batch.inputs[0] for batch in objective.batches]
        tensors = objective.parameters.tensors
        self._positions = {id(tensor): position for position, tensor in enumerate(tensors)}
        self._flat = all(tensor.dim() == 2 for tensor in self._inputs)

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the forward pass."""
        previous: fx.Node | None = None
        for node in self._nodes():
            if node.op == "placeholder":
                if previous is not None:
                    raise _NotAChain("forward takes several arguments")
            elif node.all_input_nodes != [previous]:
                raise _NotAChain(f"{node.name} does not take the result before it alone")
            elif node.op == "output":
                if node.args != (previous,):
                    raise _NotAChain("the output is not a tensor")
            else:
                yield from self._step(node)
            previous = node

    def _nodes(self) -> list[fx.Node]:
        try:
            nodes = list(fx.Tracer().trace(self._model).nodes)
        except Exception as error:  # noqa: BLE001 - somebody's forward raises anything when traced
            raise _NotAChain(f"it cannot be traced ({type(error).__name__})") from None
        if nodes and nodes[0].op == "placeholder" and len(nodes) > 1:
            return nodes
        raise _NotAChain("forward takes no argument")

    def _step(self, node: fx.Node) -> Iterator[Step]:
        if node.op == "call_module":
            yield from self._module(self._model.get_submodule(str(node.target)))
            return
        table: Mapping[Any, str] = FUNCTIONS if node.op == "call_function" else METHODS
        name = table.get(node.target) if node.op.startswith("call") else None
        if name is not None and len(node.args) == 1 and not _meaningful(node):
            yield ACTIVATIONS[name]
        elif not self._flattens(node):
            raise _NotAChain(f"{node.name} is neither a layer nor a function of one element")

    def _flattens(self, node: fx.Node) -> bool:
        """Whether the node flattens all axes but the first, which a matrix does not notice."""
        if node.target not in (torch.flatten, "flatten") or node.kwargs:
            return False
        self._flat = True
        return tuple(node.args[1:]) in ((1,), (1, -1))

    def _module(self, module: nn.Module) -> Iterator[Step]:
        kind = type(module)
        if isinstance(module, nn.Flatten) and _keeps_samples(module):
            self._flat = True
        elif type(module) is nn.Linear and self._flat:
            yield Dense(self._position(module.weight), self._position(module.bias))
        elif type(module) is nn.BatchNorm1d and self._flat:
            yield self._norm(module)
        elif kind in MODULES:
            if any(getattr(module, key) != value for key, value in DEFAULTS.get(kind, {}).items()):
                raise _NotAChain(f"{kind.__name__} has settings of its own")
            yield ACTIVATIONS[MODULES[kind]]
        elif kind is nn.Dropout and (module.p == 0 or not module.training):
            return
        elif kind is not nn.Identity:
            raise _NotAChain(f"{kind.__name__} is neither linear, a norm nor elementwise")

    def _norm(self, module: nn.BatchNorm1d) -> Norm:
        mean, variance = module.running_mean, module.running_var
        statistics = None
        if not module.training and mean is not None and variance is not None:
            statistics = (mean, variance)
        weight, bias = self._position(module.weight), self._position(module.bias)
        return Norm(weight, bias, module.eps, statistics)

    def _position(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return -1
        try:
            return self._positions[id(tensor)]
        except KeyError:
            raise _NotAChain("a layer of it does not train") from None


def _keeps_samples(module: nn.Flatten) -> bool:
    return module.start_dim == 1 and module.end_dim == -1


def _meaningful(node: fx.Node) -> bool:
    """Whether keyword arguments change what the function does."""
    keywords = {key: value for key, value in node.kwargs.items() if key != "inplace"}
    if not keywords or not callable(node.target):
        return bool(keywords)
    try:
        defaults = inspect.signature(node.target).parameters
    except (TypeError, ValueError):
        return True
    return any(key not in defaults or defaults[key].default != v for key, v in keywords.items())
