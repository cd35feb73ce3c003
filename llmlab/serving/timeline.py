"""What happened when: one record for the engine's clock and for the simulator's."""

from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from llmlab.serving.request import Request
from llmlab.serving.scheduler import Chunk, Scheduler


class Iteration(NamedTuple):
    """One forward of the model.

    Attributes:
        start, seconds: on the clock.
        decode_tokens: tokens of requests that computed one token and sampled the next.
        prefill_tokens: all other tokens.
        sequences: requests that took part.
        waiting: requests in the queue meanwhile.
        blocks_in_use: during the forward.
        chunks: (request id, start, count) of each; empty where they are not kept.
    """

    start: float
    seconds: float
    decode_tokens: int
    prefill_tokens: int
    sequences: int
    waiting: int
    blocks_in_use: int
    chunks: tuple[tuple[Hashable, int, int], ...] = ()

    @property
    def tokens(self) -> int:
        return self.decode_tokens + self.prefill_tokens


@dataclass(frozen=True)
class Metrics:
    """Figures of a run. Times in seconds; nan where there is nothing to measure.

    Attributes:
        requests: finished, whatever the reason.
        new_tokens: all that were generated.
        seconds: from the first iteration's start to the last one's end.
        throughput: new tokens a second.
        time_to_first_token, ..._p99: from arrival, median and 99th percentile over requests.
        time_between_tokens, ..._p99, worst_gap: over all gaps between two tokens of a request.
        occupancy: mean share of `max_running` places that computed something, weighted by time.
        memory_use: mean share of blocks in use, weighted by time.
        cache_hit_rate: share of the admitted tokens that were in the cache already.
        preemptions: how often a request lost its blocks.
    """

    requests: int
    new_tokens: int
    seconds: float
    throughput: float
    time_to_first_token: float
    time_to_first_token_p99: float
    time_between_tokens: float
    time_between_tokens_p99: float
    worst_gap: float
    occupancy: float
    memory_use: float
    cache_hit_rate: float
    preemptions: int

    def __str__(self) -> str:
        return "\n".join(f"{f.name:24} {getattr(self, f.name):.6g}" for f in fields(self))


@dataclass
class Timeline:
    """The iterations and requests of a run, in order.

    Attributes:
        scheduler: the one whose decisions these were.
        iterations, requests: as they came.
        keep_chunks: whether iterations name their chunks (much memory in a long simulation).
    """

    scheduler: Scheduler
    keep_chunks: bool = True
    iterations: list[Iteration] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def record(self, plan: list[Chunk], start: float, seconds: float) -> None:
        """Adds an iteration; to be called before its tokens are appended to the requests."""
        decodes = tokens = 0
        for request, past, count in plan:
            tokens += count
            decodes += count == 1 and past + 1 == request.num_tokens
        chunks = ()
        if self.keep_chunks:
            chunks = tuple((request.id, past, count) for request, past, count in plan)
        self.iterations.append(
            Iteration(
                start,
                seconds,
                decodes,
                tokens - decodes,
                len(plan),
                len(self.scheduler.waiting),
                self.scheduler.pool.in_use,
                chunks,
            )
        )

    def metrics(self) -> Metrics:
        """The figures of everything so far."""
        times = [np.frombuffer(request.token_times) for request in self.requests]
        firsts = [request.time_to_first_token for request in self.requests if request.token_times]
        gaps = np.concatenate([np.diff(row) for row in times]) if times else np.empty(0)
        start = self.iterations[0].start if self.iterations else 0.0
        end = self.iterations[-1].start + self.iterations[-1].seconds if self.iterations else 0.0
        busy = [iteration.seconds for iteration in self.iterations]
        tokens = sum(len(row) for row in times)
        scheduler = self.scheduler
        return Metrics(
            requests=sum(request.finished for request in self.requests),
            new_tokens=tokens,
            seconds=end - start,
            throughput=_ratio(tokens, end - start),
            time_to_first_token=_quantile(firsts, 0.5),
            time_to_first_token_p99=_quantile(firsts, 0.99),
            time_between_tokens=_quantile(gaps, 0.5),
            time_between_tokens_p99=_quantile(gaps, 0.99),
            worst_gap=_quantile(gaps, 1.0),
            occupancy=_mean([i.sequences for i in self.iterations], busy) / scheduler.max_running,
            memory_use=_mean([i.blocks_in_use for i in self.iterations], busy)
            / scheduler.pool.num_blocks,
            cache_hit_rate=_ratio(scheduler.reused_tokens, scheduler.admitted_tokens),
            preemptions=scheduler.preemptions,
        )


def _ratio(part: int | float, whole: int | float) -> float:
    return part / whole if whole else float("nan")


def _quantile(numbers: list[float] | np.ndarray, share: float) -> float:
    return float(np.quantile(numbers, share)) if len(numbers) else float("nan")


def _mean(numbers: list[int], weights: list[float]) -> float:
    return _ratio(float(np.dot(numbers, weights)), float(np.sum(weights)))
