"""Decoder-only transformers: built from parts, loaded from Hugging Face folders."""

from llmlab.model.checkpoint import load_model, save_model
from llmlab.model.decoder import DecoderModel

__all__ = ["DecoderModel", "load_model", "save_model"]
