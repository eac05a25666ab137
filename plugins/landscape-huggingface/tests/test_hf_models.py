"""The model adapter against transformers' own classes, its label shift, and its refusals."""

import json
import math
import os
import subprocess
import sys
from importlib import metadata

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("datasets", reason="datasets is not installed")

import transformers
from landscape_huggingface import build_model
from landscape_huggingface.library import offline

from landscape_cli import losses, randomness
from landscape_cli.adapters.conformance import check_model_adapter
from landscape_cli.batches import Batch
from landscape_cli.errors import AdapterError

ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT2 = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 16, "vocab_size": 23, **ENDS}
LLAMA = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "vocab_size": 23,
    **ENDS,
}
BERT = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "vocab_size": 23,
    "pad_token_id": 0,
}
T5 = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_kv": 8, "d_ff": 24, "vocab_size": 23}
BART = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "d_model": 16,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 16,
    "vocab_size": 23,
    "decoder_start_token_id": 2,
    **ENDS,
}
XLNET = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_inner": 24, "vocab_size": 23, **ENDS}
VIT = {
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 8,
    "patch_size": 4,
}


def language_batch():
    """Two sequences; the first three labels of the first do not count, nor the last of both."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 23, (2, 7), generator=generator)
    labels = tokens.clone()
    labels[0, :3] = labels[:, -1] = -100
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


@pytest.mark.parametrize(
    ("target", "options", "kind"),
    [
        ("gpt2", GPT2, "GPT2LMHeadModel"),
        ("llama", LLAMA, "LlamaForCausalLM"),
        ("bert", BERT, "BertForMaskedLM"),
        ("t5", T5, "T5ForConditionalGeneration"),
        ("vit", VIT, "ViTForImageClassification"),
    ],
)
def test_a_type_is_built_for_what_it_is_usually_used_for(target, options, kind):
    model = build_model(target, **options)
    assert type(model).__name__ == kind
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(("target", "options"), [("gpt2", GPT2), ("bert", BERT), ("t5", T5)])
def test_the_adapter_conforms(target, options):
    check_model_adapter(build_model, target, language_batch(), **options)


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("sequence-classification", "BertForSequenceClassification"),
        ("token-classification", "BertForTokenClassification"),
        ("features", "BertModel"),
        ("BertForPreTraining", "BertForPreTraining"),
        ("AutoModelForQuestionAnswering", "BertForQuestionAnswering"),
    ],
)
def test_a_task_or_the_name_of_a_class_chooses_the_class(task, kind):
    assert type(build_model("bert", task=task, **BERT)).__name__ == kind


def test_a_folder_is_built_as_what_it_was_saved_as(tmp_path):
    config = transformers.BertConfig(**BERT, num_labels=3, dtype="bfloat16")
    saved = transformers.BertForSequenceClassification(config)
    saved.save_pretrained(tmp_path)
    for target in (tmp_path, tmp_path / "config.json"):
        model = build_model(str(target))
        assert type(model) is type(saved)
        assert model.classifier.out_features == 3
        assert model.dtype == torch.float32
        model.load_state_dict(saved.state_dict())
    assert build_model(str(tmp_path), num_hidden_layers=1).config.num_hidden_layers == 1


def test_the_decoder_of_a_type_starts_with_its_padding_where_its_config_says_nothing():
    assert build_model("t5", **T5).config.decoder_start_token_id == 0
    assert build_model("t5", **T5, decoder_start_token_id=5).config.decoder_start_token_id == 5


def test_the_past_is_not_kept():
    output = build_model("gpt2", **GPT2)(**language_batch())
    assert output.past_key_values is None


@pytest.mark.parametrize(
    ("target", "task", "options", "shifts"),
    [
        ("gpt2", None, GPT2, True),
        ("llama", None, LLAMA, True),
        ("bert", "causal-lm", {**BERT, "is_decoder": True}, True),
        ("bart", "causal-lm", BART, False),
        ("xlnet", "causal-lm", XLNET, False),
    ],
)
def test_the_shift_of_the_labels_is_that_of_the_models_own_loss(target, task, options, shifts):
    """The loss of the model times the terms is the sum over tokens, written out."""
    torch.manual_seed(0)
    model = build_model(target, task=task, **options).eval()
    assert model.shifts_labels is shifts
    raw = language_batch()
    batch = Batch.split(raw, model, whole=True)
    loss = losses.resolve("model", model)
    with torch.no_grad():
        output = model(**batch.keywords)
    scores, labels = output.logits, raw["labels"]
    if shifts:
        scores, labels = scores[:, :-1], labels[:, 1:]
    wanted = F.cross_entropy(scores.reshape(-1, 23), labels.reshape(-1), reduction="sum")
    assert loss.terms(batch) == int((labels != -100).sum())
    assert float(loss.total(output, batch)) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("target", ["gpt2", "modernbert"])
def test_the_loss_of_a_model_in_float64_is_in_float64_and_otherwise_that_of_transformers(target):
    options = GPT2 if target == "gpt2" else {**BERT, "cls_token_id": 1, "sep_token_id": 2, **ENDS}
    model, raw = build_model(target, **options).eval(), language_batch()
    theirs = type(model)(model.config).eval()
    theirs.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(**raw).loss, theirs(**raw).loss)
        output = model.double()(**raw)
        scores, labels = output.logits, raw["labels"]
        if target == "gpt2":
            scores, labels = scores[:, :-1], labels[:, 1:]
        wanted = F.cross_entropy(scores.reshape(-1, 23), labels.reshape(-1))
        rounded = theirs.double()(**raw).loss
    assert output.loss.dtype == torch.float64
    assert float(output.loss) == pytest.approx(float(wanted), rel=1e-14)
    assert float(rounded) != pytest.approx(float(wanted), rel=1e-12), "it would not be needed"


@pytest.mark.parametrize(("target", "options"), [("bert", BERT), ("t5", T5), ("bart", BART)])
def test_masked_and_sequence_to_sequence_losses_weigh_every_label_that_counts(target, options):
    model = build_model(target, **options).eval()
    raw = language_batch()
    batch = Batch.split(raw, model, whole=True)
    loss = losses.resolve("model", model)
    with torch.no_grad():
        output = model(**batch.keywords)
    labels = raw["labels"]
    wanted = F.cross_entropy(output.logits.reshape(-1, 23), labels.reshape(-1), reduction="sum")
    assert loss.terms(batch) == int((labels != -100).sum())
    assert float(loss.total(output, batch)) == pytest.approx(float(wanted), rel=1e-6)


def test_a_model_is_built_and_called_without_the_warning_of_its_loss(monkeypatch):
    said = []
    monkeypatch.setattr("transformers.modeling_utils.logger.warning_once", said.append)
    model, batch = build_model("gpt2", **GPT2), language_batch()
    model(**batch)
    assert not any("loss_type" in text for text in said)
    type(model)(model.config)(**batch)
    assert any("loss_type" in text for text in said), "it would not be needed"


def test_measuring_the_shift_leaves_no_trace():
    torch.manual_seed(3)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
    state = randomness.capture()
    torch.manual_seed(3)
    ours = build_model("gpt2", **GPT2)
    assert randomness.capture() == state
    assert ours.training == theirs.training
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


def test_a_folder_whose_model_brings_its_own_code_is_refused_and_nothing_runs(tmp_path):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(AdapterError, match="no config"):
        build_model(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_nothing_is_asked_of_the_network_and_the_flags_come_back(monkeypatch):
    import socket

    import huggingface_hub

    def refuse(*_, **__):
        raise AssertionError("the network is asked")

    before = huggingface_hub.constants.HF_HUB_OFFLINE
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(AdapterError, match="no config"):
        build_model("nobody/no-such-model-8f3a")
    assert before == huggingface_hub.constants.HF_HUB_OFFLINE
    with offline():
        assert huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("gpt3", {}, "no config", "gpt2"),
        ("/nowhere/at/all", {}, "no config", "config.json"),
        ("gpt2", {"n_layers": 2}, "no option 'n_layers'", "n_layer"),
        ("gpt2", {"task": "cooking"}, "no task or class 'cooking'", "causal-lm"),
        ("gpt2", {"task": "os"}, "no task or class 'os'", "causal-lm"),
        ("gpt2", {"trust_remote_code": True}, "no code of others", "leave the option out"),
        ("gpt2", {**GPT2, "n_head": 3}, "cannot be built", "check the config"),
        ("bert", {**BERT, "task": "ctc"}, "cannot be built", "task="),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        build_model(target, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


def test_the_loss_of_random_weights_is_about_that_of_guessing():
    with torch.no_grad():
        output = build_model("gpt2", **GPT2)(**language_batch())
    assert float(output.loss) == pytest.approx(math.log(23), rel=0.1)


def test_a_torchvision_that_does_not_fit_the_torch_is_no_hindrance(tmp_path):
    (tmp_path / "torchvision").mkdir()
    failing = "raise RuntimeError('operator torchvision::nms does not exist')"
    (tmp_path / "torchvision" / "__init__.py").write_text(failing)
    code = """
from landscape_huggingface import build_model
print(type(build_model("vit", num_hidden_layers=1, hidden_size=12)).__name__)
import torchvision
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "ViTForImageClassification"
    assert "operator torchvision::nms does not exist" in done.stderr, "it is not hidden for others"


def test_the_adapter_is_registered_as_hf():
    (entry,) = metadata.entry_points(group="landscape_cli.models", name="hf")
    assert entry.load() is build_model
