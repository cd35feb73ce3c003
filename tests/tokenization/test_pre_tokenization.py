import sys
import unicodedata

import pytest
from hypothesis import given
from tokenization_tools import FEW, MANY, TEXT
from tokenizers import pre_tokenizers

from llmlab.tokenization import PreTokenizer
from llmlab.tokenization.byte_alphabet import (
    BYTE_SYMBOLS,
    BYTE_TO_SYMBOL,
    from_symbols,
    to_symbols,
)

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def their_pieces(text):
    return [text[start:end] for _, (start, end) in BYTE_LEVEL.pre_tokenize_str(text)]


def test_the_byte_alphabet_is_that_of_tokenizers():
    assert list(BYTE_SYMBOLS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert to_symbols(b" time\n") == "ĠtimeĊ"
    every_byte = bytes(range(256))
    assert from_symbols(to_symbols(every_byte)) == every_byte
    assert BYTE_TO_SYMBOL[0x20] == "Ġ"


def test_symbols_are_those_of_tokenizers():
    text = "naïve 遥 👩‍👧\t\x00"
    written = "".join(symbols for symbols, _ in BYTE_LEVEL.pre_tokenize_str(text))
    assert to_symbols(text.encode()) == written


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("Hello world", ["Hello", " world"]),
        ("It's 3.14!", ["It", "'s", " 3", ".", "14", "!"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b ", ["a", " \n", " b", " "]),
        ("遥遥领先，好", ["遥遥领先", "，", "好"]),
    ],
)
def test_gpt2_cuts_as_worked_by_hand(text, pieces):
    assert PreTokenizer().split(text) == pieces


@MANY
@given(TEXT)
def test_gpt2_cuts_any_text_as_tokenizers_does(text):
    assert PreTokenizer().split(text) == their_pieces(text)


def test_every_character_is_of_the_same_class_as_for_tokenizers():
    """Letter, digit, space or other: probed beside one of each, for all of Unicode 3.2."""
    characters = [
        chr(code_point)
        for code_point in range(sys.maxunicode + 1)
        if unicodedata.ucd_3_2_0.category(chr(code_point)) not in ("Cn", "Cs", "Co")
        and not 0x3400 <= code_point <= 0xD7A3  # ideographs and hangul: letters by the thousand
    ]
    assert len(characters) > 14_000
    for start in range(0, len(characters), 100):
        some = characters[start : start + 100]
        text = "".join(f"a{character}1{character}!{character} {character}" for character in some)
        assert PreTokenizer().split(text) == their_pieces(text)


@FEW
@given(TEXT)
def test_several_patterns_lose_nothing(text):
    pre_tokenizer = PreTokenizer((r"\p{N}", r"[aeiou]+|\s"))
    assert "".join(pre_tokenizer.split(text)) == text


def test_several_patterns_cut_one_after_another():
    assert PreTokenizer((r"\p{N}", r"b+")).split("ab12bbc") == ["a", "b", "1", "2", "bb", "c"]


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ValueError, match="cannot be compiled"):
        PreTokenizer(("(",))
