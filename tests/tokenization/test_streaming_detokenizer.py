import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenization_tools import FEW, MANY, TEXT, VOCAB_SIZE

from llmlab.tokenization import BPETokenizer, StreamingDetokenizer, WordPieceTokenizer


@pytest.fixture(scope="session")
def bert(bert_folder):
    return WordPieceTokenizer.from_vocab(bert_folder / "vocab.txt")


def stream(tokenizer, ids, **options):
    detokenizer = StreamingDetokenizer(tokenizer, **options)
    return [detokenizer.push(token_id) for token_id in ids] + [detokenizer.flush()]


def test_a_character_of_three_bytes_comes_whole():
    tokenizer = BPETokenizer.train([], 256)
    ids = tokenizer.encode("a遥b")
    assert len(ids) == 5
    assert stream(tokenizer, ids) == ["a", "", "", "遥", "b", ""]


def test_half_a_character_at_the_end_is_flushed_as_a_replacement():
    tokenizer = BPETokenizer.train([], 256)
    assert stream(tokenizer, tokenizer.encode("遥")[:2]) == ["", "", "\ufffd"]


def test_half_a_character_before_another_is_replaced():
    tokenizer = BPETokenizer.train([], 256)
    ids = [*tokenizer.encode("遥")[:2], *tokenizer.encode("a")]
    assert stream(tokenizer, ids) == ["", "", "\ufffda", ""]


@MANY
@given(ids=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30), skip=st.booleans())
def test_any_ids_stream_to_what_decode_gives(ours, ids, skip):
    assert "".join(stream(ours, ids, skip_special_tokens=skip)) == ours.decode(ids, skip)


@MANY
@given(data=st.binary(max_size=12))
def test_any_bytes_stream_to_what_decode_gives(data):
    tokenizer = BPETokenizer.train([], 256)
    ids = [tokenizer.token_to_id(tokenizer.id_to_token(byte)) for byte in data]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@FEW
@given(text=TEXT)
def test_a_text_never_shows_half_a_character(ours, text):
    pieces = stream(ours, ours.encode(text))
    assert "".join(pieces) == text
    assert "".join(pieces).count("\ufffd") == text.count("\ufffd")
    assert pieces[-1] == ""


@FEW
@given(ids=st.lists(st.sampled_from([100, 101, 102, *range(996, 3_000, 7)]), max_size=20),
       skip=st.booleans())  # fmt: skip
def test_wordpiece_streams_to_what_decode_gives(bert, ids, skip):
    assert "".join(stream(bert, ids, skip_special_tokens=skip)) == bert.decode(ids, skip)


def test_wordpiece_puts_spaces_between_words(bert):
    pieces = stream(bert, bert.encode("Unbelievably, time flies!"))
    assert pieces == ["un", "bel", "ie", "va", "bly", ",", " time", " flies", "!", ""]


def test_a_skipped_token_does_not_begin_the_text(bert):
    ids = bert.encode("time flies", add_special_tokens=True)
    assert stream(bert, ids, skip_special_tokens=True) == ["", "time", " flies", "", ""]
    assert stream(bert, ids) == ["[CLS]", " time", " flies", " [SEP]", ""]


def test_after_a_flush_a_new_text_begins(bert, ours):
    detokenizer = StreamingDetokenizer(bert)
    ids = bert.encode("time flies")
    for _ in range(2):
        assert [detokenizer.push(token_id) for token_id in ids] == ["time", " flies"]
        assert detokenizer.flush() == ""
    detokenizer = StreamingDetokenizer(ours)
    half = ours.token_to_id("é"[0])
    detokenizer.push(half)
    detokenizer.flush()
    assert detokenizer.push(ours.encode("a")[0]) == "a"


def test_an_unknown_id_leaves_the_stream_as_it_was():
    tokenizer = BPETokenizer.train([], 256)
    detokenizer = StreamingDetokenizer(tokenizer)
    ids = tokenizer.encode("遥")
    detokenizer.push(ids[0])
    with pytest.raises(ValueError, match="not in the vocabulary"):
        detokenizer.push(256)
    assert detokenizer.push(ids[1]) == ""
    assert "bytes held back: 2" in repr(detokenizer)
    assert detokenizer.push(torch.tensor(ids[2])) == "遥"
