"""What the next forward computes: three policies over one idea, and no clock, model or tensor.

Every policy is a way to let a request's computed tokens catch up with its tokens (see `Request`).
"""

from collections import deque
from typing import NamedTuple

from llmlab.cache import BlockPool, block_key
from llmlab.cache.base import read_size
from llmlab.serving.request import Request


class Chunk(NamedTuple):
    """Of `request`, the `count` tokens after the first `start` are to be computed."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Whether all tokens are computed then, so that the logits of the last one are wanted."""
        return self.start + self.count == self.request.num_tokens


class Scheduler:
    """Decides, before every forward, which requests take part and with how many tokens.

    Policies:
        "static": a batch is admitted when the one before has finished to its last request; blocks
            for the final lengths are taken at once.
        "continuous": requests come and go between any two forwards. Waiting prompts go first, each
            in one piece and as many as the budget allows (but at least one), while those that
            decode wait. Source: Yu et al. 2022 (Orca), section 3.1; this order is vLLM's first.
        "chunked": at most `token_budget` tokens a forward. Those that decode go first, with one
            token each; what is left of the budget goes to prompts, in pieces.
            Source: Agrawal et al. 2024 (Sarathi-Serve), section 4, algorithm 3.

    Requests are served in the order in which they were added. Where blocks run out, the youngest
    running request gives up all of its own and waits at the head of the queue to be computed anew
    (preemption by recomputation: Kwon et al. 2023, section 4.5). The oldest can always go on.

    Use: `plan = schedule()`, compute it, `commit(chunk)` for each of its chunks, `append(request)`
    for each one that sampled. A plan that failed is simply not committed.

    Args:
        pool: the blocks of all requests.
        policy: one of the three.
        token_budget: tokens a forward, see above; "static" ignores it.
        max_running: requests at a time.
        prefix_reuse: take full blocks that another request has computed for the same beginning.

    Raises ValueError for an unknown policy or numbers below 1, TypeError for those not whole.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        policy: str = "chunked",
        token_budget: int = 256,
        max_running: int = 32,
        prefix_reuse: bool = True,
    ):
        if policy not in POLICIES:
            raise ValueError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
        self.pool = pool
        self.policy = policy
        self.token_budget = read_size(token_budget, "token_budget")
        self.max_running = read_size(max_running, "max_running")
        self.prefix_reuse = prefix_reuse
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
        self.preemptions = 0
        self.admitted_tokens = 0  # of requests, when they were admitted ...
        self.reused_tokens = 0  # ... and those of them that were in the cache
        self._plan: list[Chunk] = []
        self._budget = 0

    @property
    def idle(self) -> bool:
        return not (self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Puts a request at the end of the queue. Raises ValueError where it can never fit."""
        self.check_fits(request)
        self.waiting.append(request)

    def check_fits(self, request: Request) -> None:
        """Raises ValueError for a request that needs more blocks than there are."""
        needed = self.pool.blocks_for(request.longest)
        if needed > self.pool.num_blocks:
            raise ValueError(
                f"a prompt of {request.prompt_tokens} tokens and {request.max_new_tokens} new ones "
                f"need {needed} blocks of {self.pool.block_size} positions, and there are "
                f"{self.pool.num_blocks} in all: ask for less, or make an engine with at least "
                f"num_blocks={needed}"
            )

    def schedule(self) -> list[Chunk]:
        """What the next forward computes; empty only if there is no request."""
        self._plan, self._budget = [], self.token_budget
        POLICIES[self.policy](self)
        return self._plan

    def _static(self) -> None:
        if self.running:
            self._continue_whole()
            return
        while self._may_admit() and self._admit(whole=True, positions=self.waiting[0].longest):
            pass

    def _continuous(self) -> None:
        while self._may_admit():
            fits = self.waiting[0].num_tokens <= self._budget
            if not ((fits or not self._plan) and self._admit(whole=True)):
                break
        if not self._plan:
            self._continue_whole()

    def _chunked(self) -> None:
        preemptions = self.preemptions
        decodes, prompts = [], []
        for request in self.running:
            decoding = request.num_tokens - request.num_computed_tokens == 1
            (decodes if decoding else prompts).append(request)
        for request in decodes + prompts:
            if self._budget and request.running:
                missing = request.num_tokens - request.num_computed_tokens
                self._take(request, min(missing, self._budget))
        while self._budget and self._may_admit() and self.preemptions == preemptions:
            if not self._admit(whole=False):
                break

    def _continue_whole(self) -> None:
        """All that is missing of every running request: one token, but after a failed forward."""
        for request in list(self.running):
            if request.running:  # it may have been preempted for an older one
                self._take(request, request.num_tokens - request.num_computed_tokens)

    def _take(self, request: Request, count: int) -> None:
        """Plans `count` tokens of a running request, if need be at the cost of younger ones."""
        start = request.num_computed_tokens
        room = len(request.block_table) * self.pool.block_size
        if start + count > room and not self._take_blocks(request, start + count):
            return
        self._plan.append(Chunk(request, start, count))
        self._budget -= count

    def _take_blocks(self, request: Request, positions: int) -> bool:
        """Blocks for so many positions; False: the request itself had to give way."""
        missing = self.pool.blocks_for(positions) - len(request.block_table)
        while missing > self.pool.available:
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is request:
                return False
        request.block_table += [self.pool.allocate() for _ in range(missing)]
        return True

    def _preempt(self, request: Request) -> None:
        self._stop(request)
        self.waiting.appendleft(request)
        request.preemptions += 1
        self.preemptions += 1
        self._budget += sum(chunk.count for chunk in self._plan if chunk.request is request)
        self._plan[:] = [chunk for chunk in self._plan if chunk.request is not request]

    def _may_admit(self) -> bool:
        return bool(self.waiting) and len(self.running) < self.max_running

    def _admit(self, *, whole: bool, positions: int = 0) -> bool:
        """Lets the first of the queue run, if blocks are free for its first chunk.

        `positions`: take blocks for so many at once.
        """
        request = self.waiting[0]
        found = self._cached_blocks(request)
        cached = len(found) * self.pool.block_size
        count = request.num_tokens - cached
        if not whole:
            count = min(count, self._budget)
        total = self.pool.blocks_for(max(cached + count, positions))
        already_in_use = sum(self.pool.references(block) > 0 for block in found)
        if total - already_in_use > self.pool.available:
            return False
        self.waiting.popleft()
        for block in found:
            self.pool.share(block)
        fresh = [self.pool.allocate() for _ in range(total - len(found))]
        request.block_table = found + fresh
        request.num_computed_tokens = cached
        request.cached_tokens += cached
        self.admitted_tokens += request.num_tokens
        self.reused_tokens += cached
        request.running = True
        self.running.append(request)
        self._plan.append(Chunk(request, cached, count))
        self._budget -= count
        return True

    def _cached_blocks(self, request: Request) -> list[int]:
        """Blocks that hold the beginning already. At least one token is left: its logits are
        wanted, and they are not in the cache."""
        found = []
        if self.prefix_reuse and request.token_ids is not None:
            for i in range((request.num_tokens - 1) // self.pool.block_size):
                block = self.pool.find(self._key(request, i))
                if block is None:
                    break
                found.append(block)
        return found

    def _key(self, request: Request, i: int) -> bytes:
        """The key of block i of a request; those before it are known."""
        keys, size = request.block_keys, self.pool.block_size
        if i == len(keys):
            keys.append(
                block_key(keys[-1] if keys else b"", request.token_ids[i * size : (i + 1) * size])
            )
        return keys[i]

    def commit(self, chunk: Chunk) -> None:
        """The chunk has been computed; blocks that are full now can be found by others."""
        request, start, count = chunk
        request.num_computed_tokens = start + count
        if self.prefix_reuse and request.token_ids is not None:
            size = self.pool.block_size
            for i in range(start // size, (start + count) // size):
                self.pool.publish(request.block_table[i], self._key(request, i))

    def append(self, request: Request, seconds: int | float, token_id: int | None = None) -> None:
        """One more token, which came at `seconds`; the last one finishes the request."""
        request.num_tokens += 1
        request.token_times.append(seconds)
        if token_id is not None:
            request.token_ids.append(token_id)
        if request.num_tokens - request.prompt_tokens == request.max_new_tokens:
            self.finish(request, "length")

    def finish(self, request: Request, reason: str) -> None:
        """Ends a request, wherever it is, and gives its blocks back."""
        if request.running:
            self._stop(request)
        else:
            self.waiting.remove(request)
        request.finish_reason = reason

    def _stop(self, request: Request) -> None:
        self.running.remove(request)
        self.pool.release_all(request.block_table)
        request.block_table = []
        request.num_computed_tokens = 0
        request.running = False


POLICIES = {
    "static": Scheduler._static,
    "continuous": Scheduler._continuous,
    "chunked": Scheduler._chunked,
}
