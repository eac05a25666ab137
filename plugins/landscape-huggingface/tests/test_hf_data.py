"""The data adapter against tokens counted by hand, and its refusals."""

import json
from importlib import metadata

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("datasets", reason="datasets is not installed")

import datasets
from landscape_huggingface import open_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast

from landscape_cli import batches
from landscape_cli.adapters.conformance import check_data_adapter
from landscape_cli.batches import Batch, map_tensors
from landscape_cli.errors import AdapterError

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
WORDS = [*SPECIAL, "the", "cat", "sat", "on", "a", "mat", "and", "slept"]
ID = {word: number for number, word in enumerate(WORDS)}
TEXTS = ["the cat sat on the mat", "a cat slept", "", "the mat and a cat and the cat sat"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def tokenizer(tmp_path):
    """Words as tokens, [CLS] before and [SEP] after."""
    made = Tokenizer(models.WordLevel(ID, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        unk_token="[UNK]",
        eos_token="[SEP]",
    )
    wrapped.save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "texts.jsonl"
    rows = [
        {"text": text, "target": text[:7], "label": number % 2, "name": "x"}
        for number, text in enumerate(TEXTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def ids(text):
    return [ID["[CLS]"], *(ID[word] for word in text.split()), ID["[SEP]"]]


def one_batch(data, size=3):
    (batch,) = batches.draw(data, size, 1, seed=0).batches
    return batch


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "seq2seq-lm"])
def test_the_adapter_conforms(lines, tokenizer, task):
    check_data_adapter(open_dataset, lines, tokenizer=tokenizer, task=task)


def test_causal_batches_are_the_tokens_padded_on_the_right(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer)
    assert len(data) == 3, "the row without text is left out"
    batch = data.collate_fn([data[0], data[1]])
    first, second = ids(TEXTS[0]), ids(TEXTS[1])
    gap = len(first) - len(second)
    assert batch["input_ids"].tolist() == [first, second + [0] * gap]
    assert batch["attention_mask"].tolist() == [[1] * 8, [1] * 5 + [0] * gap]
    assert batch["labels"].tolist() == [first, second + [-100] * gap]


def test_texts_are_cut_to_the_length(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer, max_length=4)
    assert {len(data[i]["input_ids"]) for i in range(len(data))} == {4}


def test_packing_loses_only_the_rest_after_the_last_block(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer, pack=True, max_length=5)
    stream = [token for text in TEXTS if text for token in ids(text)[1:]]
    blocks = torch.stack([data[i]["input_ids"] for i in range(len(data))])
    assert blocks.flatten().tolist() == stream[: len(stream) // 5 * 5]
    assert torch.equal(data[0]["labels"], data[0]["input_ids"])


def test_masks_are_the_same_every_time_and_hide_what_they_say(lines, tokenizer):
    data, again, other = (
        open_dataset(lines, tokenizer=tokenizer, task="masked-lm", mask=0.5, seed=seed)
        for seed in (0, 0, 1)
    )
    differs = False
    for index, text in enumerate(text for text in TEXTS if text):
        sample, tokens = data[index], torch.tensor(ids(text))
        chosen = sample["labels"] != -100
        assert torch.equal(sample["labels"][chosen], tokens[chosen])
        assert torch.equal(sample["input_ids"][~chosen], tokens[~chosen])
        assert not chosen[0]
        assert not chosen[-1], "special tokens are never asked for"
        assert all(torch.equal(sample[name], again[index][name]) for name in sample)
        differs |= not torch.equal(sample["labels"], other[index]["labels"])
    assert differs


def test_masks_have_the_shares_of_bert(tmp_path, tokenizer):
    path = tmp_path / "long.txt"
    path.write_text("\n".join(["the cat sat on a mat and slept " * 60] * 20))
    data = open_dataset(str(path), tokenizer=tokenizer, task="masked-lm", max_length=512)
    samples = [data[i] for i in range(20)]
    chosen = torch.cat([sample["labels"] != -100 for sample in samples])
    shown = torch.cat([sample["input_ids"] for sample in samples])[chosen]
    wanted = torch.cat([sample["labels"] for sample in samples])[chosen]
    # 9,600 tokens, 1,440 chosen: five standard deviations of each share
    assert abs(float(chosen.float().sum()) / 9600 - 0.15) < 0.018
    assert abs(float((shown == ID["[MASK]"]).float().mean()) - (0.8 + 0.1 / 13)) < 0.053
    assert abs(float((shown == wanted).float().mean()) - (0.1 + 0.1 / 13)) < 0.042


def test_a_short_text_has_at_least_one_masked_token(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer, task="masked-lm", mask=0.001)
    assert all(int((data[i]["labels"] != -100).sum()) == 1 for i in range(len(data)))


def test_sequence_to_sequence_labels_are_the_answers_tokens(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer, task="seq2seq-lm")
    batch = data.collate_fn([data[0], data[1]])
    second = [ID["[CLS]"], ID["a"], ID["cat"], ID["[UNK]"], ID["[SEP]"]]  # "a cat s"
    assert batch["labels"].tolist() == [[*ids("the cat"), -100], second]


def test_labels_of_texts_are_their_classes(lines, tokenizer):
    data = open_dataset(lines, tokenizer=tokenizer, task="sequence-classification")
    batch = data.collate_fn([data[i] for i in range(3)])
    assert batch["labels"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "txt", "parquet", "disk", "splits"])
def test_the_same_texts_through_every_format_are_the_same_tokens(tmp_path, tokenizer, suffix):
    texts = [text for text in TEXTS if text]
    rows = datasets.Dataset.from_dict({"text": texts})
    path = tmp_path / f"data.{suffix}"
    writers = {
        "jsonl": lambda: rows.to_json(path),
        "csv": lambda: rows.to_csv(path, index=False),
        "tsv": lambda: rows.to_csv(path, sep="\t", index=False),
        "txt": lambda: path.write_text("\n".join(texts)),
        "parquet": lambda: rows.to_parquet(path),
        "disk": lambda: rows.save_to_disk(path),
        "splits": lambda: datasets.DatasetDict({"test": rows}).save_to_disk(path),
    }
    writers[suffix]()
    data = open_dataset(str(path), tokenizer=tokenizer)
    assert [data[i]["input_ids"].tolist() for i in range(3)] == [ids(text) for text in texts]


def test_rows_of_tokens_need_no_tokenizer(tmp_path):
    rows = datasets.Dataset.from_dict({"input_ids": [[5, 6, 7], [8, 9]], "other": ["a", "b"]})
    rows.save_to_disk(tmp_path / "tokens")
    batch = one_batch(open_dataset(str(tmp_path / "tokens")), 2)
    assert sorted(batch["input_ids"].tolist()) == [[5, 6, 7], [8, 9, 0]]
    assert sorted(batch["labels"].tolist()) == [[5, 6, 7], [8, 9, -100]]


def test_columns_of_numbers_go_to_the_model_as_they_are(tmp_path):
    rows = datasets.Dataset.from_dict(
        {"pixel_values": [[[0.0, 0.5], [1.0, 0.25]]] * 2, "labels": [1, 0], "name": ["a", "b"]}
    )
    rows.save_to_disk(tmp_path / "pictures")
    data = open_dataset(str(tmp_path / "pictures"), columns="pixel_values,labels")
    batch = one_batch(data, 2)
    assert set(batch) == {"pixel_values", "labels"}
    assert batch["pixel_values"].shape == (2, 2, 2)
    assert sorted(batch["labels"].tolist()) == [0, 1]


def test_a_batch_encoding_keeps_its_type_and_its_integers():
    encoding = BatchEncoding({"input_ids": torch.tensor([[1, 2]]), "scores": torch.ones(1, 2)})
    moved = map_tensors(encoding, lambda t: t.double() if t.is_floating_point() else t)
    assert type(moved) is BatchEncoding
    assert moved["input_ids"].dtype == torch.int64
    assert moved["scores"].dtype == torch.float64
    assert encoding["scores"].dtype == torch.float32, "the batch that was given is left alone"

    class Model(torch.nn.Module):
        def forward(self, input_ids, scores):
            return input_ids, scores

    assert set(Batch.split(moved, Model()).keywords) == {"input_ids", "scores"}


@pytest.mark.parametrize(
    ("options", "what", "hint"),
    [
        ({"tokenizer": "/nowhere"}, "no tokenizer there", "save_pretrained"),
        ({}, "no column with tokens", "tokenizer=FOLDER"),
        ({"task": "cooking"}, "'task' cannot be 'cooking'", "causal-lm"),
        ({"max_length": 1}, "'max_length' cannot be 1", "from 2"),
        ({"mask": 0}, "'mask' cannot be 0", "above 0"),
        ({"pack": True, "task": "masked-lm"}, "only causal-lm packs", "leave pack out"),
        ({"split": "test"}, "no split 'test'", "split=train"),
        ({"columns": "pixels"}, "no column 'pixels'", "columns="),
    ],
)
def test_options_that_cannot_be_meant_are_refused_with_what_to_try(lines, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        open_dataset(lines, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"text": "words"}, "no column 'words'"),
        ({"text": "label"}, "does not hold text"),
        ({"task": "sequence-classification", "labels": "name"}, "labels that are not numbers"),
        ({"task": "seq2seq-lm", "labels": "answer"}, "no column 'answer'"),
        ({"pack": True, "max_length": 500}, "shorter than one block"),
    ],
)
def test_columns_that_do_not_fit_the_task_are_refused(lines, tokenizer, options, what):
    with pytest.raises(AdapterError) as caught:
        open_dataset(lines, tokenizer=tokenizer, **options)
    assert what in caught.value.what


@pytest.mark.parametrize("name", ["missing.jsonl", "nobody/no-such-data-8f3a", "broken.jsonl"])
def test_data_that_are_not_there_are_refused_without_asking_the_network(
    tmp_path, name, monkeypatch
):
    import socket

    def refuse(*_, **__):
        raise AssertionError("the network is asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    (tmp_path / "broken.jsonl").write_text('{"text": ')
    target = name if "/" in name else str(tmp_path / name)
    with pytest.raises(AdapterError, match="cannot be opened"):
        open_dataset(target)


def test_the_adapter_is_registered_as_hf():
    (entry,) = metadata.entry_points(group="landscape_cli.data", name="hf")
    assert entry.load() is open_dataset
