"""llmlab: a textbook you run, on how large language models produce text."""

__version__ = "0.1.0"
