import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenization_tools import ANY_CHARACTER, CORPUS, FEW, MANY, SPECIAL_TOKENS, TEXT, VOCAB_SIZE

from llmlab.tokenization import AddedToken, BPEConfig, BPETokenizer
from llmlab.tokenization.bpe_merging import apply_merges
from llmlab.tokenization.byte_alphabet import BYTE_SYMBOLS

BYTES = {symbol: token_id for token_id, symbol in enumerate(BYTE_SYMBOLS)}

ROUND_TRIPS = [
    *("", " ", "   ", " leading", "trailing ", "two  spaces   three", "\ttab", "\n", "\n\n a\r\n"),
    *("\u0301", "e\u0301", " \u0301x", "遥遥领先", "👩‍👩‍👧", "🇫🇷", "\ufffd", "\x00", "\U0010ffff"),
    *("</s>", "<|im_start|>user", "It's", "DON'T", "a" * 1_000, "x \u00a0 y"),
]


@pytest.mark.parametrize("text", ROUND_TRIPS)
def test_round_trip(ours, text):
    assert ours.decode(ours.encode(text)) == text
    assert ours.decode(ours.encode(text, allow_special=True)) == text


@MANY
@given(text=TEXT)
def test_round_trip_of_any_text(ours, text):
    assert ours.decode(ours.encode(text)) == text
    assert ours.decode(ours.encode(text, allow_special=True)) == text


@MANY
@given(text=TEXT)
def test_ids_equal_those_of_tokenizers(ours, theirs, text):
    theirs.encode_special_tokens = False
    assert ours.encode(text, allow_special=True) == theirs.encode(text).ids
    theirs.encode_special_tokens = True  # special tokens in the text are text
    assert ours.encode(text) == theirs.encode(text).ids


@MANY
@given(ids=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30))
def test_any_ids_decode_as_tokenizers_does(ours, theirs, ids):
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids)


def test_ids_worked_by_hand():
    """a b merge first, then b c; "ab" + "c" third: "abc" is [ab][c] -> [abc], "bc" alone is one."""
    vocabulary = {**BYTES, "ab": 256, "bc": 257, "abc": 258}
    tokenizer = BPETokenizer(vocabulary, [("a", "b"), ("b", "c"), ("ab", "c")])
    assert tokenizer.encode("abc") == [258]
    assert tokenizer.encode("bc") == [257]
    assert tokenizer.encode("abbc") == [256, 257]
    assert tokenizer.encode("cab") == [BYTES["c"], 256]
    # Without the third merge, "abc" stays in two pieces: the lower rank wins, not the longer match.
    assert BPETokenizer(vocabulary, [("b", "c"), ("a", "b")]).encode("abc") == [BYTES["a"], 257]


def test_a_whole_word_of_the_vocabulary_counts_before_the_merges():
    vocabulary = {**BYTES, "ab": 256, "abc": 257}
    for ignore_merges, expected in ((True, [257]), (False, [256, BYTES["c"]])):
        config = BPEConfig(ignore_merges=ignore_merges)
        assert BPETokenizer(vocabulary, [("a", "b")], config=config).encode("abc") == expected


def merged_by_hand(tokens, merges):
    """The definition: look for the lowest rank, leftmost first, and merge one pair; again."""
    tokens = list(tokens)
    while True:
        ranked = [
            (*merges[pair], place) for place, pair in enumerate(pairwise(tokens)) if pair in merges
        ]
        if not ranked:
            return tokens
        _, merged, place = min(ranked, key=lambda entry: (entry[0], entry[2]))
        tokens[place : place + 2] = [merged]


def test_a_pair_that_an_earlier_merge_broke_waits_for_its_new_rank():
    """0 1 could merge, but 1 2 comes first; then 4 3 comes before 0 4, though 0 was in line."""
    merges = {(1, 2): (0, 4), (0, 1): (1, 5), (4, 3): (2, 6), (0, 4): (3, 7)}
    assert apply_merges([0, 1, 2, 3], merges) == [0, 6]


@MANY
@given(
    st.lists(st.integers(0, 1), max_size=20),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20, unique=True),
)
def test_merging_with_a_heap_equals_the_definition(tokens, pairs):
    merges = {pair: (rank, 2 + rank) for rank, pair in enumerate(pairs)}
    assert apply_merges(tokens, merges) == merged_by_hand(tokens, merges)


def test_a_long_word_is_no_long_wait(ours, theirs):
    for text in ("x" * 20_000, "遥遥领先" * 2_000, " " * 20_000):
        assert ours.encode(text) == theirs.encode(text).ids


def test_special_tokens_in_a_text_are_text_unless_allowed(ours):
    text = "a</s>b"
    end = ours.token_to_id("</s>")
    assert end not in ours.encode(text)
    assert ours.encode(text, allow_special=True) == [*ours.encode("a"), end, *ours.encode("b")]
    assert ours.decode([end]) == "</s>"
    assert ours.decode(ours.encode(text, allow_special=True), skip_special_tokens=True) == "ab"


def test_of_two_special_tokens_the_longer_one_is_found():
    tokenizer = BPETokenizer.train([], 300, ("<s>", "<s>>", "<s"))
    assert tokenizer.encode("<s>><s><s", allow_special=True) == [1, 0, 2]


def test_a_plain_added_token_is_found_in_any_text(tmp_path):
    added = [AddedToken("<think>", 256, special=False), AddedToken("</s>", 257)]
    tokenizer = BPETokenizer(BYTES, [], added)
    assert tokenizer.encode("</s><think>")[-1] == 256
    assert 257 not in tokenizer.encode("</s><think>")
    assert tokenizer.special_tokens == {"</s>": 257}
    assert tokenizer.decode([256, 257], skip_special_tokens=True) == "<think>"
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True
    assert tokenizer.encode("</s><think>") == theirs.encode("</s><think>").ids


def test_the_template_adds_the_beginning():
    tokenizer = BPETokenizer.train(CORPUS, 300, ("<s>", "</s>"), bos_token="<s>", eos_token="</s>")
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.encode("hi", add_special_tokens=True) == [0, *tokenizer.encode("hi")]
    assert tokenizer.encode("", add_special_tokens=True) == [0]
    assert 0 not in tokenizer.encode("<s>hi")


def test_without_ends_nothing_is_added(ours):
    assert ours.bos_id is ours.eos_id is None
    assert ours.encode("hi", add_special_tokens=True) == ours.encode("hi")


def test_the_vocabulary_both_ways(ours):
    for token_id in range(ours.vocab_size):
        assert ours.token_to_id(ours.id_to_token(token_id)) == token_id
    assert ours.token_to_id("no such token") is None
    assert tuple(ours.id_to_token(token_id) for token_id in range(3)) == SPECIAL_TOKENS


def test_ids_may_come_as_tensor_or_array(ours):
    ids = ours.encode("遥 time")
    assert ours.decode(torch.tensor(ids)) == ours.decode(np.array(ids)) == ours.decode(tuple(ids))
    assert ours.decode(torch.tensor(ids)) == "遥 time"
    assert ours.id_to_token(torch.tensor(ids)[0]) == ours.id_to_token(ids[0])
    end = torch.tensor(ours.token_to_id("</s>"))
    assert ours.token_bytes(end) == b"</s>"
    assert ours.is_special(end)


@pytest.mark.parametrize("ids", [[VOCAB_SIZE], [-1], [0, 10**9]])
def test_ids_outside_the_vocabulary_are_refused(ours, ids):
    with pytest.raises(ValueError, match=f"{ids[-1]} is not in the vocabulary.*between 0 and 499"):
        ours.decode(ids)
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        ours.id_to_token(ids[-1])


@pytest.mark.parametrize("ids", ["abc", b"bytes", 3, None, [1.5], ["x"], torch.ones(2, 2).long()])
def test_what_is_no_list_of_ids_is_refused(ours, ids):
    with pytest.raises(TypeError):
        ours.decode(ids)


@pytest.mark.parametrize("text", ["\ud800", "fine \udfff fine", "half \ud83d"])
def test_half_a_character_is_refused(ours, text):
    with pytest.raises(ValueError, match="lone surrogate"):
        ours.encode(text)


def test_wrong_types_are_named():
    """In a process of its own, since the shape checker of the test run would speak first."""
    script = """
from llmlab.tokenization import BPETokenizer
tokenizer = BPETokenizer.train([], 256)
calls = [
    lambda: tokenizer.encode(None), lambda: tokenizer.encode(b"x"), lambda: tokenizer.encode(["x"]),
    lambda: tokenizer.decode("x"), lambda: tokenizer.decode(3), lambda: tokenizer.decode([1.5]),
    lambda: BPETokenizer.train("x", 256), lambda: BPETokenizer.train([b"x"], 256),
    lambda: BPETokenizer.train([], 300, "</s>"), lambda: BPETokenizer.train([], 300, [3]),
    lambda: BPETokenizer.train([], "300"),
]
for call in calls:
    try:
        print("no error:", call())
    except TypeError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    expected = [
        "the text must be a str, not NoneType",
        "the text must be a str, not bytes; decode bytes first",
        "the text must be a str, not list",
        "token ids must come as a list of whole numbers, not as str",
        "token ids must come as a list of whole numbers, not as int; write [7]",
        "token ids must be whole numbers",
        "texts must be a list of strings",
        "the text must be a str, not bytes",
        "special_tokens must be a list of strings",
        "a special token must be a str, not int",
        "vocab_size must be a whole number, not str",
    ]
    assert len(lines) == len(expected)
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning)


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(
    "ids",
    [
        {7, 8},
        frozenset({7}),
        {7: 8},
        [True],
        [7.0],
        [[7]],
        torch.tensor([[7], [8]]),
        torch.tensor([True]),
        torch.tensor([7.0]),
        torch.tensor(7),
        [torch.tensor([7])],
        np.array([[7]]),
        np.array([False]),
    ],
    ids=repr,
)
def test_ids_without_order_or_of_another_shape_or_kind_are_refused(ours, ids):
    with pytest.raises(TypeError, match="token ids must"):
        ours.decode(ids)


def test_ids_of_every_library(ours):
    ids = ours.encode("time flies")
    for same in (torch.tensor(ids), np.array(ids), [np.int32(i) for i in ids], tuple(ids)):
        assert ours.decode(same) == "time flies"
    assert ours.decode(iter(ids)) == "time flies"
    assert ours.decode([torch.tensor(i) for i in ids]) == "time flies"
    assert ours.is_special(torch.tensor(0))


@pytest.mark.usefixtures("plain_errors")
def test_special_tokens_come_in_an_order():
    expected = BPETokenizer.train(CORPUS, 300, ["<b>", "<a>"]).vocabulary
    given = (token for token in ("<b>", "<a>"))
    assert BPETokenizer.train(CORPUS, np.int64(300), given).vocabulary == expected
    with pytest.raises(TypeError, match=r"sorted\(special_tokens\)"):
        BPETokenizer.train(CORPUS, 300, {"<b>", "<a>"})


def test_a_merge_that_spells_a_special_token_is_not_applied():
    """`tokenizers` can learn such merges; then text would become a control token."""
    merges = [("a", "b"), ("ab", "c")]
    tokenizer = BPETokenizer({**BYTES, "ab": 256, "abc": 257}, merges, [AddedToken("ab", 256)])
    assert tokenizer.encode("abc") == [BYTES["a"], BYTES["b"], BYTES["c"]]
    assert tokenizer.encode("abc", allow_special=True) == [256, BYTES["c"]]


def test_vocabulary_and_merges_must_fit_together():
    with pytest.raises(ValueError, match=r"merge 0 \('a' \+ 'b'\) needs the token 'ab'"):
        BPETokenizer(BYTES, [("a", "b")])
    with pytest.raises(ValueError, match="same id"):
        BPETokenizer({**BYTES, "ab": 0}, [])
    with pytest.raises(ValueError, match="added token 'ab' has the id 257"):
        BPETokenizer({**BYTES, "ab": 256}, [], [AddedToken("ab", 257)])
    with pytest.raises(ValueError, match="added token 'ab' has the id 257"):
        BPETokenizer(BYTES, [], [AddedToken("ab", 256), AddedToken("ab", 257)])
    with pytest.raises(ValueError, match="id 256 is empty"):
        BPETokenizer(BYTES, [], [AddedToken("", 256)])
    with pytest.raises(ValueError, match="template names tokens"):
        BPETokenizer(BYTES, [], config=BPEConfig(prefix=("<s>",)))
    with pytest.raises(ValueError, match="normalizer"):
        BPEConfig(normalizer="Lowercase")


def test_a_byte_without_a_token_is_named():
    vocabulary = {symbol: token_id for symbol, token_id in BYTES.items() if symbol != "z"}
    tokenizer = BPETokenizer(vocabulary, [])
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
    with pytest.raises(ValueError, match="no token for the byte 0x7a"):
        tokenizer.encode("abz")


def test_the_word_cache_is_bounded_and_changes_nothing(ours, monkeypatch):
    monkeypatch.setattr("llmlab.tokenization.bpe.WORD_CACHE_SIZE", 3)
    small = BPETokenizer(ours.vocabulary, ours.merges, ours.added_tokens)
    for text in CORPUS[:7]:
        assert small.encode(text) == ours.encode(text)
        assert len(small._word_cache) <= 3


def test_encoding_never_hands_out_its_own_cache(ours):
    ids = ours.encode("time")
    expected = list(ids)
    ids.append(-1)
    assert ours.encode("time") == expected


def test_repr_says_what_it_is(ours):
    assert repr(ours).startswith("BPETokenizer(vocab_size=500, merges=241")


@FEW
@given(text=st.text(ANY_CHARACTER, max_size=10))
def test_token_bytes_joined_are_the_text(ours, text):
    data = b"".join(ours.token_bytes(token_id) for token_id in ours.encode(text))
    assert data == text.encode()
