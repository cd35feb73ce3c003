"""Decoding: one token after another, without and with a cache; sampling; conversations."""

from llmlab.decoding.chat import Chat, Reply
from llmlab.decoding.generation import Generation, Step
from llmlab.decoding.loop import generate
from llmlab.decoding.sampling import Sampler, greedy, keep_top_k, keep_top_p

__all__ = [
    "Chat",
    "Generation",
    "Reply",
    "Sampler",
    "Step",
    "generate",
    "greedy",
    "keep_top_k",
    "keep_top_p",
]
