"""Models from and to Hugging Face folders: `config.json` and safetensors. Never pickle."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from llmlab.config import ModelConfig
from llmlab.json_file import local_path, read_json
from llmlab.model.decoder import DecoderModel
from llmlab.model.locate import locate_model
from llmlab.model.weight_names import (
    BODY_PREFIX,
    FAMILY_NAMES,
    HEAD_WEIGHT,
    STORED_BUFFERS,
    hugging_face_views,
)

SINGLE_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
FLOAT_DTYPES = ("F16", "BF16", "F32", "F64")  # as safetensors names them


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a safetensors file, not yet read."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it: "F32", "BF16"


def load_model(
    name_or_path: str | Path | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> DecoderModel:
    """Reads a model from a Hugging Face folder, a Hub name, or (None) the one that llmlab brings.

    Files are memory-mapped and copied tensor by tensor into parameters that already have the wanted
    dtype and device, so that the peak of memory is the model and its largest tensor. The model
    comes in eval mode.

    Raises:
        FileNotFoundError: no such folder, no weights in it, or a Hub name that cannot be fetched.
        ValueError: pickled weights only, a family or setting that llmlab does not know, weights
            that are missing, unexpected, of the wrong shape or quantised (all of them are listed),
            a damaged file, or a device that this machine does not have.
        TypeError: a dtype that is none, such as the text "float16".
    """
    _check_place(dtype, device)
    folder = locate_model(name_or_path)
    config = ModelConfig.from_hugging_face(folder)
    with torch.device("meta"):  # shapes without memory
        model = DecoderModel(config)
    stored = _read_headers(_weight_files(folder), config)
    _check_tensors(folder, stored, model)
    _allocate(model, dtype, device)
    _copy_tensors(stored, hugging_face_views(model))
    return model.eval()


def _check_place(dtype: torch.dtype, device: torch.device | str) -> None:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be one of PyTorch, such as torch.float16; got {dtype!r}")
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating-point one, as torch.float32; got {dtype}")
    try:
        torch.empty(0, dtype=dtype, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition(". ")[0]
        raise ValueError(
            f"the device {str(device)!r} cannot be used here ({reason}); device='cpu' always can"
        ) from None


def save_model(model: DecoderModel, folder: str | Path, *, tokenizer: Any = None) -> Path:
    """Writes a folder that `load_model` and transformers' `AutoModelForCausalLM` both read.

    `tokenizer`, where given, saves itself beside the weights (`save_pretrained`).

    Raises ValueError where the model's family cannot express its config; nothing is written then.
    """
    from safetensors.torch import save_file

    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise TypeError(f"a {type(tokenizer).__name__} cannot save itself: give a BPETokenizer")
    settings = model.config.to_hugging_face()
    parameter = next(model.parameters())
    settings["dtype"] = str(parameter.dtype).removeprefix("torch.")
    folder = local_path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Views of one parameter share memory, which safetensors refuses: every tensor gets its own.
    tensors = {
        name: view.clone(memory_format=torch.contiguous_format).cpu()
        for name, view in hugging_face_views(model).items()
    }
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
    (folder / SINGLE_FILE).chmod(0o644)  # safetensors lets nobody else read it
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: one, or the shards that its index names."""
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).is_file():
        return _shards(folder)
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLE_SUFFIXES)
    if pickles:
        raise ValueError(
            f"{folder} holds its weights as pickle only ({', '.join(pickles)}), which llmlab does "
            "not open, since a pickle can run any code. If you trust its author, convert it once "
            "with transformers: "
            "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)"
        )
    raise FileNotFoundError(f"no {SINGLE_FILE} and no {INDEX_FILE} in {folder}")


def _shards(folder: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(folder / INDEX_FILE)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / INDEX_FILE} is no index of safetensors: {error!r}") from None
    outside = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if outside:
        raise ValueError(f"{folder / INDEX_FILE} names files outside its folder: {outside}")
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise FileNotFoundError(f"{folder} lacks these shards of its index: {', '.join(absent)}")
    return [folder / name for name in names]


def _read_headers(files: list[Path], config: ModelConfig) -> dict[str, StoredTensor]:
    """What the files hold, by the names of our tables; nothing but headers is read."""
    from safetensors import SafetensorError, safe_open

    stored = []
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (a handle is no dict)
                    header = tensors.get_slice(name)
                    shape = tuple(header.get_shape())
                    stored.append(StoredTensor(file, name, shape, header.get_dtype()))
        except SafetensorError as error:
            raise ValueError(
                f"{file} is no complete safetensors file ({error}): download or copy it again "
                "(with Git, `git lfs pull`)"
            ) from None
    prefix = BODY_PREFIX[config.family]
    if any(tensor.name.startswith(prefix) for tensor in stored):
        prefix = ""
    weights = {
        tensor.name if tensor.name == HEAD_WEIGHT else prefix + tensor.name: tensor
        for tensor in stored
        if not STORED_BUFFERS.search(tensor.name)
    }
    if config.tied_embeddings and HEAD_WEIGHT in weights:
        table = FAMILY_NAMES[config.family]["token_embedding"][0] + ".weight"
        _check_tied_head(weights.pop(HEAD_WEIGHT), weights.get(table))
    return weights


def _check_tied_head(head: StoredTensor, table: StoredTensor | None) -> None:
    """Some files store the tied table twice; a head that differs from the table is another model.

    Raises ValueError for such a head.
    """
    from safetensors import safe_open

    if table is None or table.shape != head.shape:
        return  # what is missing or misshapen is told later, with all the rest
    with safe_open(head.file, "pt") as heads, safe_open(table.file, "pt") as tables:
        same = torch.equal(heads.get_tensor(head.name), tables.get_tensor(table.name))
    if not same:
        raise ValueError(
            "config.json says that the head is the token table (tie_word_embeddings), but "
            f"{head.file} holds another {head.name}: set tie_word_embeddings to false, or "
            "remove that tensor"
        )


def _check_tensors(folder: Path, stored: dict[str, StoredTensor], model: DecoderModel) -> None:
    """Raises ValueError that lists every tensor that is missing, too many, or not as it should."""
    wanted = {name: tuple(view.shape) for name, view in hugging_face_views(model).items()}
    shared = wanted.keys() & stored.keys()
    problems = {
        "missing": sorted(wanted.keys() - stored.keys()),
        "unexpected": sorted(stored.keys() - wanted.keys()),
        "of the wrong shape": [
            f"{name} {list(stored[name].shape)} instead of {list(wanted[name])}"
            for name in sorted(shared)
            if stored[name].shape != wanted[name]
        ],
        "not plain floating-point numbers (quantised?)": [
            f"{name} ({stored[name].dtype})"
            for name in sorted(shared)
            if stored[name].dtype not in FLOAT_DTYPES
        ],
    }
    if any(problems.values()):
        lines = [f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names]
        raise ValueError(
            f"the weights in {folder} do not fit its config.json ({model.config.family}):\n  "
            + "\n  ".join(lines)
        )


def _allocate(model: DecoderModel, dtype: torch.dtype, device: torch.device | str) -> None:
    """Gives every parameter memory, not yet filled (as `to_empty`, which first imports sympy)."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            memory = torch.empty(parameter.shape, dtype=dtype, device=device)
            setattr(module, name, torch.nn.Parameter(memory))


def _copy_tensors(stored: dict[str, StoredTensor], views: dict[str, Tensor]) -> None:
    """Fills the parameters, converting to their dtype on the way.

    A file is mapped anew for every tensor: unmapping gives the pages of the last one back, so that
    no more than one tensor is in memory twice.
    """
    from safetensors import safe_open

    for name, tensor in stored.items():
        with safe_open(tensor.file, framework="pt") as tensors:
            views[name].copy_(tensors.get_tensor(tensor.name))
