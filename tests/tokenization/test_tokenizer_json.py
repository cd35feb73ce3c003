import json

import pytest
import tokenizers
from hypothesis import given
from tokenization_tools import CORPUS, FEW, SPECIAL_TOKENS, TEXT, train_with_tokenizers
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

from llmlab.tokenization import CHATML_TEMPLATE, BPEConfig, BPETokenizer

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def split_then_bytes(pattern, **options):
    settings = {"behavior": "isolated", "invert": False, **options}
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), **settings),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def make_gpt2(tokenizer):
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)


def make_llama3(tokenizer):
    tokenizer.pre_tokenizer = split_then_bytes(LLAMA3_PATTERN)
    tokenizer.model.ignore_merges = True
    tokenizer.add_special_tokens([AddedToken("<|begin_of_text|>", normalized=False)])
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))],
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), template]
    )


def make_qwen2(tokenizer):
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_then_bytes(QWEN2_PATTERN)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])


def make_tiktoken_conversion(tokenizer):
    tokenizer.pre_tokenizer = split_then_bytes(LLAMA3_PATTERN, behavior="removed", invert=True)


def make_inverted(tokenizer):
    tokenizer.pre_tokenizer = split_then_bytes(r"\p{L}+", invert=True)


def make_smollm(tokenizer):
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def make_digit_groups(tokenizer):
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def make_space_before_the_text(tokenizer):
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def make_both_ends(tokenizer):
    ids = [(token, tokenizer.token_to_id(token)) for token in ("<|im_start|>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A </s>", special_tokens=ids
    )


LAYOUTS = [
    make_gpt2,
    make_llama3,
    make_qwen2,
    make_tiktoken_conversion,
    make_inverted,
    make_smollm,
    make_digit_groups,
    make_space_before_the_text,
    make_both_ends,
]


@pytest.fixture(scope="session", params=LAYOUTS, ids=lambda make: make.__name__)
def pair(request, tmp_path_factory):
    """Their tokenizer of one layout, ours read from its file, and theirs read from ours' file."""
    theirs = train_with_tokenizers(CORPUS, 500, SPECIAL_TOKENS)
    request.param(theirs)
    folder = tmp_path_factory.mktemp("layout")
    theirs.save(str(folder / "theirs.json"))
    ours = BPETokenizer.from_file(folder / "theirs.json")
    ours.save(folder / "ours.json")
    return theirs, ours, tokenizers.Tokenizer.from_file(str(folder / "ours.json"))


@FEW
@given(text=TEXT)
def test_every_layout_gives_the_ids_of_tokenizers(pair, text):
    theirs, ours, back = pair
    for add_special_tokens in (False, True):
        expected = theirs.encode(text, add_special_tokens=add_special_tokens).ids
        found = ours.encode(text, add_special_tokens=add_special_tokens, allow_special=True)
        assert found == expected
        assert back.encode(text, add_special_tokens=add_special_tokens).ids == expected
    assert ours.decode(expected) == back.decode(expected, skip_special_tokens=False)


def test_what_is_read_and_written_twice_stays_the_same(pair, tmp_path):
    _, ours, _ = pair
    ours.save(tmp_path / "once.json")
    again = BPETokenizer.from_file(tmp_path / "once.json")
    again.save(tmp_path / "twice.json")
    assert (tmp_path / "once.json").read_bytes() == (tmp_path / "twice.json").read_bytes()
    assert again.config == ours.config
    assert again.vocabulary == ours.vocabulary
    assert again.added_tokens == ours.added_tokens


def saved(tokenizer, path, **changes):
    """A tokenizer.json of `tokenizer`, some parts changed; model__type is the type of the model."""
    tokenizer.save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    for place, value in changes.items():
        target = content
        *parents, key = place.split("__")
        for parent in parents:
            target = target[parent]
        if value is KeyError:
            del target[key]
        else:
            target[key] = value
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_gpt2s_own_spelling_is_read(ours, tmp_path):
    """Merges as strings, no type of model, empty strings for what is not used."""
    path = saved(
        ours,
        tmp_path / "tokenizer.json",
        model__type=KeyError,
        model__ignore_merges=KeyError,
        model__merges=[f"{left} {right}" for left, right in ours.merges],
        model__unk_token="",
        model__continuing_subword_prefix="",
        model__end_of_word_suffix="",
    )
    read = BPETokenizer.from_file(path)
    assert read.merges == ours.merges
    assert read.encode(CORPUS[0]) == ours.encode(CORPUS[0])


UNSUPPORTED = {
    "another model": ({"model__type": "Unigram"}, "its model is Unigram, not BPE"),
    "no model": ({"model": None}, 'no "model"'),
    "SentencePiece's BPE": ({"model__byte_fallback": True}, "byte_fallback = True"),
    "CLIP's BPE": ({"model__end_of_word_suffix": "</w>"}, "end_of_word_suffix = '</w>'"),
    "random merges": ({"model__dropout": 0.1}, "dropout = 0.1"),
    "normalizer": ({"normalizer": {"type": "Lowercase"}}, "normalizer is Lowercase"),
    "no pre-tokenizer": ({"pre_tokenizer": None}, "pre-tokenizer is none, not ByteLevel"),
    "Llama 2": ({"pre_tokenizer": {"type": "Metaspace"}}, "pre-tokenizer is Metaspace"),
    "odd step": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Punctuation"}, {"type": "ByteLevel"}]},
        "pre-tokenizer Punctuation",
    ),
    "odd split": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Split", "behavior": "MergedWithNext", "pattern": {"Regex": "x"}},
            {"type": "ByteLevel"}]},
        "MergedWithNext",
    ),
    "odd space": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Digits"}, {"type": "ByteLevel", "add_prefix_space": True}]},
        "add_prefix_space after another pre-tokenizer",
    ),
    "a split that drops text": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Split", "behavior": "Removed", "invert": True,
             "pattern": {"Regex": r"\p{L}+|\s+"}},
            {"type": "ByteLevel"}]},
        "drops text",
    ),
    "a pattern that is no text": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": 5}},
            {"type": "ByteLevel"}]},
        "cannot be compiled",
    ),
    "broken pattern": (
        {"pre_tokenizer__type": "Sequence", "pre_tokenizer__pretokenizers": [
            {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "("}},
            {"type": "ByteLevel"}]},
        "cannot be compiled",
    ),
    "decoder": ({"decoder": None}, "decoder is none"),
    "post-processor": ({"post_processor": {"type": "BertProcessing"}}, "BertProcessing"),
    "added token": (
        {"added_tokens": [{"id": 0, "content": "<|im_start|>", "lstrip": True, "special": True}]},
        "'lstrip'",
    ),
    "merge of three": ({"model__merges": ["a b c"]}, "'a b c' is not a pair"),
    "merge of nothing known": ({"model__merges": [["a", "遥"]]}, "needs the token '遥'"),
    "merge of numbers": ({"model__merges": [[1, "a"]]}, "'1 a' is not a pair"),
    "id that is text": ({"model__vocab__a": "5"}, "'a': '5'"),
    "id that is half": ({"model__vocab__a": 5.5}, "'a': 5.5"),
    "id that is true": ({"model__vocab__a": True}, "'a': True"),
    "id below zero": ({"model__vocab__a": -1}, "'a': -1"),
    "added id that is text": ({"added_tokens": [{"id": "0", "content": "<x>"}]}, "'<x>': '0'"),
    "added token that is no text": ({"added_tokens": [{"id": 0, "content": 7}]}, "not 7"),
    "special token that is a byte's": (
        {"added_tokens": [{"id": 36, "content": "!", "special": True}]},
        "'!' is also the token of a byte",
    ),
    "damaged": ({"added_tokens": [{"id": 0}]}, "damaged, KeyError"),
}  # fmt: skip


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(("changes", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_what_is_not_supported_is_named(ours, tmp_path, changes, message):
    path = saved(ours, tmp_path / "tokenizer.json", **changes)
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read") as raised:
        BPETokenizer.from_file(path)
    assert message in str(raised.value)


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize("key", ["bos_token", "eos_token", "chat_template"])
def test_a_tokenizer_config_of_wrong_types_is_named(ours, tmp_path, key):
    ours.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: 5}))
    with pytest.raises(ValueError, match=f"{key} must be text; got 5"):
        BPETokenizer.from_file(tmp_path / "tokenizer.json")


def test_an_empty_text_stays_empty_where_a_space_goes_before_others():
    tokenizer = BPETokenizer.train([], 256)
    config = BPEConfig(add_prefix_space=True)
    assert BPETokenizer(tokenizer.vocabulary, [], config=config).encode("") == []


def test_files_that_are_none(ours, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        BPETokenizer.from_file(tmp_path / "nowhere.json")
    (tmp_path / "text.json").write_text("not JSON")
    with pytest.raises(ValueError, match="not valid JSON"):
        BPETokenizer.from_file(tmp_path / "text.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="JSON object"):
        BPETokenizer.from_file(tmp_path / "list.json")
    with pytest.raises(FileNotFoundError, match="no folder"):
        ours.save(tmp_path / "nowhere" / "tokenizer.json")


def test_what_a_user_types_is_text_even_as_one_whole_word(tmp_path):
    """With ignore_merges a word of the vocabulary is one token; a special token's is not taken."""
    tokenizer = BPETokenizer.train(CORPUS, 300, ("STOP",))
    path = saved(tokenizer, tmp_path / "tokenizer.json", model__ignore_merges=True)
    assert BPETokenizer.from_file(path).encode("STOP") == tokenizer.encode("STOP")
    assert 0 not in tokenizer.encode("STOP")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    tokenizer = BPETokenizer.train(
        CORPUS,
        500,
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        bos_token="<|endoftext|>",
        eos_token="<|im_end|>",
        chat_template=CHATML_TEMPLATE,
    )
    folder = tmp_path_factory.mktemp("model") / "new"
    tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_keeps_ends_and_template(folder):
    tokenizer = BPETokenizer.from_file(folder / "tokenizer.json")
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 2)
    assert tokenizer.config.chat_template == CHATML_TEMPLATE


def test_transformers_loads_the_folder(folder):
    ours = BPETokenizer.from_file(folder / "tokenizer.json")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    theirs = AutoTokenizer.from_pretrained(folder)
    for text in [*CORPUS, "<|im_end|>", "  a  "]:
        assert theirs.encode(text, add_special_tokens=False) == ours.encode(
            text, allow_special=True
        )
        assert theirs.encode(text) == ours.encode(text, True, True)
        assert theirs.decode(ours.encode(text)) == text
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.bos_id, ours.eos_id)
    messages = [{"role": "user", "content": " How many?\n"}, {"role": "assistant", "content": "67"}]
    theirs_chat = theirs.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert theirs_chat == ours.apply_chat_template(messages)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"eos_token": {"content": "</s>", "lstrip": False}}, (None, 2, None)),
        ({"bos_token": "</s>", "eos_token": None}, (2, None, None)),
        ({"eos_token": "<not in the vocabulary>"}, (None, None, None)),
        ({"chat_template": "T"}, (None, None, "T")),
        (
            {"chat_template": [
                {"name": "tools", "template": "A"}, {"name": "default", "template": "B"}]},
            (None, None, "B"),
        ),
    ],
)  # fmt: skip
def test_spellings_of_tokenizer_config(ours, tmp_path, settings, expected):
    ours.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    read = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    assert (read.bos_id, read.eos_id, read.config.chat_template) == expected


def test_a_template_file_counts_before_the_config(ours, tmp_path):
    ours.save(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "old"}')
    (tmp_path / "chat_template.jinja").write_text("new")
    assert BPETokenizer.from_file(tmp_path / "tokenizer.json").config.chat_template == "new"
