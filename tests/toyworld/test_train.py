"""Training learns, resumes to the same weights, and exports what transformers loads."""

import json
from dataclasses import replace

import pytest
import torch

from llmlab.config import ModelConfig
from llmlab.model import load_model
from llmlab.tokenization import load_tokenizer
from llmlab.toyworld import export as export_module
from llmlab.toyworld.train import (
    Checkpoint,
    TrainingPlan,
    embedded_config,
    learning_rate,
    row_length,
    train,
    training_rows,
)

PLAN = TrainingPlan(
    steps=12,
    tokens_per_step=256,
    row_length=64,
    vocab_size=400,
    vocabulary_documents=150,
    warmup_steps=2,
    peak_learning_rate=1e-2,
    checkpoint_every=4,
)


def small(vocab_size: int) -> ModelConfig:
    return replace(
        embedded_config(vocab_size, bos_id=1, eos_id=2),
        hidden_size=32,
        layers=2,
        head_dim=8,
        intermediate_size=64,
        max_positions=96,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    losses = []
    folder = tmp_path_factory.mktemp("run")
    model, tokenizer = train(
        folder, plan=PLAN, config=small(400), on_step=lambda step, loss: losses.append(loss)
    )
    return folder, model, tokenizer, losses


def test_the_loss_falls(finished):
    *_, losses = finished
    assert len(losses) == PLAN.steps
    assert sum(losses[-3:]) / 3 < losses[0] - 0.4


def test_an_interrupted_run_ends_in_the_same_weights(finished, tmp_path):
    _, whole, _, losses = finished

    class Interrupted(Exception):
        pass

    def stop(step: int, loss: float) -> None:
        if step == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(tmp_path, plan=PLAN, config=small(400), on_step=stop)
    steps = []
    resumed, _ = train(
        tmp_path,
        plan=PLAN,
        config=small(400),
        on_step=lambda step, loss: steps.append((step, loss)),
    )
    assert [step for step, _ in steps] == list(range(4, PLAN.steps))
    assert [loss for _, loss in steps] == pytest.approx(losses[4:], abs=1e-5)
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_only_one_checkpoint_is_kept(finished):
    folder, *_ = finished
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-000012"]


def test_a_run_with_another_plan_is_not_mixed_in(finished):
    folder, *_ = finished
    with pytest.raises(ValueError, match="another plan"):
        train(folder, plan=replace(PLAN, steps=20), config=small(400))


def test_an_unfinished_checkpoint_is_not_taken(finished, tmp_path):
    _, model, *_ = finished
    (tmp_path / "unfinished").mkdir()
    optimizer = torch.optim.AdamW(model.parameters())
    assert Checkpoint(tmp_path, PLAN).load(model, optimizer) == 0


def test_batches_depend_on_seed_and_step_only(finished):
    *_, tokenizer, _ = finished
    first = training_rows(5, tokenizer=tokenizer, plan=PLAN, length=64)
    again = training_rows(5, tokenizer=tokenizer, plan=PLAN, length=64)
    other = training_rows(6, tokenizer=tokenizer, plan=PLAN, length=64)
    assert first.shape == (4, 64)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_schedules():
    plan = TrainingPlan()
    assert learning_rate(plan.warmup_steps, plan) == pytest.approx(plan.peak_learning_rate)
    assert learning_rate(plan.steps, plan) == pytest.approx(plan.peak_learning_rate / 50)
    assert row_length(0, plan=plan, max_positions=512) == 256
    assert row_length(plan.steps - 1, plan=plan, max_positions=512) == 512


def test_the_export_is_a_hugging_face_folder(finished, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    _, model, tokenizer, _ = finished
    monkeypatch.setattr(export_module, "MEASUREMENTS", (("english", 1, 2), ("chinese", 2, 2)))
    export_module.export(model, tokenizer, tmp_path, plan=PLAN)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| English | one question | 0 of 2 (0.0%) |" in card
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == 2

    text = "time flies 遥遥领先"
    ids = load_tokenizer(tmp_path).encode(text, add_special_tokens=True)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(text).input_ids == ids
    with torch.inference_mode():
        expected = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)(
            torch.tensor([ids])
        ).logits
        logits = load_model(tmp_path)(torch.tensor([ids]))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
