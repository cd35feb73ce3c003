"""Faults that hard use of the package once brought to light, each with what must happen instead."""

import json

import pytest
import torch

from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.cli import main
from llmlab.config import ModelConfig
from llmlab.decoding import Sampler, generate
from llmlab.model import DecoderModel, load_model, save_model
from llmlab.tokenization import BPETokenizer, load_tokenizer


@pytest.fixture
def config() -> ModelConfig:
    return ModelConfig(
        family="llama",
        vocab_size=300,
        hidden_size=16,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_positions=32,
        norm="rms",
        norm_epsilon=1e-5,
        activation="silu",
        positions="rotary",
    )


def test_a_head_of_its_own_is_not_thrown_away(config, tmp_path):
    save_model(DecoderModel(config), tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["tie_word_embeddings"] = True
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="tie_word_embeddings to false"):
        load_model(tmp_path)
    settings["tie_word_embeddings"] = "false"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="true or false"):
        load_model(tmp_path)


def test_a_saved_tokenizer_keeps_its_template(config, tmp_path):
    tokenizer = BPETokenizer.train(
        ["a b c"], 262, ["<s>"], bos_token="<s>", chat_template="{{ messages[0]['content'] }}"
    )
    save_model(DecoderModel(config), tmp_path, tokenizer=tokenizer)
    again = load_tokenizer(tmp_path)
    assert again.bos_id == tokenizer.bos_id
    assert again.apply_chat_template([{"role": "user", "content": "b"}]) == tokenizer.encode("b")
    with pytest.raises(TypeError, match="cannot save itself"):
        save_model(DecoderModel(config), tmp_path / "other", tokenizer=object())
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_refuses_lengths_that_are_not_whole(config, kind):
    model = DecoderModel(config).eval()
    cache = DynamicKVCache(config)
    if kind == "static":
        cache = StaticKVCache(config, batch_size=1, max_length=8)
    with torch.inference_mode():
        model(torch.tensor([[1, 2, 3]]), cache=cache)
        for call in (cache.truncate, cache.advance):
            with pytest.raises(TypeError):
                call(1.5)
        assert cache.length == 3
        model(torch.tensor([[4]]), cache=cache)
    assert cache.length == 4


def test_a_dynamic_cache_is_as_it_was_after_a_first_forward_that_failed(config):
    model, cache = DecoderModel(config).eval(), DynamicKVCache(config)

    def interrupt(*_):
        raise KeyboardInterrupt

    hook = model.blocks[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        generate(model, [1, 2, 3], 2, cache=cache)
    hook.remove()
    generation = generate(model, [[1, 2], [3, 4]], 2, cache=cache)
    assert generation.ids == generate(model, [[1, 2], [3, 4]], 2, cache=None).ids


def test_a_temperature_next_to_zero_is_greedy():
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    assert Sampler(temperature=1e-50, seed=0)(logits).tolist() == [1]


def test_logits_that_are_no_numbers_are_told(config):
    model = DecoderModel(config)
    with torch.no_grad():
        model.final_norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        generate(model, [1, 2], 2)


def test_training_hears_of_a_bad_output_before_the_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    options = ["--run", str(tmp_path / "run"), "--output", str(tmp_path / "file"), "--steps", "1"]
    assert main(["train", *options]) == 1
    assert not (tmp_path / "run").exists()


def test_a_saved_model_can_be_read_by_others(config, tmp_path):
    save_model(DecoderModel(config), tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o444 == 0o444
