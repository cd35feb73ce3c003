"""Launches of Triton kernels as operations of PyTorch's own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def forward_only(outputs: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function that launches kernels one operation to PyTorch, which looks not inside.

    So `torch.compile` calls it as it is, without following Triton's interpreter line by line. And
    `backward` through it is an error: kernels leave no trace for autograd, so that weights would
    silently get wrong gradients.

    Args:
        outputs: takes the same arguments and gives empty tensors in the shape of the result, by
            which `torch.compile` plans.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = f"llmlab::{function.__name__.strip('_')}"
        operation = torch.library.custom_op(name, function, mutates_args=())
        operation.register_fake(outputs)
        operation.register_autograd(_no_backward)
        return operation

    return register


def _no_backward(context: Any, *gradients: Tensor) -> None:
    raise NotImplementedError(
        "the Triton kernels compute attention but not its gradients: for training use another "
        'attention, such as "sdpa" or "tiled"'
    )
