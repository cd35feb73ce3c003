import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenization_tools import CORPUS, SPECIAL_TOKENS, VOCAB_SIZE, train_with_tokenizers

from llmlab.tokenization import BPETokenizer
from llmlab.tokenization.bpe_training import PairCounts, merge_pair

# The dictionary of Sennrich et al. 2016, section 3.2 (without their end-of-word sign).
SENNRICH = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
SENNRICH_MERGES = [
    ("e", "s"),  # 9: newest 6, widest 3; as often as s t, but e comes before s
    ("es", "t"),  # 9
    ("l", "o"),  # 7: low 5, lower 2; as often as o w
    ("lo", "w"),  # 7
    ("e", "w"),  # 6: newest; as often as n e and w est, but e comes first
    ("n", "ew"),  # 6
    ("new", "est"),  # 6
    ("d", "est"),  # 3: widest
    ("i", "dest"),  # 3
    ("w", "idest"),  # 3
    ("e", "r"),  # 2: lower
    ("low", "er"),  # 2
]


def test_merges_as_worked_by_hand():
    tokenizer = BPETokenizer.train(SENNRICH, 1_000)
    assert tokenizer.merges == SENNRICH_MERGES
    # Learning stopped there: every word is one token.
    assert tokenizer.vocab_size == 256 + 12
    assert tokenizer.encode("lower") == [267]
    assert [tokenizer.id_to_token(token) for token in tokenizer.encode("lowest newer")] == [
        *("low", "est"),
        *("Ġ", "new", "er"),
    ]


def test_ids_are_special_tokens_then_bytes_then_merges():
    tokenizer = BPETokenizer.train(SENNRICH, 262, ("<s>", "</s>"))
    assert tokenizer.special_tokens == {"<s>": 0, "</s>": 1}
    assert [tokenizer.id_to_token(token) for token in range(2, 5)] == ["!", '"', "#"]
    assert [tokenizer.id_to_token(token) for token in range(258, 262)] == ["es", "est", "lo", "low"]


def test_the_smallest_vocabulary_has_no_merges():
    tokenizer = BPETokenizer.train(SENNRICH, 256)
    assert tokenizer.vocab_size == 256
    assert tokenizer.merges == []
    assert len(tokenizer.encode("遥")) == 3


def test_no_text_at_all_gives_the_bytes():
    assert BPETokenizer.train([], 300).vocab_size == 256


def test_learns_what_tokenizers_learns(ours, theirs):
    assert ours.vocab_size == VOCAB_SIZE
    assert ours.vocabulary == theirs.get_vocab()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.text("ab c", max_size=30), max_size=8), st.integers(256, 300))
def test_learns_what_tokenizers_learns_from_ties_and_repeats(texts, vocab_size):
    ours = BPETokenizer.train(texts, vocab_size)
    assert ours.vocabulary == train_with_tokenizers(texts, vocab_size).get_vocab()


def test_same_texts_same_tokenizer():
    again = BPETokenizer.train(iter(CORPUS), VOCAB_SIZE, list(SPECIAL_TOKENS))
    assert again.merges == BPETokenizer.train(CORPUS, VOCAB_SIZE, SPECIAL_TOKENS).merges


def test_merge_pair_goes_from_left_to_right():
    assert merge_pair([1, 1, 1, 2], (1, 1), 9) == [9, 1, 2]
    assert merge_pair([1, 2, 1, 2, 1], (1, 2), 9) == [9, 9, 1]
    assert merge_pair([1], (1, 1), 9) == [1]
    assert merge_pair([], (1, 1), 9) == []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.lists(st.integers(0, 2), max_size=8).map(tuple), st.integers(1, 5), max_size=6
    )
)
def test_counts_after_every_merge_equal_a_fresh_count(words):
    pairs = PairCounts(words)
    merged = 10
    while (pair := pairs.most_frequent()) is not None:
        pairs.merge(pair, merged)
        words_now = [merge_pair(list(word), pair, merged) for word in words]
        words = {tuple(word): count for word, count in zip(words_now, words.values(), strict=True)}
        expected = {}
        for word, count in words.items():
            for left, right in pairwise(word):
                expected[left, right] = expected.get((left, right), 0) + count
        assert {key: count for key, count in pairs.counts.items() if count} == expected
        merged += 1


def test_no_merge_spells_a_special_token():
    tokenizer = BPETokenizer.train(["abc"] * 9, 300, ("ab", "abc"))
    assert not {"ab", "abc"} & {left + right for left, right in tokenizer.merges}
    assert not set(tokenizer.encode("abc ab")) & set(tokenizer.special_tokens.values())


def test_learning_is_fast_enough_for_a_reader():
    """A megabyte of text with 20,000 different words; quadratic code would take minutes."""
    words = [f"w{number * 7919 % 99_991:x}" for number in range(20_000)]
    text = " ".join(words * 9)
    assert len(text) > 1_000_000
    start = time.perf_counter()
    assert BPETokenizer.train([text], 700).vocab_size == 700
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize(
    ("vocab_size", "special_tokens", "message"),
    [
        (255, (), "at least 256"),
        (257, ("<s>", "</s>"), "at least 258"),
        (300, ("<s>", ""), "must not be empty"),
        (300, ("<s>", "<s>"), "'<s>' more than once"),
        (300, ("!",), "token of a byte"),
        (300, ("Ġ",), "token of a byte"),
        (300, ("\ud800",), "lone surrogate"),
    ],
)
def test_bad_settings_are_refused(vocab_size, special_tokens, message):
    with pytest.raises(ValueError, match=message):
        BPETokenizer.train(["text"], vocab_size, special_tokens)


def test_ends_must_be_special_tokens():
    with pytest.raises(ValueError, match="'</s>' begins or ends a text"):
        BPETokenizer.train(["text"], 300, ("<s>",), eos_token="</s>")


def test_one_string_is_no_list_of_texts():
    with pytest.raises(TypeError):
        BPETokenizer.train("text", 300)


def test_a_text_with_a_lone_surrogate_is_refused():
    with pytest.raises(ValueError, match="lone surrogate"):
        BPETokenizer.train(["fine", "\udc00"], 300)
