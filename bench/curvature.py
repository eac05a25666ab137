"""Hessian-vector products, in gradients: the engine's against PyHessian and curvlinops."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.by_hand import Batch, gradient, without_tracking
from bench.cases import Case
from bench.engine import runner
from bench.timing import Contender, Timing, interleave


def time_products(case: Case, rounds: int) -> tuple[dict[str, Timing], dict[str, str]]:
    """Return the timings of one product, with a gradient by hand, and who is missing."""
    model, batch = without_tracking(case.model()), case.data()
    vector = [torch.randn_like(parameter) for parameter in model.parameters()]
    contenders = {"gradient": Contender(lambda: gradient(model, batch, case.criterion()), 1)}
    missing = {}
    for name, make in (("PyHessian", _pyhessian), ("curvlinops", _curvlinops)):
        try:
            contenders[name] = Contender(make(case, model, batch, vector), 1)
        except ImportError as error:
            missing[name] = f"{error}: pip install {name.lower()}"
        except (RuntimeError, NotImplementedError, ValueError) as error:
            missing[name] = str(error).splitlines()[0][:120]
    with runner(case) as run:
        site = run.site
        contenders["landscape"] = Contender(
            lambda: site.objective.hessian_vector_product(site.gradient), 1
        )
        return interleave(contenders, rounds), missing


def _pyhessian(
    case: Case, model: nn.Module, batch: Batch, vector: list[Tensor]
) -> Callable[[], object]:
    from pyhessian import hessian
    from pyhessian.utils import hessian_vector_product

    def product() -> object:
        computer = hessian(model, case.criterion(), data=batch, cuda=False)
        return hessian_vector_product(computer.gradsH, computer.params, vector)

    product()
    return product


def _curvlinops(
    case: Case, model: nn.Module, batch: Batch, vector: list[Tensor]
) -> Callable[[], object]:
    from curvlinops import HessianLinearOperator

    loss = nn.MSELoss() if case.loss == "mse" else nn.CrossEntropyLoss()
    if case.target == "gpt":
        raise NotImplementedError("its losses take one target a sample")
    operator = HessianLinearOperator(
        model, loss, list(model.parameters()), [batch], check_deterministic=False
    )
    flat = torch.cat([tensor.flatten() for tensor in vector])
    operator @ flat
    return lambda: operator @ flat
