"""Faults that hard use of the package once brought to light, each with what must happen instead."""

import json
from dataclasses import replace

import jaxtyping
import numpy
import pytest
import torch

from llmlab.cache import DynamicKVCache, StaticKVCache, kv_cache_bytes
from llmlab.cli import main
from llmlab.config import ModelConfig
from llmlab.decoding import Chat, ModelText, Sampler, generate, keep_top_k, keep_top_p
from llmlab.embedding import token_embedding
from llmlab.model import DecoderModel, load_model, save_model
from llmlab.tokenization import BPETokenizer, WordPieceTokenizer, load_tokenizer


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


@pytest.fixture
def plain_errors():
    """Without the test run's shape checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


IDS = torch.tensor([[1, 2, 3]])
NO_TENSORS = [[[1, 2, 3]], None, numpy.array([[1, 2, 3]]), "text"]
NO_WHOLE_NUMBERS = [IDS.to(dtype) for dtype in (torch.uint8, torch.int8, torch.bool, torch.float32)]


@pytest.mark.usefixtures("plain_errors")
class TestWrongKinds:
    """What is of the wrong kind is told as that, and not by an error from deep inside."""

    @pytest.mark.parametrize("ids", NO_TENSORS)
    def test_ids_that_are_no_tensor(self, config, ids):
        with pytest.raises(TypeError, match="ids must be a tensor of whole numbers, not"):
            DecoderModel(config)(ids)
        with pytest.raises(TypeError, match="ids must be a tensor of whole numbers, not"):
            token_embedding(ids, torch.randn(5, 2))

    @pytest.mark.parametrize("ids", NO_WHOLE_NUMBERS)
    def test_ids_of_another_dtype(self, config, ids):
        with pytest.raises(TypeError, match=rf"{ids.dtype}: convert with \.long\(\)"):
            DecoderModel(config)(ids)
        with pytest.raises(TypeError, match=rf"{ids.dtype}: convert with \.long\(\)"):
            token_embedding(ids, torch.randn(5, 2))

    def test_a_table_that_is_a_layer(self):
        with pytest.raises(TypeError, match="such as the weight of an embedding layer"):
            token_embedding(IDS, torch.nn.Embedding(5, 2))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            *(({"position_ids": ids}, "position_ids must be a tensor") for ids in NO_TENSORS[2:]),
            *(({"position_ids": ids}, r"\.long\(\)") for ids in NO_WHOLE_NUMBERS),
            ({"attention_mask": [[1, 1, 1]]}, "attention_mask must be a tensor"),
            ({"attention_mask": torch.zeros(1, 3)}, "booleans or whole numbers"),  # additive
            ({"cache": "static"}, "cache must be a KVCache, .* got str"),
        ],
    )
    def test_what_goes_with_the_ids(self, config, options, message):
        with pytest.raises(TypeError, match=message):
            DecoderModel(config)(IDS, **options)

    def test_models_and_caches_of_something_else(self, config):
        with pytest.raises(TypeError, match="from_hugging_face"):
            DecoderModel(config.to_hugging_face())
        with pytest.raises(TypeError, match="attention must be a function"):
            DecoderModel(config, attention=5)
        with pytest.raises(TypeError, match="attention must be a function"):
            DecoderModel(config).set_attention(None)
        with pytest.raises(TypeError, match="config must be a ModelConfig"):
            DynamicKVCache(config.to_hugging_face())
        for sizes in ({"max_length": 4.0}, {"max_length": True}, {"batch_size": "1"}):
            with pytest.raises(TypeError, match="must be a whole number"):
                StaticKVCache(config, **{"batch_size": 1, "max_length": 4} | sizes)
        with pytest.raises(TypeError, match=r"such as torch\.bfloat16; got 'bf16'"):
            StaticKVCache(config, batch_size=1, max_length=4, dtype="bf16")
        for model in (None, "gpt2", torch.nn.Linear(2, 2)):
            with pytest.raises(TypeError, match=r"model must be a DecoderModel.*load_model\(\)"):
                generate(model, [1], 1)

    def test_whole_numbers_of_numpy(self, config):
        three = numpy.int64(3)
        cache = StaticKVCache(config, batch_size=numpy.int32(1), max_length=three)
        assert type(cache.capacity) is type(cache.batch_size) is int
        size = kv_cache_bytes(config, length=three)
        assert (size, type(size)) == (kv_cache_bytes(config, length=3), int)
        logits = torch.tensor([[3.0, 1.0, 2.0, 0.0, -1.0]])
        assert keep_top_k(logits, three).isfinite().sum() == 3
        assert repr(Sampler(top_k=three, seed=three)) == repr(Sampler(top_k=3, seed=3))
        assert repr(Sampler(top_p=numpy.float32(0.5), seed=1)) == repr(Sampler(top_p=0.5, seed=1))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dtype": "bf16"}, "torch.bfloat16; got 'bf16'"),
            ({"dtype": 2}, "got 2"),
            ({"length": 3.5}, "length must be a whole number"),
            ({"batch_size": "2"}, "batch_size must be a whole number"),
        ],
    )
    def test_sizes_of_a_cache(self, config, options, message):
        with pytest.raises(TypeError, match=message):
            kv_cache_bytes(config, **{"length": 1} | options)

    @pytest.mark.parametrize(
        "options",
        [
            *({"temperature": value} for value in ("1", None, True)),
            *({"top_p": value} for value in ("1", True, [0.5])),
            *({"top_k": value} for value in ("1", True, 2.0)),
        ],
    )
    def test_samplers(self, options):
        with pytest.raises(TypeError, match=f"{next(iter(options))} must be a .*number, got"):
            Sampler(**options)

    @pytest.mark.parametrize("ids", [{1, 2}, {"input_ids": [1, 2]}])
    def test_ids_without_an_order(self, config, ids):
        with pytest.raises(TypeError, match="ids must be a list of token ids or a tensor, got"):
            generate(DecoderModel(config), ids, 1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tokenizer": None}, "tokenizer must be a BPETokenizer.*got NoneType"),
            ({"tokenizer": WordPieceTokenizer.from_vocab({"[UNK]": 0})}, "WordPieceTokenizer"),
            ({"sampler": "greedy"}, "sampler must be a function"),
            ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
            ({"max_length": "9"}, "max_length must be a whole number"),
            ({"stop_ids": 2}, "stop_ids must be a collection"),
            ({"stop_ids": ["</s>"]}, "a stop id must be a whole number"),
            ({"system": 5}, "must be a str"),
        ],
    )
    def test_chats_fail_at_once(self, options, message):
        with pytest.raises(TypeError, match=message):
            Chat(**{"model": load_model(), "tokenizer": load_tokenizer()} | options)
        with pytest.raises(TypeError, match="model must be"):
            Chat(None, load_tokenizer())
        with pytest.raises(TypeError, match="on_text must be a function"):
            Chat(load_model(), load_tokenizer()).ask("Hello", on_text=[])


HUGGING_FACE = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"head_dim": 0}, ValueError, "head_dim must be at least 1, got 0"),
        ({"num_key_value_heads": 0}, ValueError, "num_key_value_heads must be at least 1"),
        ({"num_attention_heads": 0}, ValueError, "num_attention_heads must be at least 1"),
        ({"num_hidden_layers": -2}, ValueError, "num_hidden_layers must be at least 1"),
        ({"num_hidden_layers": "2"}, TypeError, "num_hidden_layers must be a whole number"),
        ({"hidden_size": 18}, ValueError, "4 heads do not divide a width of 18"),
    ],
)
def test_a_cache_of_sizes_that_cannot_be(change, error, message):
    assert kv_cache_bytes(HUGGING_FACE | {"head_dim": None}, length=1) == 2 * 2 * 4 * 4 * 2
    with pytest.raises(error, match=message):
        kv_cache_bytes(HUGGING_FACE | change, length=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cache", [None, "static", "dynamic"])
def test_autocast_around_a_rotary_model(dtype, cache):
    model, tokenizer = load_model(), load_tokenizer()
    ids = tokenizer.encode("time flies", add_special_tokens=True)
    with torch.autocast("cpu", dtype=dtype):
        logits = model(torch.tensor([ids]))
        answer = generate(model, ids, 4, cache=cache).ids
        reply = Chat(model, tokenizer).ask("Where is Peru?")
    assert logits.dtype == dtype
    assert tokenizer.decode(answer) == " like an arrow."
    assert reply.text == "Peru is in South America."


def test_a_key_cache_of_fp64_under_autocast(config):
    """Autocast leaves fp64 alone, and so does what the cache is made for."""
    model = DecoderModel(config).double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert len(generate(model, [1, 2], 2, cache="static").ids) == 2


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_changed_by_a_callback_is_told(config, kind):
    model, cache = DecoderModel(config), DynamicKVCache(config)
    if kind == "static":
        cache = StaticKVCache(config, batch_size=1, max_length=20)
    for change in (lambda _: generate(model, [4], 1, cache=cache), lambda _: cache.truncate(1)):
        with pytest.raises(RuntimeError, match="changed the cache of this run"):
            generate(model, [1, 2, 3], 4, cache=cache, on_token=change)
        cache.reset()
    whole = generate(model, [1, 2, 3], 4)
    other = generate(model, [1, 2, 3], 4, on_token=lambda _: generate(model, [4], 1))
    assert other.ids == whole.ids  # a cache of its own is no harm


def test_a_chat_refuses_a_question_within_an_answer():
    chat = Chat(load_model(), load_tokenizer())
    first = chat.ask("Where is Peru?")
    messages = chat.messages
    for change in (lambda _: chat.ask("Where is Cuba?"), lambda _: chat.reset()):
        with pytest.raises(RuntimeError, match="in the midst of an answer"):
            chat.ask("And Cuba?", on_text=change)
        assert chat.messages == messages
    chat.reset()
    assert chat.ask("Where is Peru?").text == first.text


def test_a_chat_without_room_for_a_question_fails_at_once():
    with pytest.raises(ValueError, match=r"room for 3 .*longer max_length"):
        Chat(load_model(), load_tokenizer(), max_length=3)
    with pytest.raises(ValueError, match="no chat template"):
        Chat(load_model(), BPETokenizer.train(["a"], 256))
    with pytest.raises(ValueError, match="roles user and assistant"):
        Chat(load_model(), load_tokenizer(), system="Be brief.")


def test_a_model_may_know_more_ids_than_its_tokenizer(config, tmp_path, capsys):
    """Rows beyond the tokenizer's ids have no text, and the answer goes on."""
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer = BPETokenizer.train(["a b c"], 258, ["<s>", "</s>"], chat_template=template)
    letter = tokenizer.encode("b")[0]
    choices = iter([letter, 299, 258, letter] * 2)
    model = DecoderModel(config)

    def sampler(logits):
        return torch.tensor([next(choices)])

    pieces = []
    reply = Chat(model, tokenizer, sampler=sampler, max_new_tokens=4).ask(
        "a", on_text=pieces.append
    )
    assert (reply.text, "".join(pieces)) == ("bb", "bb")
    assert reply.generation.ids == [letter, 299, 258, letter]
    text = ModelText(tokenizer)
    first, *rest = tokenizer.encode("遥")  # one character in three tokens
    assert [text.push(first), text.push(299), *map(text.push, rest)] == ["", "", "", "遥"]

    with torch.no_grad():  # only rows beyond the tokenizer can win
        model.head.weight[:258] = 0
        model.head.weight[258:] *= 100
    save_model(model, tmp_path, tokenizer=tokenizer)
    assert main(["generate", "a", "--model", str(tmp_path), "--max-new-tokens", "8"]) == 0
    assert capsys.readouterr().out == "a\n"

    with pytest.raises(ValueError, match="ids up to 257 and the model knows those below 257"):
        Chat(DecoderModel(replace(config, vocab_size=257)), tokenizer)


@pytest.mark.parametrize("k", [0, -1])
def test_no_token_at_all_cannot_be_kept(k):
    with pytest.raises(ValueError, match="k must be at least 1"):
        keep_top_k(torch.zeros(1, 4), k)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.5, float("nan")])
def test_shares_that_cannot_be(p):
    with pytest.raises(ValueError, match="p must be above 0 and at most 1"):
        keep_top_p(torch.zeros(1, 4), p)


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
