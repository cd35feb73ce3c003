"""Check what `generate` is given, before anything is computed, and say what to do about it."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmlab.cache import DynamicKVCache, KVCache, StaticKVCache
from llmlab.cache.base import read_size, read_whole_number
from llmlab.config import ModelConfig
from llmlab.decoding.prompts import Prompts, check_ids


def check_model(model: Any) -> None:
    """Raises TypeError for what is no model of this package."""
    if not isinstance(model, nn.Module) or not isinstance(
        getattr(model, "config", None), ModelConfig
    ):
        raise TypeError(
            f"model must be a DecoderModel, such as load_model() gives; got {type(model).__name__}"
        )


def check_functions(sampler: Any, **callbacks: Any) -> None:
    """Raises TypeError where a sampler or a callback is neither None nor a function."""
    if sampler is not None and not callable(sampler):
        raise TypeError(f"sampler must be a function of the logits or a Sampler, got {sampler!r}")
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} must be a function of what is new, got {callback!r}")


def read_count(max_new_tokens: int) -> int:
    """The number of new tokens, 0 or more."""
    return read_size(max_new_tokens, "max_new_tokens", least=0)


def key_dtype(model: nn.Module) -> torch.dtype:
    """What the model's keys and values are made in: its weights' dtype, or that of autocast."""
    weight = next(model.parameters())
    device = weight.device.type
    if torch.is_autocast_enabled(device) and weight.dtype != torch.float64:  # which it leaves alone
        return torch.get_autocast_dtype(device)
    return weight.dtype


def read_stop_ids(stop_ids: Iterable[int], vocab_size: int) -> frozenset[int]:
    """The stop ids as a set of ids that are in the vocabulary."""
    if not isinstance(stop_ids, Iterable) or isinstance(stop_ids, str):
        raise TypeError(f"stop_ids must be a collection of ids such as (2,), got {stop_ids!r}")
    read = frozenset(read_whole_number(token, "a stop id") for token in stop_ids)
    check_ids(read, vocab_size, "stop_ids")
    return read


def choose_cache(
    cache: KVCache | str | None, model: nn.Module, prompts: Prompts, max_new_tokens: int
) -> KVCache | None:
    """The cache that the argument asks for, known to fit the model, the rows and the run."""
    past = cache.length if isinstance(cache, KVCache) else 0
    _check_context(past, prompts.longest, max_new_tokens, model.config.max_positions)
    if cache is None:
        return None
    if isinstance(cache, KVCache):
        _check_model(cache, model)
        _check_rows(cache, prompts)
        _check_capacity(cache, prompts.longest, max_new_tokens)
        return cache
    if cache == "dynamic":
        return DynamicKVCache(model.config)
    if cache == "static":
        weight = next(model.parameters())
        return StaticKVCache(
            model.config,
            batch_size=len(prompts.rows),
            max_length=prompts.longest + max_new_tokens,
            dtype=key_dtype(model),
            device=weight.device,
        )
    error = ValueError if isinstance(cache, str) else TypeError
    raise error(f'cache must be None, "static", "dynamic" or a KVCache object, got {cache!r}')


def check_choice(chosen: Tensor, logits: Float[Tensor, "B V"]) -> list[int]:
    """The sampler's answer as a list of ids, one a row."""
    rows, vocab_size = logits.shape
    if not isinstance(chosen, Tensor) or tuple(chosen.shape) != (rows,):
        got = f"shape {list(chosen.shape)}" if isinstance(chosen, Tensor) else repr(chosen)
        raise ValueError(f"the sampler must return a tensor of shape [{rows}], got {got}")
    ids = [read_whole_number(token, "what the sampler returns") for token in chosen.tolist()]
    check_ids(ids, vocab_size, "the sampler's choice")
    return ids


def _check_context(past: int, prompt: int, new: int, max_positions: int) -> None:
    in_cache = f"{past} tokens in the cache + " if past else ""
    if past + prompt > max_positions:
        raise ValueError(
            f"{in_cache}a prompt of {prompt} tokens is longer than the model's context of "
            f"{max_positions}: shorten the prompt"
        )
    if past + prompt + new > max_positions:
        raise ValueError(
            f"{in_cache}a prompt of {prompt} tokens + {new} new ones make {past + prompt + new}, "
            f"but the model's context is {max_positions}: ask for at most "
            f"{max_positions - past - prompt} new tokens or shorten the prompt"
        )


def _check_model(cache: KVCache, model: nn.Module) -> None:
    weight = next(model.parameters())
    expected = {
        "layers": model.config.layers,
        "kv_heads": model.config.kv_heads,
        "head_dim": model.config.head_dim,
        "dtype": key_dtype(model),
        "device": weight.device,
    }
    for name, needed in expected.items():
        got = getattr(cache, name)
        if got is not None and got != needed:  # None: the first update will decide
            raise ValueError(
                f"the cache was made for another model: its {name} is {got}, the model's is "
                f"{needed}; make one from model.config"
            )


def _check_rows(cache: KVCache, prompts: Prompts) -> None:
    if cache.batch_size not in (None, len(prompts.rows)):
        raise ValueError(
            f"the cache has {cache.batch_size} rows, but ids has {len(prompts.rows)}: give as many "
            "prompts as the cache has rows, or make a new cache"
        )
    if prompts.ragged and cache.length:
        raise ValueError(
            "rows of different lengths cannot be added to a cache that already holds tokens, since "
            "they would put padding in its middle: give rows of one length, or one row at a time"
        )


def _check_capacity(cache: KVCache, prompt: int, new: int) -> None:
    needed = cache.length + prompt + max(new - 1, 0)  # the last new token is never fed
    if cache.capacity is not None and needed > cache.capacity:
        raise ValueError(
            f"the cache has room for {cache.capacity} positions and holds {cache.length}; this run "
            f"needs {needed}: make a larger cache, ask for fewer tokens, or reset() it"
        )
