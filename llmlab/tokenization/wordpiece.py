"""WordPiece: the tokenizer of BERT.

Text is cleaned and cut into words, and each word into the longest pieces that the vocabulary has,
from left to right. A piece inside a word is written with "##" before it. A word that cannot be cut
so is unknown.

Sources: Schuster and Nakajima 2012, "Japanese and Korean Voice Search"; Wu et al. 2016, section 4.1
(the ## inside words is BERT's); Devlin et al. 2019 (BERT), section 3, and its code.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmlab.json_file import local_path, read_json
from llmlab.tokenization.added_tokens import AddedToken, AddedTokenSplitter
from llmlab.tokenization.base import Tokenizer, check_text
from llmlab.tokenization.bert_characters import (
    is_accent,
    is_chinese,
    is_control,
    is_punctuation,
)

CONTINUATION = "##"
MAX_WORD_LENGTH = 100  # longer words are unknown
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# When tokens are joined to text again, no space goes before these.
CLOSING = (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer.

    vocabulary: token to id. It must hold [UNK]; of [PAD], [CLS], [SEP] and [MASK] those it holds
        are special tokens.
    lowercase: write the text in lower case and without accents first, as the uncased models do.

    What the text looked like (spaces, case, unknown words) is lost, so decoding gives a plain
    version.

    Raises ValueError where [UNK] is missing, two tokens share an id, or an id is no whole number.
    """

    def __init__(self, vocabulary: Mapping[str, int], *, lowercase: bool = True):
        if "[UNK]" not in vocabulary:
            raise ValueError("the vocabulary lacks [UNK], which stands for unknown words")
        if not isinstance(lowercase, bool):
            raise ValueError(f"lowercase must be true or false; got {lowercase!r}")
        super().__init__(vocabulary, [token for token in SPECIAL_TOKENS if token in vocabulary])
        self.lowercase = lowercase
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.vocabulary.get(token) for token in SPECIAL_TOKENS
        )
        self._splitter = AddedTokenSplitter(
            AddedToken(token, token_id) for token, token_id in self.special_tokens.items()
        )

    @classmethod
    def from_vocab(
        cls, path_or_mapping: str | Path | Mapping[str, int], lowercase: bool = True
    ) -> "WordPieceTokenizer":
        """A tokenizer of a vocabulary: token to id, or the path of a `vocab.txt`.

        A `vocab.txt` has one token a line; the first has the id 0.

        Raises FileNotFoundError, or ValueError where the vocabulary is not one.
        """
        if isinstance(path_or_mapping, Mapping):
            return cls(path_or_mapping, lowercase=lowercase)
        return cls(_read_vocab(local_path(path_or_mapping)), lowercase=lowercase)

    @classmethod
    def from_file(cls, path: str | Path) -> "WordPieceTokenizer":
        """Reads a Hugging Face `tokenizer.json` of a BERT.

        Raises FileNotFoundError, or ValueError naming what this tokenizer cannot do.
        """
        content = read_json(path)
        try:
            _check_bert(content)
            return cls(content["model"]["vocab"], lowercase=content["normalizer"]["lowercase"])
        except ValueError as error:
            raise ValueError(f"{path} cannot be read as BERT's WordPiece: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: {type(error).__name__} {error}") from None

    def tokenize(self, text: str) -> list[str]:
        """The tokens of `text` as the vocabulary writes them.

        "tokenizing" gives "token" and "##izing".
        """
        return [piece for word in self.words(text) for piece in self._pieces(word)]

    def words(self, text: str) -> list[str]:
        """The words into which `text` is cut before the vocabulary is asked."""
        check_text(text)
        text = _clean(text)
        if self.lowercase:
            text = _without_accents(text)
            # Letter by letter: str.lower would look at the neighbours of a Greek sigma.
            text = "".join(character.lower() for character in text)
        return [part for word in text.split() for part in _cut_at_punctuation(word)]

    def encode(
        self, text: str, add_special_tokens: bool = False, allow_special: bool = False
    ) -> list[int]:
        check_text(text)
        ids: list[int] = []
        for piece in self._splitter.split(text, allow_special=allow_special):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids.extend(self.vocabulary[token] for token in self.tokenize(piece))
        if not add_special_tokens:
            return ids
        if self.cls_id is None or self.sep_id is None:
            raise ValueError("add_special_tokens needs [CLS] and [SEP], which the vocabulary lacks")
        return [self.cls_id, *ids, self.sep_id]

    def _bytes_of(self, token_id: int, *, first: bool) -> bytes:
        token = self._tokens[token_id]
        if first or token.startswith(CLOSING):
            return token.encode("utf-8")
        if token.startswith(CONTINUATION):
            return token.removeprefix(CONTINUATION).encode("utf-8")
        return f" {token}".encode()

    def __repr__(self) -> str:
        return f"WordPieceTokenizer(vocab_size={self.vocab_size}, lowercase={self.lowercase})"

    def _pieces(self, word: str) -> list[str]:
        """The word cut into the longest pieces that the vocabulary has, from left to right."""
        if len(word) > MAX_WORD_LENGTH:
            return ["[UNK]"]
        pieces = []
        start = 0
        while start < len(word):
            prefix = CONTINUATION if start else ""
            for end in range(len(word), start, -1):
                if prefix + word[start:end] in self.vocabulary:
                    break
            else:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces


def _clean(text: str) -> str:
    """Drops control characters, makes white space spaces, and puts spaces around ideographs."""
    cleaned = []
    for character in text:
        if is_control(character):
            continue
        if character.isspace():
            cleaned.append(" ")
        else:
            cleaned.append(f" {character} " if is_chinese(character) else character)
    return "".join(cleaned)


def _without_accents(text: str) -> str:
    """Takes accented letters apart (canonical decomposition) and drops the accents."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if not is_accent(character))


def _cut_at_punctuation(word: str) -> list[str]:
    """Every punctuation mark becomes a word of its own."""
    parts = [""]
    for character in word:
        if is_punctuation(character):
            parts += [character, ""]
        else:
            parts[-1] += character
    return [part for part in parts if part]


def _read_vocab(path: Path) -> dict[str, int]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; give a vocab.txt with one token a line")
    try:
        # Some editors put a mark (BOM) before the text, which "utf-8-sig" takes away.
        with path.open(encoding="utf-8-sig") as lines:
            tokens = [line.rstrip("\n") for line in lines]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} holds the token {repeated[0]!r} more than once")
    return {token: line for line, token in enumerate(tokens)}


def _check_bert(content: Mapping[str, Any]) -> None:
    """Raises ValueError where a tokenizer.json does other things than BERT's."""
    model, normalizer = content["model"], content.get("normalizer") or {"type": "none"}
    settings = {
        "model": (model.get("type"), "WordPiece"),
        "unk_token": (model.get("unk_token"), "[UNK]"),
        "continuing_subword_prefix": (model.get("continuing_subword_prefix"), CONTINUATION),
        "max_input_chars_per_word": (model.get("max_input_chars_per_word"), MAX_WORD_LENGTH),
        "normalizer": (normalizer["type"], "BertNormalizer"),
        "clean_text": (normalizer.get("clean_text"), True),
        "handle_chinese_chars": (normalizer.get("handle_chinese_chars"), True),
        "pre_tokenizer": ((content.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer"),
    }
    if normalizer.get("strip_accents") is not None:
        settings["strip_accents"] = (normalizer["strip_accents"], normalizer.get("lowercase"))
    for name, (found, expected) in settings.items():
        if found != expected:
            raise ValueError(f"its {name} is {found!r}, not {expected!r}")
