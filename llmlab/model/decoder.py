"""The decoder: token ids in, logits for the next token out."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from llmlab.attention import attention_function
from llmlab.cache.base import KVCache
from llmlab.cache.mixed_batch import MixedBatch
from llmlab.config import ModelConfig
from llmlab.model.context import (
    ForwardContext,
    default_position_ids,
    make_context,
    make_mixed_context,
)
from llmlab.model.inputs import check_forward_inputs, check_ids_and_positions
from llmlab.model.layers import Block, make_norm


def _attention(choice: str | Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The attention function that is named or given."""
    if isinstance(choice, str):
        return attention_function(choice)
    if not callable(choice):
        raise TypeError(f"attention must be a function, or the name of one; got {choice!r}")
    return choice


def _table(rows: int, width: int) -> nn.Embedding:
    """A look-up table without numbers yet; `nn.Embedding` alone would draw some here."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


class DecoderModel(nn.Module):
    """A decoder-only transformer of any of the five families, randomly initialised.

    `attention` is the name of an attention function ("sdpa", "reference", "tiled", "flash"; see
    `llmlab.attention.attention_function`) or any function with the same arguments; all give the
    same numbers to rounding. "flash" needs Triton and has no gradients.

    Raises TypeError where `config` is no ModelConfig or `attention` no function, ValueError for an
    unknown name.

    Source: Radford et al. 2019 (GPT-2), section 2.3; Touvron et al. 2023 (LLaMA), section 2.2.
    """

    def __init__(self, config: ModelConfig, *, attention: str | Callable[..., Tensor] = "sdpa"):
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise TypeError(
                f"config must be a ModelConfig, got {type(config).__name__}; "
                "ModelConfig.from_hugging_face reads a Hugging Face config"
            )
        self.config = config
        attend = _attention(attention)
        self.token_embedding = _table(config.vocab_size, config.hidden_size)
        self.position_embedding = None
        if config.positions == "learned":
            self.position_embedding = _table(config.max_positions, config.hidden_size)
        self.blocks = nn.ModuleList(
            Block(config, layer, attention=attend) for layer in range(config.layers)
        )
        self.final_norm = make_norm(config, config.hidden_size)
        self.head = None  # tied: the token table is used once more
        if not config.tied_embeddings:
            self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Normal(0, 0.02), narrower for what adds to the residual stream (GPT-2, section 2.3).

        Every block adds twice; scaling by 1 / sqrt(2 * layers) keeps the sum of them all in bounds.
        """
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue  # shapes only: a checkpoint will bring the numbers
            if parameter.dim() == 2:
                adds = name.endswith(("attention.output.weight", "mlp.down.weight"))
                std = 0.02 / math.sqrt(2 * self.config.layers) if adds else 0.02
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        cache: KVCache | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        attention_mask: Bool[Tensor, "B S"] | Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each of `ids`.

        Args:
            cache: what was computed before; the new positions follow it and are committed to it.
            position_ids: where each token stands, for learned or rotary positions. By default
                tokens are counted, the cached ones included and padding left out.
            attention_mask: 1 for a real token and 0 for padding, over the cached and the new
                positions together: S = cache.length + T. None: all are real. Padding belongs on
                the left.

        A query that may attend to nothing, as padding on the left, gets zeros from attention.

        Raises ValueError for ids, positions, masks or a cache that do not fit this model, TypeError
        for those of another type or dtype; the cache is then as it was.
        """
        hidden = self.hidden_states(ids, cache, position_ids, attention_mask)  # [B, T, C]
        return self.logits(hidden)  # [B, T, V]

    def hidden_states(
        self,
        ids: Int[Tensor, "B T"],
        cache: KVCache | None = None,
        position_ids: Int[Tensor, "B T"] | None = None,
        attention_mask: Bool[Tensor, "B S"] | Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """The normalised vectors that `logits` turns into scores; arguments as for `forward`."""
        check_forward_inputs(self.config, ids, cache, position_ids, attention_mask)
        past = 0 if cache is None else cache.length
        if position_ids is None:
            position_ids = default_position_ids(ids, past, attention_mask)  # [B, T]
        x = self._embed(ids, position_ids)  # [B, T, C]
        context = make_context(self.config, x, position_ids, attention_mask, cache)
        hidden = self._through_blocks(x, context)
        if cache is not None:
            cache.advance(ids.shape[1])
        return hidden

    def mixed_hidden_states(
        self, ids: Int[Tensor, "N"], mixed_batch: MixedBatch
    ) -> Float[Tensor, "N C"]:
        """As `hidden_states`, for the new tokens of many sequences, laid end to end in `ids`.

        The mixed batch says where each token stands and what it may see, and stores the new keys
        and values in the blocks of the sequences. Raises ValueError for ids or positions that the
        model does not have, or that do not fit the batch.
        """
        positions = mixed_batch.position_ids  # [N]
        if ids.shape != positions.shape:
            raise ValueError(f"{len(ids)} ids for a batch of {len(positions)} tokens")
        check_ids_and_positions(self.config, ids[None], positions[None])
        x = self._embed(ids[None], positions[None])  # [1, N, C]
        return self._through_blocks(x, make_mixed_context(self.config, x, mixed_batch))[0]

    def _embed(
        self, ids: Int[Tensor, "B T"], position_ids: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T C"]:
        x = self.token_embedding(ids)  # [B, T, C]
        if self.position_embedding is not None:
            x = x + self.position_embedding(position_ids)
        return x

    def _through_blocks(
        self, x: Float[Tensor, "B T C"], context: ForwardContext
    ) -> Float[Tensor, "B T C"]:
        for block in self.blocks:
            x = block(x, context)
        return self.final_norm(x)

    def logits(self, hidden: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """Scores of every token of the vocabulary; decoding needs the last position's only."""
        table = self.token_embedding.weight if self.head is None else self.head.weight  # [V, C]
        return F.linear(hidden, table)  # [B, T, V]

    def num_parameters(self) -> int:
        """Trained numbers; a tied head is no extra one."""
        return sum(parameter.numel() for parameter in self.parameters())

    def set_attention(self, attention: str | Callable[..., Tensor]) -> None:
        """Makes every block use this attention function from now on (see the class)."""
        attend = _attention(attention)
        for block in self.blocks:
            block.attention.attend = attend
