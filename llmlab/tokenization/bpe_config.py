"""How a byte-level BPE tokenizer treats text around its merges."""

from dataclasses import dataclass

from llmlab.tokenization.pre_tokenization import GPT2_PATTERN


@dataclass(frozen=True)
class BPEConfig:
    """What a `tokenizer.json` and the `tokenizer_config.json` beside it say besides the vocabulary.

    patterns: the pre-tokenization's regular expressions, applied one after another.
    normalizer: "NFC" composes characters before all else (Qwen2), so that "e" and a combining
        accent become one "é"; None leaves the text as it is.
    add_prefix_space: put a space before the text if it has none, so that the first word is written
        like any other; decoding then gives that space too.
    ignore_merges: a word that is in the vocabulary is one token, whatever the merges say (Llama 3).
    prefix, suffix: the tokens that `add_special_tokens` puts before and after the text.
    bos_token, eos_token: the tokens that begin and end a text.
    chat_template: the Jinja template that writes a conversation as one text.
    """

    patterns: tuple[str, ...] = (GPT2_PATTERN,)
    normalizer: str | None = None
    add_prefix_space: bool = False
    ignore_merges: bool = False
    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    bos_token: str | None = None
    eos_token: str | None = None
    chat_template: str | None = None

    def __post_init__(self):
        if self.normalizer not in (None, "NFC"):
            raise ValueError(f'normalizer must be None or "NFC"; got {self.normalizer!r}')
        for name in ("bos_token", "eos_token", "chat_template"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} must be text; got {value!r}")
