"""Training learns, resumes to the same weights, and exports what transformers loads."""

import json
import shutil
from dataclasses import replace

import jaxtyping
import numpy
import pytest
import torch

from llmlab.config import ModelConfig
from llmlab.model import load_model
from llmlab.tokenization import BPETokenizer, load_tokenizer
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


@pytest.fixture
def plain_errors():
    """Without the test run's type checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("state.json", None, "damaged: there is no file"),
        ("state.json", b"{", "damaged: .*not valid JSON"),
        ("state.json", b"{}", "another plan"),
        ("state.json", ("step", 13), "damaged: its step is 13"),
        ("state.json", ("step", -1), "damaged: its step is -1"),
        ("state.json", ("step", "12"), "damaged: its step is '12'"),
        ("model.safetensors", None, "damaged: "),
        ("model.safetensors", b"", "damaged: "),
        ("optimizer.safetensors", 1000, "damaged: "),
        ("optimizer.safetensors", "model.safetensors", "damaged, or of a model of another shape"),
    ],
)
def test_a_damaged_checkpoint_is_told(finished, tmp_path, file, content, message):
    """None: no such file; a pair: another value; a number: cut off there; a name: that file."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "checkpoints" / "step-000012" / file
    if content is None:
        path.unlink()
    elif isinstance(content, tuple):
        path.write_text(json.dumps(json.loads(path.read_text()) | dict([content])))
    elif isinstance(content, int):
        path.write_bytes(path.read_bytes()[:content])
    else:
        path.write_bytes(
            content if isinstance(content, bytes) else (path.parent / content).read_bytes()
        )
    with pytest.raises(ValueError, match=rf"{path.parent} is .*{message}(?s:.*)Delete it"):
        train(tmp_path, plan=PLAN, config=small(400))


def test_a_checkpoint_of_another_model_is_told(finished):
    with pytest.raises(ValueError, match="of a model of another shape"):
        train(finished[0], plan=PLAN, config=replace(small(400), intermediate_size=60))


def test_a_vocabulary_is_whole_and_of_its_plan(finished, tmp_path, monkeypatch, capsys):
    shutil.copytree(finished[0] / "vocabulary", tmp_path / "vocabulary")
    with pytest.raises(ValueError, match="vocabulary is of a run with another plan"):
        train(tmp_path, plan=replace(PLAN, seed=1), config=small(400))
    (tmp_path / "vocabulary" / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not valid JSON"):
        train(tmp_path, plan=PLAN, config=small(400))

    def interrupt(tokenizer, folder):
        (folder / "tokenizer.json").write_text("{")
        raise KeyboardInterrupt

    shutil.rmtree(tmp_path / "vocabulary")
    monkeypatch.setattr(BPETokenizer, "save_pretrained", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, plan=PLAN, config=small(400))
    monkeypatch.undo()
    _, tokenizer = train(tmp_path, plan=replace(PLAN, steps=1), config=small(400))
    assert tokenizer.encode("time flies") == finished[2].encode("time flies")
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary", "checkpoints"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number from 1 on; got 0"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"row_length": 1}, "row_length must be a whole number from 2 on"),
        ({"warmup_steps": -1}, "warmup_steps must be a whole number from 0 on"),
        ({"checkpoint_every": 0}, "checkpoint_every must"),
        ({"peak_learning_rate": float("nan")}, "peak_learning_rate must be a number from 0 on"),
        ({"gradient_norm": float("inf")}, "gradient_norm must be a number"),
        ({"weight_decay": "0.1"}, "weight_decay must be a number"),
        ({"long_row_share": 1.5}, "long_row_share must be at most 1"),
        ({"seed": -1}, "seed must be a whole number from 0 on"),
    ],
)
@pytest.mark.usefixtures("plain_errors")
def test_a_plan_that_cannot_be(change, message):
    assert replace(PLAN, warmup_steps=0, weight_decay=0) == replace(
        PLAN, warmup_steps=numpy.int64(0), weight_decay=0.0
    )
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **change)


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
