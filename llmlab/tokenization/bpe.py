"""Byte-level byte-pair encoding: the tokenizer of GPT-2, Llama 3 and Qwen.

Any text is a row of bytes, and every byte is a token; merges, learned from text, join neighbours
into longer tokens. So there is no unknown token, and decoding gives the text back exactly.

Sources: Sennrich, Haddow and Birch 2016 (BPE); Radford et al. 2019, section 2.2 (on bytes).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from llmlab.json_file import local_path
from llmlab.tokenization.added_tokens import AddedToken, AddedTokenSplitter
from llmlab.tokenization.base import Tokenizer, check_text
from llmlab.tokenization.bpe_config import BPEConfig
from llmlab.tokenization.bpe_merging import apply_merges, merge_table
from llmlab.tokenization.bpe_training import (
    check_special_token,
    check_training,
    learn_merges,
    read_special_tokens,
)
from llmlab.tokenization.byte_alphabet import from_symbols, to_symbols
from llmlab.tokenization.chat_template import encode_chat
from llmlab.tokenization.pre_tokenization import PreTokenizer
from llmlab.tokenization.tokenizer_json import read_bpe
from llmlab.tokenization.tokenizer_json_writer import write_bpe, write_tokenizer_config

# The merged form of frequent words is remembered; beyond this many words, memory starts afresh.
WORD_CACHE_SIZE = 65_536


class BPETokenizer(Tokenizer):
    """A byte-level BPE tokenizer.

    vocabulary: token to id; tokens are written in the byte alphabet ("Ġtime" is " time").
    merges: the pairs of tokens to join, in the order in which they were learned.
    added_tokens: special tokens and others that are matched as a whole.
    config: how text is treated around the merges; None is GPT-2's way.

    Raises ValueError where these do not fit together, such as a merge of unknown tokens, and for a
    special token that is also the token of a byte.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        added_tokens: Sequence[AddedToken] = (),
        config: BPEConfig | None = None,
    ):
        self.config = config = BPEConfig() if config is None else config
        self.merges = list(merges)
        self.added_tokens = tuple(added_tokens)
        _check_added_tokens(self.added_tokens, vocabulary)
        super().__init__(
            {**vocabulary, **{token.content: token.id for token in self.added_tokens}},
            [token.content for token in self.added_tokens if token.special],
            bos_token=config.bos_token,
            eos_token=config.eos_token,
        )
        self._added_text = {token.id: token.content for token in self.added_tokens}
        self._splitter = AddedTokenSplitter(self.added_tokens)
        self._pre_tokenizer = PreTokenizer(config.patterns)
        self._byte_ids = [self.vocabulary.get(to_symbols(bytes([byte]))) for byte in range(256)]
        self._merge_table = merge_table(
            self.merges, self.vocabulary, forbidden=self.special_tokens.values()
        )
        self._prefix = self._ids_of(config.prefix)
        self._suffix = self._ids_of(config.suffix)
        self._word_cache: dict[str, list[int]] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int,
        special_tokens: Iterable[str] = (),
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        chat_template: str | None = None,
    ) -> "BPETokenizer":
        """Learns a vocabulary of `vocab_size` tokens from texts.

        The special tokens have the first ids, as given; then come the 256 byte symbols in the order
        of their characters, then one token a merge. Of equally frequent pairs the smaller pair of
        ids is merged first, so the same texts always give the same tokenizer, and the one that the
        BpeTrainer of `tokenizers` learns. When every word is one token, learning stops, and the
        vocabulary is smaller than asked.

        texts: plain text; special tokens written in it are not treated as such.
        bos_token, eos_token: which of the special tokens begin and end a text. With a `bos_token`,
            `encode(..., add_special_tokens=True)` puts it first.

        Raises ValueError for a vocabulary too small for special tokens and bytes, for an empty,
        repeated or ambiguous special token; TypeError for texts that are no strings.
        """
        special_tokens = read_special_tokens(special_tokens)
        check_training(texts, vocab_size, special_tokens)
        for token in (bos_token, eos_token):
            if token is not None and token not in special_tokens:
                raise ValueError(f"{token!r} begins or ends a text, but is no special token")
        pre_tokenizer = PreTokenizer()
        words: Counter[str] = Counter()
        for text in texts:
            check_text(text)
            words.update(pre_tokenizer.split(text))
        symbol_words = {to_symbols(word.encode("utf-8")): count for word, count in words.items()}
        vocabulary, merges = learn_merges(symbol_words, vocab_size, special_tokens)
        added_tokens = [AddedToken(token, index) for index, token in enumerate(special_tokens)]
        config = BPEConfig(
            prefix=() if bos_token is None else (bos_token,),
            bos_token=bos_token,
            eos_token=eos_token,
            chat_template=chat_template,
        )
        return cls(vocabulary, merges, added_tokens, config)

    @classmethod
    def from_file(cls, path: str | Path) -> "BPETokenizer":
        """Reads a Hugging Face `tokenizer.json` of a byte-level BPE.

        The tokens that begin and end a text, and the chat template, come from a
        `tokenizer_config.json` beside it.

        Raises FileNotFoundError, or ValueError naming what this tokenizer cannot do.
        """
        try:
            return cls(*read_bpe(path))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            damage = "" if isinstance(error, ValueError) else f"damaged, {type(error).__name__} "
            raise ValueError(
                f"{path} cannot be read as a byte-level BPE: {damage}{error}"
            ) from None

    def save(self, path: str | Path) -> None:
        """Writes a Hugging Face `tokenizer.json`, which the `tokenizers` library reads too.

        Which tokens begin and end a text, and the chat template, have no place in it: for these
        use `save_pretrained`.
        """
        write_bpe(path, self.vocabulary, self.merges, self.added_tokens, self.config)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`, which AutoTokenizer reads too."""
        folder = local_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.save(folder / "tokenizer.json")
        write_tokenizer_config(folder / "tokenizer_config.json", self.config)

    def encode(
        self, text: str, add_special_tokens: bool = False, allow_special: bool = False
    ) -> list[int]:
        check_text(text)
        ids: list[int] = []
        for piece in self._splitter.split(text, allow_special=allow_special):
            ids.extend([piece] if isinstance(piece, int) else self._encode_plain(piece))
        return [*self._prefix, *ids, *self._suffix] if add_special_tokens else ids

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool = True,
        template: str | None = None,
    ) -> list[int]:
        """The token ids of a conversation, written as the model was trained to read one.

        messages: in order, each {"role": ..., "content": ...}, such as
            [{"role": "user", "content": "Hello"}].
        add_generation_prompt: end with the beginning of the assistant's turn, for the model to go
            on from there.
        template: a Jinja template; None is the tokenizer's own (`config.chat_template`).

        Control tokens come from the template only: "<|im_end|>" written in a message stays text.

        Raises ValueError where there is no template, or for messages that it cannot write.
        """
        template = self.config.chat_template if template is None else template
        if template is None:
            raise ValueError(
                "this tokenizer has no chat template; pass one as template=..., or load a folder "
                "whose tokenizer_config.json holds a chat_template"
            )
        return encode_chat(self, messages, template, add_generation_prompt=add_generation_prompt)

    def _bytes_of(self, token_id: int, *, first: bool) -> bytes:
        if token_id in self._added_text:
            return self._added_text[token_id].encode("utf-8")
        token = self._tokens[token_id]
        try:
            return from_symbols(token)
        except KeyError:  # not written in the byte alphabet: such a token stands for itself
            return token.encode("utf-8")

    def __repr__(self) -> str:
        return (
            f"BPETokenizer(vocab_size={self.vocab_size}, merges={len(self.merges)}, "
            f"special_tokens={list(self.special_tokens)})"
        )

    def _encode_plain(self, text: str) -> list[int]:
        """The ids of text without added tokens."""
        if self.config.normalizer == "NFC":
            text = unicodedata.normalize("NFC", text)
        if self.config.add_prefix_space and not text.startswith(" "):
            text = " " + text
        return [
            token for word in self._pre_tokenizer.split(text) for token in self._encode_word(word)
        ]

    def _encode_word(self, word: str) -> list[int]:
        tokens = self._word_cache.get(word)
        if tokens is None:
            if len(self._word_cache) >= WORD_CACHE_SIZE:
                self._word_cache.clear()
            tokens = self._word_cache[word] = self._merge_word(word.encode("utf-8"))
        return tokens

    def _merge_word(self, data: bytes) -> list[int]:
        if self.config.ignore_merges:
            whole = self.vocabulary.get(to_symbols(data))
            if whole is not None and whole not in self._added_text:
                return [whole]
        tokens = [self._byte_ids[byte] for byte in data]
        if None in tokens:
            byte = data[tokens.index(None)]
            raise ValueError(
                f"the vocabulary has no token for the byte {byte:#04x} of {data.decode()!r}; it "
                "was trained without the whole byte alphabet, and cannot encode this text"
            )
        return apply_merges(tokens, self._merge_table)

    def _ids_of(self, tokens: Sequence[str]) -> list[int]:
        missing = [token for token in tokens if token not in self.vocabulary]
        if missing:
            raise ValueError(f"the template names tokens that the vocabulary lacks: {missing}")
        return [self.vocabulary[token] for token in tokens]


def _check_added_tokens(added_tokens: Sequence[AddedToken], vocabulary: Mapping[str, int]) -> None:
    ids = dict(vocabulary)
    for token in added_tokens:
        if token.special:
            check_special_token(token.content)
        if ids.setdefault(token.content, token.id) != token.id:
            raise ValueError(
                f"the added token {token.content!r} has the id {token.id}, but also the id "
                f"{ids[token.content]}"
            )
