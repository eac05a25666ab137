"""The data adapter ``hf``: ``--data 'hf:text.jsonl?tokenizer=FOLDER&task=causal-lm'``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_huggingface import language
from landscape_huggingface.columns import open_columns, open_tokens
from landscape_huggingface.language import TokenSamples
from landscape_huggingface.library import first_line, offline, transformers
from landscape_huggingface.rows import open_rows

TASKS = ("causal-lm", "masked-lm", "seq2seq-lm", "sequence-classification")


@dataclass(frozen=True)
class _Reading:
    """How rows become samples; the options of the adapter that are about that."""

    task: str
    text: str
    labels: str | None
    max_length: int
    pack: bool
    mask: float
    seed: int

    def __post_init__(self) -> None:
        checks = {
            "task": (self.task in TASKS, ", ".join(TASKS)),
            "max_length": (_is_whole(self.max_length, 2), "a whole number from 2"),
            "pack": (type(self.pack) is bool, "True or False"),
            "mask": (_is_share(self.mask), "a number above 0, up to 1"),
            "seed": (_is_whole(self.seed, 0), "a whole number from 0"),
        }
        for name, (holds, hint) in checks.items():
            if not holds:
                value = getattr(self, name)
                raise AdapterError(
                    f"the option {name!r} cannot be {value!r}", seen=f"{name}={value}", hint=hint
                )
        if self.pack and self.task != "causal-lm":
            raise AdapterError(
                "only causal-lm packs texts together",
                seen=f"pack=True&task={self.task}",
                hint="leave pack out",
            )


def open_dataset(  # noqa: PLR0913  the options of a spec, all by name
    target: str,
    *,
    tokenizer: str | None = None,
    task: str = "causal-lm",
    split: str | None = None,
    subset: str | None = None,
    text: str = "text",
    labels: str | None = None,
    columns: str | tuple[str, ...] | None = None,
    max_length: int = 128,
    pack: bool = False,
    mask: float = 0.15,
    seed: int = 0,
) -> Dataset[Any]:
    """Open texts as batches of a language task, or ready columns as they are; always offline.

    Args:
        target: a ``.jsonl``, ``.json``, ``.csv``, ``.txt``, ``.parquet`` or ``.arrow`` file, a
            folder that ``save_to_disk`` wrote, or the name of a data set in the local cache.
        tokenizer: a folder with a tokenizer, or the name of one in the local cache. Without it
            the rows must hold ``input_ids``, or `columns` must name tensors.
        task: ``causal-lm``, ``masked-lm``, ``seq2seq-lm`` or ``sequence-classification``.
        split: which part; ``train``, or the only one.
        subset: which configuration of a cached data set.
        text: the column with the text.
        labels: the column with the answer: a text for ``seq2seq-lm`` (``target``), else a class
            or a number (``label``).
        columns: names of columns of numbers to give to the model as they are.
        max_length: tokens that a text is cut to, and the length of packed blocks.
        pack: whether all texts are joined and cut into blocks, so that nothing is padded.
        mask: share of the tokens that ``masked-lm`` asks for.
        seed: decides which those are.

    Returns:
        A data set of mappings with ``input_ids``, ``attention_mask`` and ``labels``, −100 where a
        label does not count; its ``collate_fn`` pads on the right.

    Raises:
        AdapterError: If there is no such file, data set, column or tokenizer, or a value cannot
            be meant.
    """
    reading = _Reading(task, text, labels, max_length, pack, mask, seed)
    rows = open_rows(target, split=split, subset=subset)
    if columns is not None:
        return open_columns(rows, columns)
    if tokenizer is None:
        return open_tokens(rows, task, max_length)
    return _read_texts(rows, _tokenizer(tokenizer), reading)


def _read_texts(rows: Any, tokenizer: Any, reading: _Reading) -> TokenSamples:
    texts = _texts(rows, reading.text)
    kept = [i for i, each in enumerate(texts) if each.strip()]
    if not kept:
        raise AdapterError("every text is empty", seen=reading.text, hint="text=COLUMN")
    chosen = [texts[i] for i in kept]
    encode: language.Encode
    count, length = len(chosen), reading.max_length
    if reading.pack:
        blocks = language.pack(tokenizer, chosen, length)
        encode, count = language.Packed(blocks), len(blocks)
        _check_blocks(count, length)
    elif reading.task == "causal-lm":
        encode = language.Causal(tokenizer, chosen, length)
    elif reading.task == "masked-lm":
        _check_mask(tokenizer)
        encode = language.Masked(tokenizer, chosen, length, reading.mask, reading.seed)
    elif reading.task == "seq2seq-lm":
        answers = _texts(rows, reading.labels or "target")
        encode = language.Sequences(tokenizer, chosen, [answers[i] for i in kept], length)
    else:
        labels = _numbers(rows, reading.labels or "label")
        encode = language.Classified(tokenizer, chosen, [labels[i] for i in kept], length)
    return TokenSamples(count, encode, pad_id=_padding(tokenizer))


def _texts(rows: Any, name: str) -> list[str]:
    values = _column(rows, name)
    wrong = next((value for value in values if value is not None and type(value) is not str), None)
    if wrong is not None:
        raise AdapterError(
            f"the column {name!r} does not hold text",
            seen=f"a {type(wrong).__name__}",
            hint=f"text=COLUMN, one of {', '.join(rows.column_names)}",
        )
    return [value or "" for value in values]


def _numbers(rows: Any, name: str) -> Sequence[Any]:
    values = _column(rows, name)
    wrong = next((v for v in values if not isinstance(v, int | float | np.number)), 0)
    if not isinstance(wrong, int | float | np.number):
        raise AdapterError(
            f"the column {name!r} holds labels that are not numbers",
            seen=repr(wrong)[:60],
            hint="rows.class_encode_column(…) makes classes of names",
        )
    return values


def _column(rows: Any, name: str) -> list[Any]:
    if name not in rows.column_names:
        raise AdapterError(
            f"the data set has no column {name!r}",
            seen=", ".join(rows.column_names),
            hint="text=COLUMN and labels=COLUMN say which ones to read",
        )
    return list(rows[name])


def _tokenizer(name: str) -> Any:
    path = Path(str(name)).expanduser()
    try:
        with offline():
            return transformers.AutoTokenizer.from_pretrained(
                str(path) if path.exists() else name,
                local_files_only=True,
                trust_remote_code=False,
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise AdapterError(
            "there is no tokenizer there",
            seen=f"{name}: {first_line(error)}",
            hint="tokenizer=FOLDER, one that tokenizer.save_pretrained wrote",
        ) from error


def _padding(tokenizer: Any) -> int:
    known = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(token for token in known if token is not None)


def _check_mask(tokenizer: Any) -> None:
    if tokenizer.mask_token_id is None:
        raise AdapterError(
            "the tokenizer has no mask", seen="task=masked-lm", hint="task=causal-lm, perhaps"
        )


def _check_blocks(count: int, length: int) -> None:
    if not count:
        raise AdapterError(
            "all texts together are shorter than one block",
            seen=f"max_length={length}",
            hint="a smaller max_length, or pack=False",
        )


def _is_whole(value: object, low: int) -> bool:
    return type(value) is int and value >= low


def _is_share(value: object) -> bool:
    return type(value) in (int, float) and 0 < value <= 1  # type: ignore[operator]
