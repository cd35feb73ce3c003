"""The decoding loop: a prompt goes in, and one forward after another gives the next token."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from llmlab.cache import KVCache
from llmlab.cache.base import read_whole_number
from llmlab.decoding.checks import (
    check_choice,
    check_functions,
    check_model,
    choose_cache,
    read_count,
    read_stop_ids,
)
from llmlab.decoding.compiled import compiled_step
from llmlab.decoding.generation import Generation, Step
from llmlab.decoding.prompts import TokenIds, check_ids, read_prompts
from llmlab.decoding.rows import Rows
from llmlab.decoding.sampling import SamplerFunction, greedy


def generate(
    model: nn.Module,
    ids: TokenIds,
    max_new_tokens: int,
    *,
    cache: KVCache | str | None = "static",
    sampler: SamplerFunction | None = None,
    stop_ids: Collection[int] = (),
    on_token: Callable[..., Any] | None = None,
    compile: bool = False,
    progress: bool | None = None,
    pad_id: int = 0,
) -> Generation:
    """Let the model continue one prompt or a batch of prompts.

    Args:
        model: a `DecoderModel`.
        ids: one prompt (list of ids, tensor [T]) or a batch (list of such lists, tensor [B, T]).
            Rows of different lengths are padded on the left; each row gets the tokens it would get
            alone.
        max_new_tokens: how many tokens each row may get; 0 gives none, and runs nothing.
        cache: None recomputes everything at every step (naive). "static" preallocates prompt +
            max_new_tokens positions, "dynamic" grows. Or a `KVCache` object that may already hold a
            prefix: then `ids` are only what is new, and the cache is kept up to date, see below.
        sampler: logits [B, V] -> ids [B]; None takes the most likely token (greedy).
        stop_ids: a row ends at the first of these; the stop token is not part of the result.
        on_token: called with each new token as it comes: `on_token(token_id)` for one prompt,
            `on_token(row, token_id)` for a batch. Not called for stop tokens.
        compile: run the one-token steps through `torch.compile` (needs a cache, and on a CPU a C++
            compiler; without one a warning says so and the plain model runs).
        progress: a progress bar on stderr. None: if it is a terminal, there is no on_token, and the
            run takes longer than two seconds. True: always. False: never.
        pad_id: the token fed where a row has none (before a short prompt, after a stop). It
            changes no result.

    Returns:
        A `Generation`; its `ids` are a list for one prompt, a list of lists for a batch.

    A cache that was passed in holds afterwards, for one prompt, its prefix, the prompt and the new
    tokens, except a last one that no forward has read: pass that one, and what follows it, as the
    next call's `ids`. So after "length" it lacks `Generation.ids[-1]`, after "stop" only the stop
    token. In a batch it is cut back to the positions that are real tokens in every row: none if
    prompts were padded, none beyond the earliest stop. The same holds after an exception, be it
    from on_token or Ctrl-C: the cache is then as long as what was fed.

    Raises:
        TypeError, ValueError: for a bad argument, before anything is computed: an empty prompt, ids
            outside the vocabulary, a negative count, more tokens than the model's context or the
            cache can hold, a cache made for another model or batch.
        RuntimeError: where on_token or the sampler changed the length of the cache in use.
    """
    check_model(model)
    prompts = read_prompts(ids, vocab_size=model.config.vocab_size)
    max_new_tokens = read_count(max_new_tokens)
    stop_ids = read_stop_ids(stop_ids, model.config.vocab_size)
    check_ids([read_whole_number(pad_id, "pad_id")], model.config.vocab_size, "pad_id")
    check_functions(sampler, on_token=on_token)
    if compile and cache is None:
        raise ValueError('compile=True needs a cache ("static"): without one no step has one token')
    kv_cache = choose_cache(cache, model, prompts, max_new_tokens)
    rows = Rows(prompts, stop_ids=stop_ids, on_token=on_token, pad_id=pad_id)
    step_model = compiled_step(model) if compile else model
    fed, mask = prompts.left_padded(pad_id, next(model.parameters()).device)  # [B, T]
    past = kv_cache.length if kv_cache is not None else 0
    steps = []
    try:
        with _evaluating(model), torch.inference_mode():
            for _ in _progress(max_new_tokens, progress, on_token):
                forward = step_model if fed.shape[1] == 1 else model
                step, chosen = _step(forward, fed, kv_cache, mask, sampler or greedy)
                steps.append(step)
                rows.take(chosen)
                if kv_cache is not None and kv_cache.length != step.cache_length:
                    raise RuntimeError(
                        "on_token or the sampler changed the cache of this run, perhaps by another "
                        "generate with it: give that one a cache of its own"
                    )
                if rows.all_ended:
                    break
                newest = rows.last_column(fed.device)  # [B, 1]
                fed = newest if kv_cache is not None else torch.cat([fed, newest], dim=1)
                if mask is not None:
                    mask = torch.cat([mask, torch.ones_like(newest, dtype=torch.bool)], dim=1)
    finally:
        real = past + rows.real_in_every_row()
        if kv_cache is not None and kv_cache.length > real:
            kv_cache.truncate(real)
    return rows.generation(steps)


def _step(
    forward: Callable[..., Tensor],
    fed: Int[Tensor, "B T"],
    cache: KVCache | None,
    mask: Bool[Tensor, "B S"] | None,
    sampler: SamplerFunction,
) -> tuple[Step, list[int]]:
    """Feed `fed`, and choose the next token of each row from the logits of the last position."""
    rows, input_length = fed.shape
    start = time.perf_counter()
    logits = forward(fed, cache=cache, attention_mask=mask)[:, -1]  # [B, V]
    if logits.amax().isnan():
        raise ValueError("the model's logits are NaN: damaged weights, or an overflow in 16 bits")
    chosen = check_choice(sampler(logits), logits)  # as numbers, so a GPU is done by now
    step = Step(
        input_length=input_length,
        cache_length=cache.length if cache is not None else 0,
        seconds=time.perf_counter() - start,
        projected_tokens=rows * input_length,
    )
    return step, chosen


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode; afterwards each part is as it was."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True


def _progress(count: int, wanted: bool | None, on_token: Callable[..., Any] | None) -> Iterable:
    """range(count), with a progress bar where it is wanted."""
    from tqdm import tqdm  # kept out of `import llmlab`

    if wanted is None and on_token is None:
        # Only on a terminal (disable=None), and only once two seconds have passed.
        return tqdm(range(count), unit="token", leave=False, delay=2, disable=None)
    return tqdm(range(count), unit="token", leave=False, disable=not wanted)
