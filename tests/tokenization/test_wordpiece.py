import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenization_tools import FEW, MANY, STUMBLING_BLOCKS, TEXT
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import BertTokenizer

from llmlab.tokenization import WordPieceTokenizer, load_tokenizer

# Here unassigned code points count too: what BERT does with them is fixed.
ANY_TEXT = st.lists(
    st.sampled_from(STUMBLING_BLOCKS)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
).map("".join)


@pytest.fixture(scope="session")
def ours(bert_folder):
    return WordPieceTokenizer.from_vocab(bert_folder / "vocab.txt")


@pytest.fixture(scope="session")
def theirs(bert_folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture(scope="session")
def cased(ours):
    """The real vocabulary without lower-casing, by us and by `tokenizers`."""
    theirs = tokenizers.Tokenizer(models.WordPiece(ours.vocabulary, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=False)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return WordPieceTokenizer.from_vocab(ours.vocabulary, lowercase=False), theirs


def test_the_running_sentence(ours):
    text = "time flies like an arrow"
    assert ours.tokenize(text) == ["time", "flies", "like", "an", "arrow"]
    assert ours.encode(text) == [2051, 10029, 2066, 2019, 8612]
    assert ours.encode(text, add_special_tokens=True) == [101, 2051, 10029, 2066, 2019, 8612, 102]
    assert ours.decode(ours.encode(text)) == text
    assert ours.vocab_size == 30_522


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" \t\n", []),
        ("unhappiness", ["un", "##ha", "##pp", "##iness"]),
        ("Café NAÏVE", ["cafe", "naive"]),
        ("don't stop.", ["don", "'", "t", "stop", "."]),
        ("a\u200bb\x00c", ["abc"]),
        ("大学x", ["大", "学", "x"]),
        ("$5^2", ["$", "5", "^", "2"]),
        ("x" * 101, ["[UNK]"]),
        ("[CLS] [MASK]", ["[", "cl", "##s", "]", "[", "mask", "]"]),
    ],
)
def test_tokens_as_worked_by_hand(ours, text, tokens):
    assert ours.tokenize(text) == tokens


def test_a_word_of_100_characters_is_still_cut(ours):
    assert ours.tokenize("a" * 100) != ["[UNK]"]
    assert ours.tokenize("a" * 101) == ["[UNK]"]
    assert ours.tokenize("é" * 100) == ours.tokenize("e" * 100)


@MANY
@given(text=ANY_TEXT)
def test_any_text_gives_the_tokens_of_tokenizers(ours, theirs, text):
    theirs.encode_special_tokens = True  # special tokens in the text are text
    expected = theirs.encode(text)
    assert ours.tokenize(text) == expected.tokens[1:-1]
    assert ours.encode(text) == expected.ids[1:-1]
    assert ours.encode(text, add_special_tokens=True) == expected.ids
    theirs.encode_special_tokens = False
    assert ours.encode(text, True, allow_special=True) == theirs.encode(text).ids


@FEW
@given(text=ANY_TEXT)
def test_any_text_in_its_own_case_gives_the_tokens_of_tokenizers(cased, text):
    ours, theirs = cased
    assert ours.tokenize(text) == theirs.encode(text).tokens


def test_transformers_bert_tokenizer_agrees(ours, bert_folder):
    theirs = BertTokenizer.from_pretrained(bert_folder)
    for text in ["time flies like an arrow", "Ça va? Écoutez: 遥遥领先!", "I'm [MASK]. ΟΔΟΣ ß ﬁ"]:
        ids = ours.encode(text, add_special_tokens=True, allow_special=True)
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == ours.decode(ids)


EVERY_CHARACTER = r"""
import sys
import regex
import tokenizers
from llmlab.tokenization import WordPieceTokenizer

folder = sys.argv[1]
theirs = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
theirs.no_padding()
theirs.no_truncation()
ours = WordPieceTokenizer.from_vocab(f"{folder}/vocab.txt")
every_character = "".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
# Marks, signs, spaces and controls, of this year's Unicode; of letters and the unassigned, some.
characters = regex.findall(r"[\p{M}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}]", every_character)
characters += every_character[::64]
# And both sides of every edge of the ranges of ideographs.
edges = [0x3400, 0x4DBF, 0x4E00, 0x9FFF, 0xF900, 0xFAFF, 0x20000, 0x2A6DF, 0x2A700, 0x2B81F]
edges += [0x2B920, 0x2CEAF, 0x2F800, 0x2FA1F]
characters += [chr(edge + step) for edge in edges for step in (-1, 0, 1)]
for start in range(0, len(characters), 50):
    text = " ".join(f"a{character}b" for character in characters[start : start + 50])
    found = ours.tokenize(text)
    expected = theirs.encode(text, add_special_tokens=False).tokens
    assert found == expected, ascii(text)
print(len(characters))
"""


def test_every_kind_of_character_is_treated_as_tokenizers_treats_it(bert_folder):
    """Between two letters: is it dropped, set apart, cut at, or a letter like them?

    In a process of its own, since the shape checker of the test run makes small functions slow.
    """
    command = [sys.executable, "-c", EVERY_CHARACTER, str(bert_folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 25_000


@MANY
@given(ids=st.lists(st.integers(0, 30_521), max_size=20), skip=st.booleans())
def test_any_ids_decode_as_tokenizers_does(ours, theirs, ids, skip):
    assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)


@FEW
@given(
    st.lists(
        st.sampled_from(["a", "##b", "##", ".", "?!", "n't", "'s", "'ve", ".com", "##.", "[CLS]"]),
        max_size=8,
    )
)
def test_any_vocabulary_decodes_as_tokenizers_does(tokens):
    vocabulary = {token: place for place, token in enumerate(["[UNK]", *sorted(set(tokens))])}
    tokenizer = WordPieceTokenizer.from_vocab(vocabulary)
    theirs = decoders.WordPiece(prefix="##", cleanup=True)
    assert tokenizer.decode([vocabulary[token] for token in tokens]) == theirs.decode(tokens)


def test_special_tokens(ours):
    assert ours.special_tokens == {
        "[PAD]": 0,
        "[UNK]": 100,
        "[CLS]": 101,
        "[SEP]": 102,
        "[MASK]": 103,
    }
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (
        *(0, 100, 101, 102),
        103,
    )
    assert ours.bos_id is ours.eos_id is None
    assert ours.encode("a [MASK] b", allow_special=True) == [1037, 103, 1038]
    assert 103 not in ours.encode("a [MASK] b")
    ids = ours.encode("time flies", add_special_tokens=True)
    assert ours.decode(ids) == "[CLS] time flies [SEP]"
    assert ours.decode(ids, skip_special_tokens=True) == "time flies"


def test_vocabularies_of_other_kinds(tmp_path):
    tokens = ["[UNK]", "a", "##b", "\u2028", " "]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    tokenizer = WordPieceTokenizer.from_vocab(path)
    assert tokenizer.vocabulary == {token: place for place, token in enumerate(tokens)}
    assert WordPieceTokenizer.from_vocab(str(path)).encode("ab c") == [1, 2, 0]
    assert repr(tokenizer) == "WordPieceTokenizer(vocab_size=5, lowercase=True)"
    with pytest.raises(ValueError, match=r"add_special_tokens needs \[CLS\]"):
        tokenizer.encode("a", add_special_tokens=True)


def test_vocabularies_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"give a vocab.txt"):
        WordPieceTokenizer.from_vocab(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match=r"lacks \[UNK\]"):
        WordPieceTokenizer.from_vocab({"a": 0})
    with pytest.raises(ValueError, match="same id"):
        WordPieceTokenizer.from_vocab({"[UNK]": 0, "a": 0})
    (tmp_path / "twice.txt").write_text("[UNK]\na\na\n")
    with pytest.raises(ValueError, match="'a' more than once"):
        WordPieceTokenizer.from_vocab(tmp_path / "twice.txt")
    (tmp_path / "latin.txt").write_bytes(b"[UNK]\n\xe9\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        WordPieceTokenizer.from_vocab(tmp_path / "latin.txt")


@pytest.mark.usefixtures("plain_errors")
def test_vocabularies_of_wrong_types():
    for vocabulary, message in (
        ({"[UNK]": 0, "a": 1.5}, r"'a': 1\.5"),
        ({"[UNK]": 0, "a": "1"}, "'a': '1'"),
        ({"[UNK]": 0, "a": True}, "'a': True"),
        ({"[UNK]": 0, 7: 1}, "7: 1"),
    ):
        with pytest.raises(ValueError, match=message):
            WordPieceTokenizer.from_vocab(vocabulary)
    with pytest.raises(ValueError, match="lowercase must be true or false; got 'no'"):
        WordPieceTokenizer.from_vocab({"[UNK]": 0}, lowercase="no")
    numbers = WordPieceTokenizer.from_vocab({"[UNK]": np.int64(0), "a": np.int32(1)})
    assert [type(token_id) for token_id in numbers.encode("a b")] == [int, int]


def test_a_mark_before_the_text_is_no_part_of_the_first_token(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n", encoding="utf-8-sig")
    assert load_tokenizer(tmp_path).vocabulary == {"[UNK]": 0, "a": 1}


def test_wrong_calls(ours):
    for text in (None, b"bytes", ["a"]):
        with pytest.raises(TypeError):
            ours.encode(text)
        with pytest.raises(TypeError):
            ours.tokenize(text)
    with pytest.raises(ValueError, match="lone surrogate"):
        ours.encode("\ud800")
    with pytest.raises(ValueError, match="30522 is not in the vocabulary"):
        ours.decode([30_522])


def test_tokenizer_json_gives_the_same_tokenizer(ours, bert_folder):
    read = WordPieceTokenizer.from_file(bert_folder / "tokenizer.json")
    assert read.vocabulary == ours.vocabulary
    assert read.lowercase
    assert read.special_tokens == ours.special_tokens


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("model", {"type": "BPE", "vocab": {}}, "its model is 'BPE', not 'WordPiece'"),
        ("normalizer", None, "its normalizer is 'none'"),
        ("normalizer", {"type": "NFC"}, "its normalizer is 'NFC'"),
        ("pre_tokenizer", None, "its pre_tokenizer is None"),
        ("model", None, "is damaged"),
    ],
)
def test_other_tokenizer_files_are_refused(bert_folder, tmp_path, part, value, message):
    content = json.loads((bert_folder / "tokenizer.json").read_text(encoding="utf-8"))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**content, part: value}))
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer.from_file(path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("clean_text", False), ("handle_chinese_chars", False), ("strip_accents", False)],
)
def test_other_normalisations_are_refused(bert_folder, tmp_path, setting, value):
    content = json.loads((bert_folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["normalizer"][setting] = value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"its {setting} is False, not True"):
        load_tokenizer(path)


@FEW
@given(text=TEXT)
def test_encoding_what_was_decoded_changes_nothing_more(ours, text):
    """Decoding loses spaces and case; doing it again loses nothing further."""
    once = ours.decode(ours.encode(text), skip_special_tokens=True)
    assert ours.decode(ours.encode(once)) == once
