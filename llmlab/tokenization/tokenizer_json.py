"""Reading `tokenizer.json`, the file in which Hugging Face keeps a whole tokenizer.

It holds the vocabulary and merges ("model"), the steps before them ("normalizer", "pre_tokenizer"),
the tokens to add around a text ("post_processor") and the way back ("decoder"). What is read here
is the byte-level BPE of GPT-2, Llama 3 and Qwen; anything else is refused by name rather than read
wrongly. Settings that change no text ("truncation", "padding") are left aside.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regex

from llmlab.json_file import local_path, read_json
from llmlab.tokenization.added_tokens import AddedToken
from llmlab.tokenization.bpe_config import BPEConfig
from llmlab.tokenization.pre_tokenization import GPT2_PATTERN, PreTokenizer

BPEParts = tuple[dict[str, int], list[tuple[str, str]], list[AddedToken], BPEConfig]


def read_bpe(path: str | Path) -> BPEParts:
    """Vocabulary, merges, added tokens and config of a byte-level BPE.

    Raises FileNotFoundError, ValueError naming what is missing or not supported, and KeyError,
    TypeError or AttributeError where parts are not what they should be at all.
    """
    path = local_path(path)
    content = read_json(path)
    vocabulary, merges, ignore_merges = _read_model(content.get("model"))
    prefix, suffix = _read_template(content.get("post_processor"))
    _check_decoder(content.get("decoder"))
    config = BPEConfig(
        **_read_pre_tokenizer(content.get("pre_tokenizer")),
        normalizer=_read_normalizer(content.get("normalizer")),
        ignore_merges=ignore_merges,
        prefix=prefix,
        suffix=suffix,
        **read_tokenizer_config(path.parent),
    )
    return vocabulary, merges, read_added_tokens(content), config


def read_added_tokens(content: Mapping[str, Any]) -> list[AddedToken]:
    """The "added_tokens" of a tokenizer.json."""
    tokens = []
    for entry in content.get("added_tokens") or ():
        for option in ("single_word", "lstrip", "rstrip"):
            if entry.get(option):
                raise ValueError(
                    f"the added token {entry['content']!r} has {option!r}, which llmlab does not do"
                )
        tokens.append(AddedToken(entry["content"], entry["id"], entry.get("special", False)))
    return tokens


def read_tokenizer_config(folder: Path) -> dict[str, str | None]:
    """bos_token, eos_token and chat_template from a folder's `tokenizer_config.json`.

    What it does not say is None. The template may also stand in a file of its own,
    `chat_template.jinja`, which then counts.
    """
    path = folder / "tokenizer_config.json"
    content = read_json(path) if path.is_file() else {}
    template = content.get("chat_template")
    if isinstance(template, list):  # several templates, each with a name
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    if (folder / "chat_template.jinja").is_file():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return {
        "bos_token": _token_content(content.get("bos_token")),
        "eos_token": _token_content(content.get("eos_token")),
        "chat_template": template,
    }


def _read_model(model: Any) -> tuple[dict[str, int], list[tuple[str, str]], bool]:
    if not isinstance(model, Mapping) or "vocab" not in model:
        raise ValueError('it has no "model" with a "vocab"')
    kind = model.get("type", "BPE" if "merges" in model else "unknown")  # GPT-2's file has no type
    if kind != "BPE":
        raise ValueError(f"its model is {kind}, not BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise ValueError(
                f"its model has {option} = {model[option]!r}, which llmlab does not do"
            )
    merges = [
        tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)
        for merge in model["merges"]
    ]
    for merge in merges:
        if len(merge) != 2 or not all(isinstance(token, str) for token in merge):
            raise ValueError(f"the merge {' '.join(map(str, merge))!r} is not a pair of tokens")
    return dict(model["vocab"]), merges, bool(model.get("ignore_merges"))


def _read_normalizer(normalizer: Any) -> str | None:
    if normalizer is None:
        return None
    if normalizer["type"] == "NFC":
        return "NFC"
    raise ValueError(f"its normalizer is {normalizer['type']}; llmlab does NFC or none")


def _read_pre_tokenizer(pre_tokenizer: Any) -> dict[str, Any]:
    """The regular expressions that cut the text, after which must come the byte level."""
    steps = [pre_tokenizer]
    if pre_tokenizer is not None and pre_tokenizer["type"] == "Sequence":
        steps = pre_tokenizer["pretokenizers"]
    last = steps[-1] if steps else None
    if last is None or last["type"] != "ByteLevel":
        raise ValueError(
            f"its last pre-tokenizer is {'none' if last is None else last['type']}, not ByteLevel"
        )
    if last.get("add_prefix_space") and len(steps) > 1:
        raise ValueError("it has add_prefix_space after another pre-tokenizer")
    patterns = [_split_pattern(step) for step in steps[:-1]]
    if last.get("use_regex", True):
        patterns.append(GPT2_PATTERN)
    return {
        "patterns": tuple(patterns),
        "add_prefix_space": bool(last.get("add_prefix_space")),
    }


def _split_pattern(step: Mapping[str, Any]) -> str:
    if step["type"] == "Digits":
        return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    if step["type"] != "Split":
        raise ValueError(f"it has the pre-tokenizer {step['type']}, which llmlab does not do")
    if "Regex" not in step["pattern"]:
        raise ValueError("it splits at a string, not at a regular expression")
    pattern = step["pattern"]["Regex"]
    if step["behavior"] == "Isolated":  # inverted or not: a match and what is between are pieces
        return pattern
    if step["behavior"] != "Removed" or not step.get("invert"):
        raise ValueError(f"it splits with the behaviour {step['behavior']}; llmlab does Isolated")
    if not _matches_every_character(pattern):  # what is between matches would be removed
        raise ValueError(f"it drops text that {pattern!r} does not match; llmlab drops nothing")
    return pattern


def _matches_every_character(pattern: str) -> bool:
    """Whether the pattern leaves no character out; asked of the first scripts and of samples."""
    PreTokenizer((pattern,))  # a pattern that is none is told here
    compiled = regex.compile(pattern)
    code_points = (*range(0x3000), *range(0x3000, 0xD800, 64), *range(0xE000, 0x110000, 64))
    return all(compiled.fullmatch(chr(code_point)) for code_point in code_points)


def _read_template(processor: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens before and after a text."""
    if processor is None or processor["type"] == "ByteLevel":  # the latter only moves offsets
        return (), ()
    if processor["type"] == "Sequence":
        parts = [_read_template(part) for part in processor["processors"]]
        return (
            tuple(token for prefix, _ in reversed(parts) for token in prefix),
            tuple(token for _, suffix in parts for token in suffix),
        )
    if processor["type"] != "TemplateProcessing":
        raise ValueError(
            f"its post-processor is {processor['type']}; llmlab does TemplateProcessing"
        )
    prefix: list[str] = []
    suffix: list[str] = []
    side = prefix
    for item in processor["single"]:
        if "Sequence" in item:
            side = suffix
        else:
            side += processor["special_tokens"][item["SpecialToken"]["id"]]["tokens"]
    return tuple(prefix), tuple(suffix)


def _check_decoder(decoder: Any) -> None:
    if decoder is None or decoder["type"] != "ByteLevel":
        found = "none" if decoder is None else decoder["type"]
        raise ValueError(f"its decoder is {found}, not ByteLevel")


def _token_content(token: Any) -> str | None:
    """A token is written as its text, or as an object that holds it."""
    return token["content"] if isinstance(token, Mapping) else token
