"""Learning the merges of byte-pair encoding.

Again and again, the most frequent pair of neighbouring tokens is joined into a new token.

Text repeats its words, so each distinct word is kept once, with its count. A merge changes only the
words that contain the pair; the counts of all other words stay as they are. That makes a merge cost
as much as the words it touches, not as much as the corpus.

Source: Sennrich, Haddow and Birch 2016, "Neural Machine Translation of Rare Words with Subword
Units", section 3.2; on bytes, Radford et al. 2019, section 2.2.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from numbers import Integral

from tqdm import tqdm

from llmlab.tokenization.base import check_text
from llmlab.tokenization.byte_alphabet import BYTE_SYMBOLS

Pair = tuple[int, int]


def merge_pair(tokens: list[int], pair: Pair, merged: int) -> list[int]:
    """Replaces every occurrence of `pair` by `merged`, from left to right.

    >>> merge_pair([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    result = []
    position = 0
    while position < len(tokens):
        if tuple(tokens[position : position + 2]) == pair:
            result.append(merged)
            position += 2
        else:
            result.append(tokens[position])
            position += 1
    return result


class PairCounts:
    """How often each pair of neighbouring tokens occurs, kept up to date merge by merge.

    words: how often each distinct word occurs, a word being a tuple of token ids.
    """

    def __init__(self, words: Mapping[tuple[int, ...], int]):
        self._words = [list(word) for word in words]
        self._repeats = list(words.values())
        self.counts: Counter[Pair] = Counter()
        self._words_with: defaultdict[Pair, set[int]] = defaultdict(set)
        for index in range(len(self._words)):
            self._count_word(index, sign=+1)
        # Largest count first, and among equals the smaller pair. An entry whose count has changed
        # since is stale: it is dropped when it comes to the top, since the changed count has its
        # own entry.
        self._queue = [(-count, pair) for pair, count in self.counts.items()]
        heapq.heapify(self._queue)

    def most_frequent(self) -> Pair | None:
        """The most frequent pair, of several the smallest pair of ids; None if no pair is left."""
        while self._queue:
            count, pair = self._queue[0]
            if self.counts[pair] == -count > 0:
                return pair
            heapq.heappop(self._queue)
        return None

    def discard(self, pair: Pair) -> None:
        """Takes `pair` out of the running, though it stays in the text."""
        self.counts[pair] = 0

    def merge(self, pair: Pair, merged: int) -> None:
        """Joins every occurrence of `pair` into the token `merged`, and counts these words anew."""
        changed: set[Pair] = set()
        for index in self._words_with.pop(pair):
            changed |= self._count_word(index, sign=-1)
            self._words[index] = merge_pair(self._words[index], pair, merged)
            changed |= self._count_word(index, sign=+1)
        for changed_pair in changed:
            heapq.heappush(self._queue, (-self.counts[changed_pair], changed_pair))

    def __repr__(self) -> str:
        return f"PairCounts({len(self._words)} words, {len(+self.counts)} pairs)"

    def _count_word(self, index: int, *, sign: int) -> set[Pair]:
        word = self._words[index]
        pairs = list(pairwise(word))
        for pair in pairs:
            self.counts[pair] += sign * self._repeats[index]
            if sign > 0:
                self._words_with[pair].add(index)
        return set(pairs)


def read_special_tokens(special_tokens: Iterable[str]) -> tuple[str, ...]:
    """The special tokens in their order. Raises TypeError for what has none, such as a set."""
    if isinstance(special_tokens, str | bytes):
        raise TypeError("special_tokens must be a list of strings; put a single one in brackets")
    if isinstance(special_tokens, Set):
        raise TypeError(
            "special_tokens must be in order, since they get their ids in order: give a list, "
            "such as sorted(special_tokens)"
        )
    return tuple(special_tokens)


def check_special_token(token: str) -> None:
    """Raises TypeError or ValueError for what cannot be a special token of a byte-level BPE."""
    if not isinstance(token, str):
        raise TypeError(f"a special token must be a str, not {type(token).__name__}")
    if token == "":
        raise ValueError("a special token must not be empty")
    if token in BYTE_SYMBOLS:
        raise ValueError(
            f"the special token {token!r} is also the token of a byte, so that any text with this "
            "byte would hold it; use a longer one, such as <|end|>"
        )
    check_text(token)


def check_training(texts: Iterable[str], vocab_size: int, special_tokens: Sequence[str]) -> None:
    """Raises TypeError or ValueError for what no vocabulary can be learned with."""
    if isinstance(texts, str | bytes):
        raise TypeError("texts must be a list of strings; put a single text in brackets: [text]")
    if not isinstance(vocab_size, Integral) or isinstance(vocab_size, bool):
        raise TypeError(f"vocab_size must be a whole number, not {type(vocab_size).__name__}")
    for token in special_tokens:
        check_special_token(token)
    repeated = [token for token, count in Counter(special_tokens).items() if count > 1]
    if repeated:
        raise ValueError(f"special_tokens holds {repeated[0]!r} more than once")
    smallest = len(special_tokens) + len(BYTE_SYMBOLS)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}, but {len(special_tokens)} special tokens and 256 bytes "
            f"need at least {smallest}"
        )


def learn_merges(
    words: Mapping[str, int], vocab_size: int, special_tokens: tuple[str, ...] = ()
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learns a vocabulary of at most `vocab_size` tokens and the merges that make it.

    words: how often each distinct word occurs, words being written in the byte alphabet.

    Ids are given to the special tokens first, then to the 256 byte symbols, then to one token a
    merge, in the order of learning. Of equally frequent pairs the one with the smaller ids is
    merged first. Learning stops early when every word is one token.

    No two merges spell the same token, since the same letters are always joined in the same order.
    No merge spells a special token, since text must never become one.

    Returns the vocabulary (token to id) and the merges, in order.
    """
    vocabulary = {token: index for index, token in enumerate((*special_tokens, *BYTE_SYMBOLS))}
    tokens = list(vocabulary)
    pairs = PairCounts(
        {tuple(vocabulary[symbol] for symbol in word): count for word, count in words.items()}
    )
    merges: list[tuple[str, str]] = []
    # The bar shows only in a terminal, and only when learning takes more than two seconds.
    with tqdm(total=vocab_size - len(tokens), desc="BPE merges", delay=2, disable=None) as bar:
        while len(tokens) < vocab_size and (pair := pairs.most_frequent()) is not None:
            left, right = (tokens[index] for index in pair)
            if left + right in special_tokens:
                pairs.discard(pair)
                continue
            pairs.merge(pair, len(tokens))
            vocabulary[left + right] = len(tokens)
            tokens.append(left + right)
            merges.append((left, right))
            bar.update()
    return vocabulary, merges
