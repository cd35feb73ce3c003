"""The scheduler on a GPU that is only arithmetic: a clock that gives the same time every time."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from llmlab.cache import BlockPool
from llmlab.memory.hardware import Hardware, hardware
from llmlab.memory.roofline import (
    ModelShape,
    cache_bytes_per_token,
    dtype_size,
    matrix_parameters,
)
from llmlab.serving.request import Request
from llmlab.serving.scheduler import Chunk, Scheduler
from llmlab.serving.timeline import Timeline


@dataclass(frozen=True)
class Arrival:
    """A request of a workload: when it comes (seconds), and its lengths in tokens.

    `prompt_ids` are needed only where prefixes shall be found in the cache; `prompt_tokens` is then
    their number.
    """

    seconds: int | float
    prompt_tokens: int
    new_tokens: int
    prompt_ids: Sequence[int] | None = None


@dataclass(frozen=True)
class IterationCost:
    """Seconds of one forward: the roofline of the matrices, that of attention, a fixed cost.

    Matrices: 2 FLOPs a weight and token; every weight is read once (the head serves only tokens
    that sample). Attention: 4 FLOPs a query dimension and visible pair; keys and values of every
    sequence are read once, the new ones written. The two follow one another, so each has a roofline
    of its own. What a real GPU loses to its ceilings is left to `efficiency`.

    Attributes:
        config: of the model; anything with the sizes of a `ModelConfig`.
        machine: its ceilings.
        dtype: of weights and cache.
        overhead: seconds an iteration for everything else: scheduling, launches, sampling.
        efficiency: the share of both ceilings that is reached.
    """

    config: ModelShape
    machine: Hardware
    dtype: str = "bfloat16"
    overhead: int | float = 0.005
    efficiency: int | float = 1.0

    @cached_property
    def _constants(self) -> tuple[int, int, int, int, int]:
        config = self.config
        size = dtype_size(self.dtype)
        head = config.vocab_size * config.hidden_size
        body = matrix_parameters(config) - head
        pair = 4 * config.layers * config.heads * config.head_dim  # FLOPs
        return size, head, body, pair, cache_bytes_per_token(config, size)

    def seconds(self, *, tokens: int, samples: int, pairs: int, positions: int) -> float:
        """Time of a forward of `tokens` new tokens, of which `samples` give logits.

        `pairs`: of a query and a key that it sees, over all sequences. `positions`: cached and new
        ones, over all sequences.
        """
        size, head, body, pair, row = self._constants
        compute, memory = self.machine.peak(self.dtype), self.machine.bandwidth
        read = (body + (head if samples else 0)) * size
        matrices = max(2 * (body * tokens + head * samples) / compute, read / memory)
        attention = max(pair * pairs / compute, (positions + tokens) * row / memory)
        return self.overhead + (matrices + attention) / self.efficiency

    def of_plan(self, plan: Sequence[Chunk]) -> float:
        """Time of what a scheduler has planned."""
        tokens = samples = pairs = positions = 0
        for request, start, count in plan:
            end = start + count
            tokens += count
            positions += end
            pairs += count * start + count * (count + 1) // 2
            samples += end == request.num_tokens
        return self.seconds(tokens=tokens, samples=samples, pairs=pairs, positions=positions)


def poisson_workload(
    count: int,
    *,
    rate: int | float,
    prompt_tokens: Sequence[int],
    new_tokens: Sequence[int],
    seed: int,
) -> list[Arrival]:
    """`count` requests that come independently of each other, `rate` a second on average.

    Lengths are drawn from the two sequences, each entry being equally likely. Raises ValueError
    for a rate that is not above 0 or for empty lengths.
    """
    if not rate > 0 or not prompt_tokens or not new_tokens:
        raise ValueError(f"give a rate above 0 and at least one of each length; rate is {rate}")
    stream = random.Random(seed)
    arrivals, seconds = [], 0.0
    for _ in range(count):
        seconds += stream.expovariate(rate)
        arrivals.append(Arrival(seconds, stream.choice(prompt_tokens), stream.choice(new_tokens)))
    return arrivals


def simulate(
    workload: Iterable[Arrival],
    *,
    model_config: ModelShape,
    hardware: Hardware | str,
    policy: str = "chunked",
    token_budget: int = 256,
    block_size: int = 16,
    num_blocks: int | None = None,
    max_running: int = 32,
    prefix_reuse: bool = True,
    dtype: str = "bfloat16",
    overhead: int | float = 0.005,
    efficiency: int | float = 1.0,
    keep_chunks: bool = True,
) -> Timeline:
    """Serves a workload on a GPU that is not there, with the scheduler of the real engine.

    Args:
        workload: requests in any order.
        model_config, dtype, overhead, efficiency: see `IterationCost`.
        hardware: a `Hardware` or its name.
        policy, token_budget, max_running, prefix_reuse: see `Scheduler`.
        block_size: positions a block.
        num_blocks: None: as many as fit beside the weights into 90% of the memory.
        keep_chunks: see `Timeline`.

    Raises ValueError for a request that does not fit into all blocks, weights that do not fit into
    the memory, or lengths below 1.
    """
    machine = _machine(hardware)
    cost = IterationCost(model_config, machine, dtype, overhead, efficiency)
    if num_blocks is None:
        num_blocks = _blocks_that_fit(cost, block_size)
    scheduler = Scheduler(
        BlockPool(num_blocks, block_size),
        policy=policy,
        token_budget=token_budget,
        max_running=max_running,
        prefix_reuse=prefix_reuse,
    )
    timeline = Timeline(scheduler, keep_chunks)
    timeline.requests = _requests(workload)
    coming = iter(timeline.requests)
    arriving = next(coming, None)
    now = 0.0
    while arriving is not None or not scheduler.idle:
        if scheduler.idle:
            now = max(now, arriving.arrival)
        while arriving is not None and arriving.arrival <= now:
            scheduler.add(arriving)
            arriving = next(coming, None)
        plan = scheduler.schedule()
        seconds = cost.of_plan(plan)
        timeline.record(plan, now, seconds)
        now += seconds
        for chunk in plan:
            scheduler.commit(chunk)
            request = chunk.request
            if request.num_computed_tokens == request.num_tokens:
                # A token of its own, so that no other request finds it in the cache.
                token = None if request.token_ids is None else -1 - request.id
                scheduler.append(request, now, token)
    return timeline


def _machine(name: Hardware | str) -> Hardware:
    return hardware(name) if isinstance(name, str) else name


def _requests(workload: Iterable[Arrival]) -> list[Request]:
    requests = []
    for number, arrival in enumerate(sorted(workload, key=lambda arrival: arrival.seconds)):
        ids = None if arrival.prompt_ids is None else list(arrival.prompt_ids)
        if ids is not None and len(ids) != arrival.prompt_tokens:
            raise ValueError(f"{len(ids)} prompt ids for prompt_tokens={arrival.prompt_tokens}")
        if arrival.prompt_tokens < 1 or arrival.new_tokens < 1:
            raise ValueError(f"a request needs a prompt and at least 1 new token; got {arrival}")
        requests.append(
            Request(
                number,
                arrival.prompt_tokens,
                arrival.new_tokens,
                arrival=arrival.seconds,
                token_ids=ids,
            )
        )
    return requests


def _blocks_that_fit(cost: IterationCost, block_size: int) -> int:
    config, machine = cost.config, cost.machine
    size, head, body, _, row = cost._constants
    if machine.memory_bytes is None:
        raise ValueError(f"how much memory {machine.name} has is not known: give num_blocks")
    weights = (body + head * (1 if config.tied_embeddings else 2)) * size
    blocks = int(0.9 * machine.memory_bytes - weights) // (row * block_size)
    if blocks < 1:
        raise ValueError(
            f"the weights take {weights / 1e9:.1f} GB of {machine.name}'s "
            f"{machine.memory_bytes / 1e9:.0f} GB: no room for a cache. "
            "Take a smaller model or a larger GPU"
        )
    return blocks
