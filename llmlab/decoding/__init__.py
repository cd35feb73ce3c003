"""Decoding: one token after another, without and with a cache; sampling; conversations."""

from llmlab.decoding.chat import Chat, ConversationFull, Reply
from llmlab.decoding.generation import Generation, Step
from llmlab.decoding.loop import generate
from llmlab.decoding.sampling import Sampler, greedy, keep_top_k, keep_top_p
from llmlab.decoding.text import ModelText

__all__ = [
    "Chat",
    "ConversationFull",
    "Generation",
    "ModelText",
    "Reply",
    "Sampler",
    "Step",
    "generate",
    "greedy",
    "keep_top_k",
    "keep_top_p",
]
