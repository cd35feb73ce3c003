"""The engine: one forward of the model computes a part of many requests at once."""

import time
from collections.abc import Callable, Collection, Hashable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from llmlab.cache import BlockStorage, MixedBatch, Span
from llmlab.cache.base import read_size
from llmlab.decoding.checks import (
    check_choice,
    check_functions,
    check_model,
    key_dtype,
    read_count,
    read_stop_ids,
)
from llmlab.decoding.prompts import TokenIds, read_prompts
from llmlab.decoding.sampling import SamplerFunction
from llmlab.serving.request import Request
from llmlab.serving.scheduler import Chunk, Scheduler
from llmlab.serving.timeline import Timeline


class Engine:
    """Serves many requests with one model; each gets the tokens that `generate` would give it.

    Args:
        model: a `DecoderModel`.
        policy, token_budget, max_running, prefix_reuse: see `Scheduler`.
        block_size: positions in a block of the paged cache.
        num_blocks: blocks in all. None: enough for `max_running` requests that fill the model's
            context, but no more than for 16,384 positions, or for one such request.
        clock: gives the time in seconds; another one makes tests repeatable.

    What goes wrong within one request ends that request alone: where its sampler or its callback
    raises, its `finish_reason` is "error", its `error` the exception, and the others go on. Where
    the model itself raises, so does `step`, and nothing has been committed: it may be called again.

    Raises ValueError for sizes below 1 and an unknown policy, TypeError for what is no model and
    sizes that are not whole.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        policy: str = "chunked",
        token_budget: int = 256,
        block_size: int = 16,
        num_blocks: int | None = None,
        max_running: int = 32,
        prefix_reuse: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ):
        check_model(model)
        block_size = read_size(block_size, "block_size")
        max_running = read_size(max_running, "max_running")
        if num_blocks is None:
            longest = model.config.max_positions
            num_blocks = -(-max(longest, min(max_running * longest, 16_384)) // block_size)
        weight = next(model.parameters())
        self.model = model
        self.storage = BlockStorage(
            model.config,
            num_blocks=num_blocks,
            block_size=block_size,
            dtype=key_dtype(model),
            device=weight.device,
        )
        self.scheduler = Scheduler(
            self.storage.pool,
            policy=policy,
            token_budget=token_budget,
            max_running=max_running,
            prefix_reuse=prefix_reuse,
        )
        self.requests: dict[Hashable, Request] = {}
        self.timeline = Timeline(self.scheduler)
        self._to_come: list[Request] = []  # arrivals in the future, the next one first
        self._clock = clock
        self._zero = clock()

    @property
    def now(self) -> float:
        """Seconds since the engine was made."""
        return self._clock() - self._zero

    def add_request(
        self,
        ids: TokenIds,
        max_new_tokens: int,
        *,
        sampler: SamplerFunction | None = None,
        stop_ids: Collection[int] = (),
        on_token: Callable[[int], Any] | None = None,
        request_id: Hashable = None,
        arrival: int | float | None = None,
    ) -> Request:
        """Asks for a continuation of one prompt; the other arguments are those of `generate`.

        A sampler that draws at random belongs to one request only: its stream goes on from call to
        call.

        Args:
            request_id: a name of your own. None: a number.
            arrival: when the request comes, in seconds after the engine was made. None: now.

        Returns the `Request`, whose `ids` grow while the engine runs.

        Raises TypeError or ValueError for a bad argument, a name that is taken, and a request that
        can never fit into the model's context or the blocks; the engine is then as it was.
        """
        config = self.model.config
        prompts = read_prompts(ids, vocab_size=config.vocab_size)
        if not prompts.single:
            raise ValueError("add_request takes one prompt, a list of ids: call it for each prompt")
        check_functions(sampler, on_token=on_token)
        if request_id is None:
            request_id = len(self.requests)
            while request_id in self.requests:
                request_id += 1
        if request_id in self.requests:
            raise ValueError(f"there is a request {request_id!r} already: choose another name")
        prompt = list(prompts.rows[0])
        request = Request(
            request_id,
            len(prompt),
            read_count(max_new_tokens),
            arrival=self.now if arrival is None else float(arrival),
            token_ids=prompt,
            sampler=sampler,
            stop_ids=read_stop_ids(stop_ids, config.vocab_size),
            on_token=on_token,
        )
        if request.prompt_tokens + request.max_new_tokens > config.max_positions:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens and {max_new_tokens} new ones are more than the "
                f"model's context of {config.max_positions}: shorten the prompt or ask for less"
            )
        self._enqueue(request, later=arrival is not None and request.arrival > self.now)
        return request

    def _enqueue(self, request: Request, *, later: bool) -> None:
        self.scheduler.check_fits(request)
        if request.max_new_tokens == 0:
            request.finish_reason = "length"
        elif later:
            self._to_come.append(request)
            self._to_come.sort(key=lambda request: request.arrival)
        else:
            self.scheduler.add(request)
        self.requests[request.id] = request
        self.timeline.requests.append(request)

    def cancel(self, request_id: Hashable) -> None:
        """Ends a request; what it has generated stays. One that has finished stays as it is.

        Raises ValueError for a name that no request has.
        """
        if request_id not in self.requests:
            raise ValueError(f"there is no request {request_id!r} to cancel")
        request = self.requests[request_id]
        if request in self._to_come:
            self._to_come.remove(request)
            request.finish_reason = "cancelled"
        elif not request.finished:
            self.scheduler.finish(request, "cancelled")

    @property
    def idle(self) -> bool:
        """Whether every request has finished."""
        return self.scheduler.idle and not self._to_come

    def step(self) -> list[Request]:
        """One forward for what the scheduler chooses; gives the requests that it finished.

        Does nothing if no request has arrived.
        """
        while self._to_come and self._to_come[0].arrival <= self.now:
            self.scheduler.add(self._to_come.pop(0))
        # Sequences with one new token come first, see `MixedBatch`.
        plan = sorted(self.scheduler.schedule(), key=lambda chunk: chunk.count > 1)
        if not plan:
            return []
        start = self.now
        sampling, logits = self._forward(plan)  # [sequences that sample, V]
        chosen, errors = _choose([chunk.request for chunk in sampling], logits)
        self.timeline.record(plan, start, self.now - start)
        for chunk in plan:
            self.scheduler.commit(chunk)
        for request, error in errors:
            self._fail(request, error)
        self._hand_out(chosen)
        return [chunk.request for chunk in plan if chunk.request.finished]

    def run(self) -> Timeline:
        """Steps until every request has finished; gives the record of all steps so far."""
        while not self.idle:
            if self.scheduler.idle:
                time.sleep(max(self._to_come[0].arrival - self.now, 0))
            self.step()
        return self.timeline

    @torch.inference_mode()
    def _forward(self, plan: list[Chunk]) -> tuple[list[Chunk], Float[Tensor, "sampling V"]]:
        """The chunks that sample, and the logits of the last token of each."""
        spans = [Span(chunk.request.block_table, chunk.start, chunk.count) for chunk in plan]
        batch = MixedBatch(self.storage, spans)
        ids = [
            token
            for chunk in plan
            for token in chunk.request.token_ids[chunk.start : chunk.start + chunk.count]
        ]
        ids = torch.tensor(ids, device=self.storage.device)  # [N]
        hidden = self.model.mixed_hidden_states(ids, batch)  # [N, C]
        sampling = [chunk.samples for chunk in plan]
        wanted = batch.last_tokens[torch.tensor(sampling, device=self.storage.device)]
        logits = self.model.logits(hidden[wanted][None])[0]  # [sampling, V]
        return [chunk for chunk in plan if chunk.samples], logits

    def _hand_out(self, chosen: list[tuple[Request, int]]) -> None:
        """Appends all tokens first and calls back then: a callback may cancel, add or raise."""
        seconds = self.now
        told = []
        for request, token in chosen:
            if token in request.stop_ids:
                self.scheduler.finish(request, "stop")
                continue
            self.scheduler.append(request, seconds, token)
            if request.on_token is not None:
                told.append((request, token))
        for request, token in told:
            if request.finish_reason == "cancelled":  # by an earlier callback
                continue
            try:
                request.on_token(token)
            except Exception as error:
                self._fail(request, error)

    def _fail(self, request: Request, error: Exception) -> None:
        request.error = error
        if request.finished:
            request.finish_reason = "error"
        else:
            self.scheduler.finish(request, "error")


def _choose(
    requests: list[Request], logits: Float[Tensor, "sampling V"]
) -> tuple[list[tuple[Request, int]], list[tuple[Request, Exception]]]:
    """The next token of each request by its own sampler, and what went wrong for which."""
    chosen, errors = [], []
    if not requests:
        return chosen, errors
    broken = logits.amax(dim=-1).isnan().tolist()
    likeliest = logits.argmax(dim=-1).tolist()
    for row, request in enumerate(requests):
        try:
            if broken[row]:
                raise ValueError("the model's logits are NaN: damaged weights, or an overflow")
            token = likeliest[row]
            if request.sampler is not None:
                row_logits = logits[row : row + 1]  # [1, V]
                token = check_choice(request.sampler(row_logits), row_logits)[0]
            chosen.append((request, token))
        except Exception as error:
            errors.append((request, error))
    return chosen, errors
