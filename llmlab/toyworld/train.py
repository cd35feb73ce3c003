"""Training of the embedded model, from nothing: corpus, vocabulary, weights, model card.

Every batch is made from the seed and the number of the step, so an interrupted run goes on where
its last checkpoint stands and sees exactly the data that it would have seen.
"""

import itertools
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from llmlab.config import ModelConfig
from llmlab.json_file import local_path, read_json
from llmlab.model import DecoderModel
from llmlab.tokenization import BPETokenizer
from llmlab.toyworld.corpus import (
    BEGIN,
    CHAT_TEMPLATE,
    END,
    SPECIAL_TOKENS,
    training_document,
    training_documents,
)


@dataclass(frozen=True)
class TrainingPlan:
    """Everything that decides the outcome. Raises ValueError for a value that cannot be."""

    steps: int = 2600
    tokens_per_step: int = 4096
    row_length: int = 256  # documents are packed into rows of this many tokens ...
    long_row_share: float = 0.2  # ... and of max_positions in the last fifth of the steps
    peak_learning_rate: float = 3e-3
    warmup_steps: int = 100
    weight_decay: float = 0.1
    gradient_norm: float = 1.0
    vocab_size: int = 1536
    vocabulary_documents: int = 40_000
    seed: int = 0
    checkpoint_every: int = 100

    def __post_init__(self):
        for field in fields(self):
            value, whole = getattr(self, field.name), field.type is int
            least = _LEAST.get(field.name, 1 if whole else 0)
            right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
            if not right or not least <= value < math.inf:
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"{field.name} must be {kind} from {least} on; got {value!r}")
            object.__setattr__(self, field.name, field.type(value))  # a NumPy number becomes plain
        if self.long_row_share > 1:
            raise ValueError(f"long_row_share must be at most 1; got {self.long_row_share}")


#: The least that some values of a plan may be; others: 1 where they are whole, else 0.
_LEAST = {"row_length": 2, "warmup_steps": 0, "seed": 0}


def embedded_config(vocab_size: int, *, bos_id: int, eos_id: int) -> ModelConfig:
    """A small Llama: grouped heads, rotary positions, RMS norm, gated MLP."""
    return ModelConfig(
        family="llama",
        vocab_size=vocab_size,
        hidden_size=128,
        layers=4,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate_size=512,
        max_positions=512,
        norm="rms",
        norm_epsilon=1e-5,
        activation="silu",
        positions="rotary",
        tied_embeddings=True,
        bos_id=bos_id,
        eos_ids=(eos_id,),
    )


def train_tokenizer(plan: TrainingPlan) -> BPETokenizer:
    """Byte-level BPE on the toy world's own text.

    Chinese is fed one character a line and numbers one digit a line: merges then never join two
    characters, so that 遥遥领先 is 遥, 遥, 领, 先 and every digit is a token.
    """
    documents = itertools.islice(training_documents(plan.seed), plan.vocabulary_documents)
    return BPETokenizer.train(
        (_spaced(text) for document in documents for text in _texts(document)),
        vocab_size=plan.vocab_size,
        special_tokens=SPECIAL_TOKENS,
        bos_token=BEGIN,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
    )


def _texts(document) -> Iterator[str]:
    yield document.text
    for turn in document.turns:
        yield from turn


def _spaced(text: str) -> str:
    return "".join(f"\n{c}\n" if c.isdigit() or "\u3000" <= c <= "\uffff" else c for c in text)


def row_length(step: int, *, plan: TrainingPlan, max_positions: int) -> int:
    """Short rows first, since they cost less; at the end the whole context, for every position."""
    long = step >= plan.steps * (1 - plan.long_row_share)
    return max_positions if long else min(plan.row_length, max_positions)


def training_rows(
    step: int, *, tokenizer: BPETokenizer, plan: TrainingPlan, length: int
) -> Int[Tensor, "B T"]:
    """The batch of one step: rows of whole documents, one after another, cut at `length` tokens."""
    rng = random.Random(f"{plan.seed}/{step}")
    rows = []
    for _ in range(max(1, plan.tokens_per_step // length)):
        row: list[int] = []
        while len(row) < length:
            row += (
                _repeated_ids(rng, tokenizer)
                if rng.random() < 0.03
                else training_document(rng).encode(tokenizer)
            )
        rows.append(row[:length])
    return torch.tensor(rows)


def _repeated_ids(rng: random.Random, tokenizer: BPETokenizer) -> list[int]:
    """Random tokens, then the same ones again: nothing but copying predicts the second half."""
    ids = [
        rng.randrange(len(SPECIAL_TOKENS), tokenizer.vocab_size) for _ in range(rng.randint(8, 40))
    ]
    return [tokenizer.token_to_id(BEGIN), *ids, *ids, tokenizer.token_to_id(END)]


def learning_rate(step: int, plan: TrainingPlan) -> float:
    """Linear warm-up, then half a cosine down to one fiftieth of the peak."""
    if step < plan.warmup_steps:
        return plan.peak_learning_rate * (step + 1) / plan.warmup_steps
    progress = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return plan.peak_learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def next_token_loss(model: DecoderModel, ids: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean cross entropy, in nats, of each token given those before it."""
    logits = model(ids[:, :-1])  # [B, T-1, V]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def make_optimizer(model: DecoderModel, plan: TrainingPlan) -> torch.optim.AdamW:
    """AdamW; only matrices decay."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.peak_learning_rate, betas=(0.9, 0.95))


_MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # what AdamW keeps for each parameter


class Checkpoint:
    """A run's state on disk: tensors as safetensors, numbers as JSON; replaced whole or not."""

    def __init__(self, folder: Path, plan: TrainingPlan):
        self.folder, self.plan = folder, plan

    def save(self, step: int, model: DecoderModel, optimizer: torch.optim.AdamW) -> None:
        """Write a new folder and name it last: an interruption leaves the one before it whole."""
        older = self._folders()
        weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
        moments = {
            f"{name}/{moment}": optimizer.state[p][moment].contiguous()
            for name, p in model.named_parameters()
            for moment in _MOMENTS
        }
        with _made_whole(self.folder / f"step-{step:06d}") as fresh:
            save_file(weights, fresh / "model.safetensors")
            save_file(moments, fresh / "optimizer.safetensors")
            _write_state(fresh, self.plan, step)
        for folder in older:
            shutil.rmtree(folder)

    def load(self, model: DecoderModel, optimizer: torch.optim.AdamW) -> int:
        """Restore the newest checkpoint; the number of steps done, 0 where there is none.

        Raises ValueError where it is of another plan or another model, or damaged.
        """
        if not self._folders():
            return 0
        newest = self._folders()[-1]
        step = _read_state(newest, self.plan)
        try:
            tensors = load_file(newest / "model.safetensors")
            tensors |= load_file(newest / "optimizer.safetensors")
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{newest} is damaged: {error}. {_REMEDY}") from None
        if {name: tensor.shape for name, tensor in tensors.items()} != _shapes(model):
            raise ValueError(f"{newest} is damaged, or of a model of another shape. {_REMEDY}")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(tensors[name])
                optimizer.state[parameter] = {
                    moment: tensors[f"{name}/{moment}"] for moment in _MOMENTS
                }
        return step

    def _folders(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


def _shapes(model: DecoderModel) -> dict[str, torch.Size]:
    """What a checkpoint of this model holds."""
    shapes = {}
    for name, parameter in model.named_parameters():
        shapes[name] = parameter.shape
        for moment in _MOMENTS:
            shapes[f"{name}/{moment}"] = torch.Size() if moment == "step" else parameter.shape
    return shapes


_REMEDY = "Delete it to make it anew, or give the run another folder."


@contextmanager
def _made_whole(folder: Path) -> Iterator[Path]:
    """An empty folder to fill; it gets its name last, so no interruption leaves half of it."""
    fresh = folder.parent / "unfinished"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    yield fresh
    os.replace(fresh, folder)


def _write_state(folder: Path, plan: TrainingPlan, step: int) -> None:
    (folder / "state.json").write_text(json.dumps({"step": step, "plan": asdict(plan)}))


def _read_state(folder: Path, plan: TrainingPlan) -> int:
    """The step at which the folder was written, known to be of this plan."""
    try:
        state = read_json(folder / "state.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} is damaged: {error}. {_REMEDY}") from None
    if state.get("plan") != asdict(plan):
        raise ValueError(f"{folder} is of a run with another plan. {_REMEDY}")
    step = state.get("step")
    if not isinstance(step, int) or not 0 <= step <= plan.steps:
        raise ValueError(f"{folder} is damaged: its step is {step!r}. {_REMEDY}")
    return step


def train(
    run_folder: str | Path,
    *,
    plan: TrainingPlan | None = None,
    config: ModelConfig | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> tuple[DecoderModel, BPETokenizer]:
    """Train, or go on training, and give the model and its tokenizer.

    Args:
        run_folder: where vocabulary and checkpoints are kept; an interrupted run goes on from
            there.
        plan: what to do; the default is how the embedded model was made.
        config: the model's shape; None: the embedded model's.
        on_step: called with the step and its loss in nats.

    Raises ValueError where the folder is of a run with another plan or model, or damaged.
    """
    plan = plan or TrainingPlan()
    run_folder = local_path(run_folder)
    run_folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer_of_run(run_folder, plan)
    ids = {"bos_id": tokenizer.token_to_id(BEGIN), "eos_id": tokenizer.token_to_id(END)}
    config = config or embedded_config(tokenizer.vocab_size, **ids)
    torch.manual_seed(plan.seed)
    model = DecoderModel(config).train()
    optimizer = make_optimizer(model, plan)
    checkpoint = Checkpoint(run_folder / "checkpoints", plan)
    first = checkpoint.load(model, optimizer)

    bar = tqdm(
        range(first, plan.steps),
        initial=first,
        total=plan.steps,
        desc="training",
        unit="step",
    )
    for step in bar:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, plan)
        length = row_length(step, plan=plan, max_positions=config.max_positions)
        rows = training_rows(step, tokenizer=tokenizer, plan=plan, length=length)
        loss = next_token_loss(model, rows)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), plan.gradient_norm)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        if on_step is not None:
            on_step(step, loss.item())
        if (step + 1) % plan.checkpoint_every == 0 or step + 1 == plan.steps:
            checkpoint.save(step + 1, model, optimizer)
    return model.eval(), tokenizer


def _tokenizer_of_run(run_folder: Path, plan: TrainingPlan) -> BPETokenizer:
    """The run's vocabulary: made once, then read again."""
    folder = run_folder / "vocabulary"
    if not folder.exists():
        print("making the vocabulary ...")
        with _made_whole(folder) as fresh:
            train_tokenizer(plan).save_pretrained(fresh)
            _write_state(fresh, plan, 0)
    _read_state(folder, plan)
    return BPETokenizer.from_file(folder / "tokenizer.json")
