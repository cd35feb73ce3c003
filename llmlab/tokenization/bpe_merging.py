"""Applying learned merges to one word: the pair that was learned first goes first."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

# (left id, right id) to (rank, merged id); the rank is the place in the order of learning.
MergeTable = Mapping[tuple[int, int], tuple[int, int]]


def merge_table(
    merges: Sequence[tuple[str, str]], vocabulary: Mapping[str, int], forbidden: Iterable[int] = ()
) -> MergeTable:
    """The merges by the ids of their pairs.

    forbidden: ids that no merge may give. They are those of special tokens, which must not come
        from text.

    Raises ValueError where a merge needs a token that the vocabulary lacks.
    """
    forbidden = frozenset(forbidden)
    table = {}
    for rank, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in vocabulary:
                raise ValueError(
                    f"merge {rank} ({left!r} + {right!r}) needs the token {token!r}, "
                    "which the vocabulary lacks"
                )
        if vocabulary[left + right] not in forbidden:
            table[vocabulary[left], vocabulary[right]] = (rank, vocabulary[left + right])
    return table


def apply_merges(tokens: list[int], merges: MergeTable) -> list[int]:
    """Merges the tokens of one word, lowest rank first, of equal pairs the leftmost.

    tokens: the ids of the bytes of the word.

    The word is a linked list, so that a merge costs the same wherever it happens, and a heap holds
    the pairs that can merge. So n bytes take about n log n steps, also in a word of one letter
    repeated ten thousand times.
    """
    tokens = list(tokens)
    count = len(tokens)
    following = list(range(1, count + 1))
    preceding = list(range(-1, count - 1))

    def rank(left: int) -> int | None:
        if left < 0 or following[left] >= count:
            return None
        entry = merges.get((tokens[left], tokens[following[left]]))
        return None if entry is None else entry[0]

    queue = [(rank(left), left) for left in range(count) if rank(left) is not None]
    heapq.heapify(queue)
    while queue:
        queued_rank, left = heapq.heappop(queue)
        if rank(left) != queued_rank:
            continue  # an earlier merge took one of the two
        right = following[left]
        tokens[left], tokens[right] = merges[tokens[left], tokens[right]][1], -1
        following[left] = following[right]
        if following[left] < count:
            preceding[following[left]] = left
        for neighbour in (preceding[left], left):
            if rank(neighbour) is not None:
                heapq.heappush(queue, (rank(neighbour), neighbour))
    return [token for token in tokens if token != -1]
