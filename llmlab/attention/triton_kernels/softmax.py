"""The online softmax of the kernels, in powers of two: the scores already have log2(e) in them."""

import math

from llmlab.attention.triton_runtime import import_triton

triton, tl = import_triton()
LOG_2 = tl.constexpr(math.log(2))


@triton.jit
def online_softmax_step(
    scores,  # [R, C]: one more block, -inf where masked
    maximum,  # [R]: of each row's scores so far, -inf at first
    total,  # [R]: of each row's weights so far, 0 at first
):
    """The new maximum and total, by how much to rescale what was summed before, and the weights.

    What was summed under the old maximum is too large by the same factor, so one product mends it.
    """
    new_maximum = tl.maximum(maximum, tl.max(scores, axis=1))
    # A row that has seen nothing yet has the maximum -inf, and -inf minus -inf is no number.
    reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    rescale = tl.exp2(maximum - reference)  # [R]
    weights = tl.exp2(scores - reference[:, None])  # [R, C]
    return new_maximum, total * rescale + tl.sum(weights, axis=1), rescale, weights


@triton.jit
def log_sum_exp(maximum, total):
    """Of each row, to the base e."""
    return (maximum + tl.log2(total)) * LOG_2
