"""Fit the names of a checkpoint to those of a model, and copy the tensors in.

Training scripts save what they wrap: ``module.`` (DataParallel), ``_orig_mod.`` (torch.compile),
``_fsdp_wrapped_module.`` (FSDP), a Lightning module's attribute. The fit tries, in order: the names
as they are, without wrappers, and with one prefix dropped or added, and takes the first under
which every tensor of the model is there and none is left over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from landscape_cli.checkpoints.contract import Checkpoint
from landscape_cli.checkpoints.damage import listed, shown
from landscape_cli.errors import CheckpointError

_WRAPPERS = (
    "module",
    "_orig_mod",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_forward_module",
    "_fpw_module",
)
_COUNTER = "num_batches_tracked"
_AVERAGING_COUNTER = "n_averaged"


@dataclass(frozen=True)
class Matching:
    """Tensors under the model's names.

    Attributes:
        state: a tensor for every name of the model's state, but for counters of old checkpoints.
        notes: what had to be done to fit them, one line each.
    """

    state: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Renaming:
    """One way to turn the checkpoint's names into the model's."""

    names: Mapping[str, str]
    note: str = ""


@dataclass
class _Fit:
    """How well a renaming does."""

    renaming: _Renaming
    taken: dict[str, Tensor]
    missing: list[str]
    unexpected: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def problems(self) -> int:
        return len(self.missing) + len(self.unexpected)


def match(tensors: Mapping[str, Tensor], model: nn.Module) -> Matching:
    """Return the checkpoint's tensors under the names of the model's state.

    Args:
        tensors: the tensors of a checkpoint, by its own names.
        model: the module that they are for; nothing in it changes.

    Raises:
        CheckpointError: If tensors are missing, left over or misshapen, where the model does not
            tie them to others; or if tied ones differ.
    """
    wanted = _state_of(model)
    best: _Fit | None = None
    for renaming in _renamings(tensors, wanted):
        fit = _fit(renaming, tensors, wanted, model)
        if best is None or fit.problems < best.problems:
            best = fit
        if not fit.problems:
            break
    if best is None or best.problems:
        raise _mismatch(best, tensors, wanted)
    state = _shaped(best.taken, wanted)
    _refuse_torn_ties(state, wanted)
    note = (best.renaming.note,) if best.renaming.note else ()
    return Matching(_in_order(state, wanted), (*note, *best.notes))


def load_into(model: nn.Module, checkpoint: Checkpoint) -> list[str]:
    """Copy a checkpoint's tensors into the parameters and buffers of a model, in place.

    Args:
        model: the module; its dtypes, devices and ``requires_grad`` stay as they are.
        checkpoint: what `read` returned.

    Returns:
        What had to be done, one line each.

    Raises:
        CheckpointError: If they do not fit. The model is then what it was.
    """
    matching = match(checkpoint.tensors, model)
    targets = _state_of(model)
    for name, tensor in matching.state.items():
        _refuse_kind(name, tensor, targets[name])
    converted = Counter(
        f"{_short(tensor.dtype)} to {_short(targets[name].dtype)}"
        for name, tensor in matching.state.items()
        if tensor.dtype != targets[name].dtype
    )
    with torch.no_grad():
        for name, tensor in matching.state.items():
            targets[name].copy_(tensor)
    conversions = [f"{n} tensors converted from {what}" for what, n in converted.items()]
    return [*checkpoint.notes, *matching.notes, *conversions]


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's own tensors, those that PyTorch saves, by name."""
    state = model.state_dict(keep_vars=True)
    lazy = [name for name, value in state.items() if is_lazy(value)]
    if lazy:
        raise CheckpointError(
            "the model has parameters without a shape",
            seen=listed(lazy),
            hint="let the factory run one batch through its lazy layers",
        )
    return _owned(model, {k: value for k, value in state.items() if isinstance(value, Tensor)})


def _owned(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace what a hook of ``state_dict`` has copied, which could not be written through."""
    own = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    places = {_identity(tensor) for tensor in own.values()}
    copies = [n for n, t in state.items() if n not in own and _identity(t) not in places]
    if copies:
        raise CheckpointError(
            "the model's state_dict gives copies of its tensors under other names",
            seen=listed(copies),
            hint="build the model without the wrapper that changes its state_dict",
        )
    return {name: own.get(name, tensor) for name, tensor in state.items()}


def _renamings(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> Iterator[_Renaming]:
    yield _Renaming({name: name for name in tensors})
    bare = {name: _unwrapped(name) for name in tensors}
    plain = {_unwrapped(name): name for name in wanted}
    if len(plain) < len(wanted):
        plain = {name: name for name in wanted}
    for change, what in _prefix_changes(list(bare.values()), plain):
        names = {name: plain.get(change(short), change(short)) for name, short in bare.items()}
        if len(set(names.values())) == len(names):
            yield _Renaming(names, _note(bare, plain, what))


def _note(bare: Mapping[str, str], plain: Mapping[str, str], what: str) -> str:
    dropped = sorted({part for name, short in bare.items() for part in _removed(name, short)})
    added = sorted({part for short, name in plain.items() for part in _removed(name, short)})
    parts = [f"without {', '.join(f'{part}.' for part in dropped)}"] if dropped else []
    parts += [what] if what else []
    parts += [f"under {', '.join(f'{part}.' for part in added)}"] if added else []
    return "names matched " + " and ".join(parts) if parts else ""


def _removed(name: str, short: str) -> set[str]:
    return set(name.split(".")) - set(short.split("."))


def _unwrapped(name: str) -> str:
    parts = name.split(".")
    return ".".join([*(part for part in parts[:-1] if part not in _WRAPPERS), parts[-1]])


def _prefix_changes(
    names: list[str], plain: Mapping[str, str]
) -> Iterator[tuple[Callable[[str], str], str]]:
    """Yield changes of a prefix, those that fit the most names first."""
    yield (lambda name: name), ""
    for prefix in _votes(names, set(plain)):
        yield _dropping(prefix), f"without the prefix {shown(prefix)}"
    for prefix in _votes(list(plain), set(names)):
        yield _adding(prefix, plain), f"with the prefix {shown(prefix)} added"


def _votes(long: list[str], short: set[str], limit: int = 8) -> list[str]:
    votes: Counter[str] = Counter()
    for name in long:
        starts = [match.end() for match in re.finditer(r"\.", name)][:32]
        votes.update(name[:start] for start in starts if name[start:] in short)
    return [prefix for prefix, _ in votes.most_common(limit)]


def _dropping(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


def _adding(prefix: str, plain: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: prefix + name if prefix + name in plain else name


def _fit(
    renaming: _Renaming,
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    model: nn.Module,
) -> _Fit:
    named = {renaming.names[name]: tensor for name, tensor in tensors.items()}
    fit = _Fit(
        renaming,
        taken={name: tensor for name, tensor in named.items() if name in wanted},
        missing=[name for name in wanted if name not in named],
        unexpected=[name for name in named if name not in wanted],
    )
    _take_twins(fit, wanted)
    _drop_duplicates(fit, named)
    _drop_counters(fit)
    _drop_declared(fit, model)
    return fit


def _take_twins(fit: _Fit, wanted: Mapping[str, Tensor]) -> None:
    """Fill a missing name from the one that the model ties it to."""
    present = {_identity(wanted[name]): name for name in fit.taken}
    twins = {
        name: present[_identity(wanted[name])]
        for name in fit.missing
        if _identity(wanted[name]) in present
    }
    for name, twin in twins.items():
        fit.taken[name] = fit.taken[twin]
        fit.notes.append(f"{name} is tied to {twin}, which the checkpoint holds")
    fit.missing = [name for name in fit.missing if name not in twins]


def _identity(tensor: Tensor) -> tuple[object, ...]:
    if tensor.device.type == "meta" or tensor.numel() == 0:
        return (id(tensor),)
    return (str(tensor.device), tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _drop_duplicates(fit: _Fit, named: Mapping[str, Tensor]) -> None:
    """Drop what shares its memory with a tensor that is used: the checkpoint ties them."""
    used = {_identity(tensor): name for name, tensor in fit.taken.items()}
    twins = {
        name: used[_identity(named[name])]
        for name in fit.unexpected
        if _identity(named[name]) in used
    }
    fit.notes += [f"{shown(name)} is {twin} under another name" for name, twin in twins.items()]
    fit.unexpected = [name for name in fit.unexpected if name not in twins]


def _drop_counters(fit: _Fit) -> None:
    counters = [name for name in fit.missing if name.rpartition(".")[2] == _COUNTER]
    if counters:
        fit.missing = [name for name in fit.missing if name not in counters]
        fit.notes.append(
            f"{len(counters)} {_COUNTER} are not in the checkpoint, and left as they are"
        )
    if _AVERAGING_COUNTER in fit.unexpected:
        fit.unexpected.remove(_AVERAGING_COUNTER)
        fit.notes.append(f"{_AVERAGING_COUNTER}, a counter of averaged weights, is left out")


def _drop_declared(fit: _Fit, model: nn.Module) -> None:
    """Drop what a transformers model declares to be of no use to it."""
    patterns = [
        pattern
        for module in model.modules()
        for pattern in getattr(module, "_keys_to_ignore_on_load_unexpected", None) or ()
        if isinstance(pattern, str)
    ]
    dropped = [
        name for name in fit.unexpected if any(re.search(pattern, name) for pattern in patterns)
    ]
    if dropped:
        fit.unexpected = [name for name in fit.unexpected if name not in dropped]
        fit.notes.append(f"left out as the model declares: {listed(dropped)}")


def _mismatch(
    fit: _Fit | None, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> CheckpointError:
    if fit is None or not fit.taken:
        return CheckpointError(
            "the checkpoint and the model have no tensor in common",
            seen=f"checkpoint: {listed(list(tensors), 3)}; model: {listed(list(wanted), 3)}",
            hint="check --model, or `landscape inspect` the checkpoint",
        )
    parts = [
        f"{len(names)} {what}: {listed(names)}"
        for what, names in (("missing", fit.missing), ("unexpected", fit.unexpected))
        if names
    ]
    return CheckpointError(
        "the tensors of the checkpoint are not those of the model",
        seen="; ".join(parts),
        hint="check the options of --model, or `landscape inspect` the checkpoint",
    )


def _shaped(taken: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    state = {
        # what PyTorch before 0.4 saved for a scalar
        name: tensor[0] if wanted[name].dim() == 0 and tensor.shape == (1,) else tensor
        for name, tensor in taken.items()
    }
    wrong = [name for name, tensor in state.items() if tensor.shape != wanted[name].shape]
    if wrong:
        first = [f"{n}: {tuple(state[n].shape)}, not {tuple(wanted[n].shape)}" for n in wrong[:3]]
        raise CheckpointError(
            f"{len(wrong)} tensors of the checkpoint have another shape than the model's",
            seen="; ".join(first) + ("; …" if len(wrong) > 3 else ""),
            hint="check the options of --model: width, depth, number of classes",
        )
    return state


def _refuse_torn_ties(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    first: dict[tuple[object, ...], str] = {}
    for name, tensor in state.items():
        other = first.setdefault(_identity(wanted[name]), name)
        if other != name and not _equal(tensor, state[other]):
            raise CheckpointError(
                "the checkpoint holds two values for tensors that the model ties",
                seen=f"{other} and {name}",
                hint="build the model without the tie",
            )


def _equal(first: Tensor, second: Tensor) -> bool:
    if first is second or _identity(first) == _identity(second):
        return True
    same_kind = first.to(second.dtype).reshape(-1).contiguous()
    return torch.equal(
        same_kind.view(torch.uint8), second.reshape(-1).contiguous().view(torch.uint8)
    )


def _in_order(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: state[name] for name in wanted if name in state}


def _refuse_kind(name: str, tensor: Tensor, target: Tensor) -> None:
    if tensor.is_quantized or tensor.is_complex() != target.is_complex():
        raise CheckpointError(
            "a tensor of the checkpoint cannot be converted to the model's type",
            seen=f"{name}: {_short(tensor.dtype)}, the model has {_short(target.dtype)}",
            hint="save the weights as the model has them",
        )
    if target.device.type == "meta":
        raise CheckpointError(
            "the model is on the meta device, where it has no values",
            seen=name,
            hint="build it on the CPU",
        )
