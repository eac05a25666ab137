"""Hugging Face for landscape: ``--model hf:FOLDER --data 'hf:text.jsonl?tokenizer=FOLDER'``."""

from landscape_huggingface.data import open_dataset
from landscape_huggingface.models import build_model

__all__ = ["build_model", "open_dataset"]
