"""Which class of transformers a model is built as: asked for, recorded, or guessed."""

from __future__ import annotations

from typing import Any

from landscape_cli.errors import AdapterError
from landscape_huggingface.library import MODELS, transformers

TASKS = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "next-sentence-prediction": "AutoModelForNextSentencePrediction",
    "image-classification": "AutoModelForImageClassification",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "masked-image-modeling": "AutoModelForMaskedImageModeling",
    "image-text-to-text": "AutoModelForImageTextToText",
    "video-classification": "AutoModelForVideoClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "ctc": "AutoModelForCTC",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
    "pretraining": "AutoModelForPreTraining",
    "features": "AutoModel",
}
"""Tasks by the name that ``task=`` has, and the class that chooses a model's own class."""

_GUESSES = (
    ("masked-lm", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
    ("causal-lm", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    ("image-classification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    ("audio-classification", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"),
    ("video-classification", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES"),
)


def choose_class(config: Any, task: str | None) -> Any:
    """Return the class that a model with `config` is built as.

    Args:
        config: of transformers; its ``architectures`` are what it was saved as.
        task: a name in `TASKS`, the name of a class of transformers, or None for the recorded
            class, or else the first of the usual tasks that the kind of model has.

    Raises:
        AdapterError: If there is no such task or class.
    """
    if task is not None:
        return _named(TASKS.get(task, task), task)
    recorded = getattr(config, "architectures", None) or ()
    for name in recorded:
        if hasattr(transformers, name):
            return getattr(transformers, name)
    return _named(TASKS[_guess(config)], "")


def _named(name: str, task: str) -> Any:
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    if found is not None and hasattr(found, "from_pretrained"):
        return found
    raise AdapterError(
        f"transformers {transformers.__version__} has no task or class {task!r}",
        seen=f"task={task}",
        hint=f"{', '.join(TASKS)}, or the name of a class",
    )


def _guess(config: Any) -> str:
    if getattr(config, "is_encoder_decoder", False):
        return "seq2seq-lm"
    for task, mapping in _GUESSES:
        if config.model_type in getattr(MODELS, mapping, ()):
            return task
    raise AdapterError(
        f"there is no usual task for a model of type {config.model_type!r}",
        seen="no architectures in the config, and no task",
        hint=f"task={', '.join(TASKS)}",
    )
