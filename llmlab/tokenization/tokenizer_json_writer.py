"""Writing `tokenizer.json` and `tokenizer_config.json`, as Hugging Face's libraries read them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmlab.json_file import local_path
from llmlab.tokenization.added_tokens import AddedToken
from llmlab.tokenization.bpe_config import BPEConfig
from llmlab.tokenization.pre_tokenization import GPT2_PATTERN


def write_bpe(
    path: str | Path,
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    added_tokens: Sequence[AddedToken],
    config: BPEConfig,
) -> None:
    """Writes a `tokenizer.json`. Raises FileNotFoundError where its folder does not exist."""
    path = local_path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_write_added_token(token) for token in added_tokens],
        "normalizer": None if config.normalizer is None else {"type": config.normalizer},
        "pre_tokenizer": _write_pre_tokenizer(config),
        "post_processor": _write_template(config.prefix, config.suffix, vocabulary),
        "decoder": _byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": config.ignore_merges,
            "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1])),
            "merges": [list(pair) for pair in merges],
        },
    }
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def write_tokenizer_config(path: Path, config: BPEConfig) -> None:
    """Writes a `tokenizer_config.json` with which transformers' AutoTokenizer loads the folder."""
    content = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": config.bos_token,
        "eos_token": config.eos_token,
        "clean_up_tokenization_spaces": False,
        "chat_template": config.chat_template,
    }
    said = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(said, ensure_ascii=False, indent=1), encoding="utf-8")


def _write_added_token(token: AddedToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "content": token.content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": token.special,
    }


def _byte_level(*, use_regex: bool = True, add_prefix_space: bool = False) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _write_pre_tokenizer(config: BPEConfig) -> dict[str, Any]:
    if config.patterns == (GPT2_PATTERN,):
        return _byte_level(add_prefix_space=config.add_prefix_space)
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in config.patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, _byte_level(use_regex=False)]}


def _write_template(
    prefix: Sequence[str], suffix: Sequence[str], vocabulary: Mapping[str, int]
) -> dict[str, Any]:
    if not prefix and not suffix:
        return _byte_level()

    def special(token: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    def sequence(name: str) -> list[dict[str, Any]]:
        text = {"Sequence": {"id": name, "type_id": 0}}
        return [*map(special, prefix), text, *map(special, suffix)]

    return {
        "type": "TemplateProcessing",
        "single": sequence("A"),
        "pair": [*sequence("A"), *sequence("B")],
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]}
            for token in (*prefix, *suffix)
        },
    }
