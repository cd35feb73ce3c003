"""What must hold of a decoder whatever its weights: causality, caches, padding, checked inputs."""

import jaxtyping
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_tools import FAMILIES, VOCAB_SIZE, random_ids, small_config, small_model

from llmlab.attention import reference_attention, sdpa_attention
from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.config import ModelConfig
from llmlab.model import DecoderModel

few = settings(max_examples=25, deadline=None, derandomize=True)
every_family = pytest.mark.parametrize("family", FAMILIES)
MODELS = {family: small_model(family) for family in FAMILIES}  # mistral has a window of 5


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def plain_errors():
    """Without the test run's shape checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def make_cache(kind, model, batch, length):
    if kind == "dynamic":
        return DynamicKVCache(model.config)
    return StaticKVCache(model.config, batch_size=batch, max_length=length, dtype=torch.float64)


@few
@given(data=st.data())
def test_fed_in_pieces_equals_fed_at_once(data):
    model = MODELS[data.draw(st.sampled_from(FAMILIES))]
    batch, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 20))
    ids = random_ids(batch, length)
    mask = None
    if data.draw(st.booleans()):
        padding = [data.draw(st.integers(0, length - 1)) for _ in range(batch)]
        mask = torch.arange(length)[None] >= torch.tensor(padding)[:, None]
    wanted = model(ids, attention_mask=mask)
    cache = make_cache(data.draw(st.sampled_from(("dynamic", "static"))), model, batch, 20)
    start = 0
    while start < length:
        end = data.draw(st.integers(start + 1, length))
        seen = None if mask is None else mask[:, :end]
        piece = model(ids[:, start:end], cache, attention_mask=seen)
        torch.testing.assert_close(piece, wanted[:, start:end], atol=1e-9, rtol=0)
        assert cache.length == end
        start = end


@every_family
def test_the_future_does_not_matter(family):
    ids = random_ids(1, 12)
    other = ids.clone()
    other[0, 7] = (ids[0, 7] + 1) % VOCAB_SIZE
    before, after = MODELS[family](ids), MODELS[family](other)
    assert torch.equal(before[:, :7], after[:, :7])
    assert ((before - after)[:, 7:].abs().amax(-1) > 1e-6).all()


@every_family
def test_rows_of_a_batch_do_not_mix(family):
    ids = random_ids(3, 9)
    together = MODELS[family](ids)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], MODELS[family](ids[row : row + 1]))


@every_family
@pytest.mark.parametrize("dtype", [torch.long, torch.bool])
def test_a_padded_row_equals_the_row_alone(family, dtype):
    ids = random_ids(2, 5)
    lengths = (2, 5)
    mask = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], dtype=dtype)
    padded = MODELS[family](ids, attention_mask=mask)
    assert padded.isfinite().all()
    for row, length in enumerate(lengths):
        alone = MODELS[family](ids[row : row + 1, -length:])
        torch.testing.assert_close(padded[row : row + 1, -length:], alone)


def test_without_position_ids_of_its_own_a_padded_row_is_wrong():
    model, ids = MODELS["gpt2"], random_ids(1, 8)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    slots = torch.arange(8)[None]
    wrong = model(ids, attention_mask=mask, position_ids=slots)[:, 3:]
    assert (wrong - model(ids[:, 3:])).abs().max() > 0.1


def test_a_sliding_window_forgets():
    model = small_model("mistral", num_hidden_layers=1)  # one layer: no detour over other tokens
    ids = random_ids(1, 12)
    other = ids.clone()
    other[0, 3] = (ids[0, 3] + 1) % VOCAB_SIZE
    changed = (model(ids) - model(other)).abs().amax(-1)[0] > 1e-9
    assert changed.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]  # a window of 5


def test_position_ids_can_be_given():
    for family in ("gpt2", "llama"):
        model, ids = MODELS[family], random_ids(2, 6)
        counted = torch.arange(6).expand(2, 6)
        assert torch.equal(model(ids, position_ids=counted), model(ids))
    shifted = torch.arange(6).expand(2, 6) + 9  # rotary positions: only distances count
    torch.testing.assert_close(
        MODELS["llama"](random_ids(2, 6), position_ids=shifted),
        MODELS["llama"](random_ids(2, 6)),
        atol=1e-4,
        rtol=0,
    )
    spread = torch.arange(6).expand(2, 6) * 2
    for family in ("gpt2", "llama"):
        ids = random_ids(2, 6)
        moved = MODELS[family](ids, position_ids=spread)
        assert (moved - MODELS[family](ids)).abs().max() > 0.01


def test_one_token_after_a_cache_needs_no_mask_and_is_projected_alone():
    seen = []

    def spy(q, k, v, *, causal, mask):
        seen.append((q.shape[2], k.shape[2], mask))
        return sdpa_attention(q, k, v, causal=causal, mask=mask)

    model = small_model("llama")
    model.set_attention(spy)
    cache = DynamicKVCache(model.config)
    model(random_ids(1, 6), cache)
    model(random_ids(1, 1), cache)
    assert seen == [(6, 6, None)] * 3 + [(1, 7, None)] * 3


def test_attention_is_chosen_by_name_or_given():
    for attention in ("sdpa", "reference", reference_attention):
        model = DecoderModel(small_config(), attention=attention)
        assert {block.attention.attend for block in model.blocks} <= {
            sdpa_attention,
            reference_attention,
        }
    assert model.blocks[0].attention.attend is reference_attention
    with pytest.raises(ValueError, match=r"no attention named 'quick'"):
        DecoderModel(small_config(), attention="quick")


def test_logits_are_made_of_the_hidden_states():
    model, ids = MODELS["qwen2"], random_ids(2, 5)
    hidden = model.hidden_states(ids)
    assert hidden.shape == (2, 5, 32)
    torch.testing.assert_close(model.logits(hidden[:, -1:]), model(ids)[:, -1:])


# Published parameter counts.
GPT2_SMALL = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
}
LLAMA_3_1_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
QWEN2_5_05B = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("published", "count"),
    [(GPT2_SMALL, 124_439_808), (LLAMA_3_1_8B, 8_030_261_248), (QWEN2_5_05B, 494_032_768)],
)
def test_published_parameter_counts(published, count):
    with torch.device("meta"):
        model = DecoderModel(ModelConfig.from_hugging_face(published))
    assert model.num_parameters() == count


def test_initialisation():
    torch.manual_seed(0)
    model = DecoderModel(small_config("llama", hidden_size=256, num_hidden_layers=8))
    block = model.blocks[0]
    assert float(block.attention.query_key_value.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert float(block.mlp.down.weight.std()) == pytest.approx(0.02 / 4, rel=0.05)
    assert float(block.attention.output.weight.std()) == pytest.approx(0.02 / 4, rel=0.05)
    assert float(model.token_embedding.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert (block.attention_norm.weight == 1).all()
    gpt2 = DecoderModel(small_config("gpt2"))
    assert (gpt2.blocks[0].mlp.up.bias == 0).all()
    assert float(gpt2.position_embedding.weight.std()) == pytest.approx(0.02, rel=0.1)


@every_family
def test_every_parameter_learns(family):
    with torch.enable_grad():
        model = small_model(family, dtype=torch.float32)
        ids = random_ids(2, 12)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        losses = []
        for _ in range(12):
            logits = model(ids)[:, :-1].flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            idle = [name for name, p in model.named_parameters() if p.grad is None]
            assert not idle
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@every_family
def test_autocast_gives_the_same_to_its_rounding(family):
    """As near to fp32 as a model in bf16 is, though fp32 and bf16 then meet in every layer."""
    model, ids = small_model(family).float(), random_ids(2, 9)
    wanted = model(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    assert logits.dtype == torch.bfloat16
    in_bf16 = small_model(family).bfloat16()(ids)
    assert (logits - wanted).norm() < 1.5 * (in_bf16 - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.usefixtures("plain_errors")
class TestErrors:
    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (torch.zeros(1, 0, dtype=torch.long), "at least one token"),
            (torch.zeros(0, 3, dtype=torch.long), "at least one token"),
            (torch.zeros(3, dtype=torch.long), r"\[batch, length\]"),
            (torch.tensor([[0, VOCAB_SIZE]]), r"0 \.\. 96.*got 0 \.\. 97.*tokenizer"),
            (torch.tensor([[-1, 3]]), r"got -1 \.\. 3"),
            (torch.zeros(1, 65, dtype=torch.long), "65 positions .*context of 64"),
        ],
    )
    def test_ids(self, ids, message):
        with pytest.raises(ValueError, match=message):
            MODELS["llama"](ids)

    def test_ids_that_are_no_whole_numbers(self):
        with pytest.raises(TypeError, match=r"\.long\(\)"):
            MODELS["llama"](torch.zeros(1, 3))

    @pytest.mark.parametrize("family", ["gpt2", "llama"])
    def test_past_the_context(self, family):
        model = MODELS[family]
        cache = DynamicKVCache(model.config)
        model(random_ids(1, 64), cache)
        with pytest.raises(ValueError, match=r"65 positions \(64 cached and 1 new"):
            model(random_ids(1, 1), cache)
        assert cache.length == 64

    def test_mask_of_the_new_positions_only(self):
        model = MODELS["llama"]
        cache = DynamicKVCache(model.config)
        model(random_ids(1, 4), cache)
        with pytest.raises(ValueError, match=r"cached and the new positions, \[1, 6\]"):
            model(random_ids(1, 2), cache, attention_mask=torch.ones(1, 2, dtype=torch.long))
        assert cache.length == 4

    def test_additive_mask(self):
        with pytest.raises(ValueError, match="1 for a real token"):
            MODELS["llama"](random_ids(1, 2), attention_mask=torch.tensor([[-1, 0]]))

    @pytest.mark.parametrize("position_ids", [[[0, 1]], [[0, 1, 64]], [[-1, 0, 1]]])
    def test_position_ids(self, position_ids):
        with pytest.raises(ValueError, match="position_ids must"):
            MODELS["gpt2"](random_ids(1, 3), position_ids=torch.tensor(position_ids))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_hidden_layers": 2}, "layers is 2, 3 is needed"),
            ({"num_key_value_heads": 4}, "kv_heads is 4, 2 is needed"),
            ({"head_dim": 16}, "head_dim is 16, 8 is needed"),
        ],
    )
    @pytest.mark.parametrize("kind", ["dynamic", "static"])
    def test_the_cache_of_another_model(self, kind, changes, message):
        other = small_model("llama", **changes)
        cache = make_cache(kind, other, 1, 9)
        with pytest.raises(ValueError, match=message):
            MODELS["llama"](random_ids(1, 3), cache)
        assert cache.length == 0

    def test_the_cache_of_another_batch(self):
        cache = make_cache("static", MODELS["llama"], 2, 9)
        with pytest.raises(ValueError, match="batch_size is 2, 3 is needed"):
            MODELS["llama"](random_ids(3, 3), cache)

    def test_a_cache_of_another_dtype(self):
        cache = StaticKVCache(MODELS["llama"].config, batch_size=1, max_length=9)
        with pytest.raises(ValueError, match=r"dtype is torch\.float64"):
            MODELS["llama"](random_ids(1, 3), cache)
        assert cache.length == 0

    def test_a_full_cache(self):
        cache = make_cache("static", MODELS["llama"], 1, 4)
        MODELS["llama"](random_ids(1, 3), cache)
        with pytest.raises(ValueError, match="3 of 4 positions are taken and 2 more"):
            MODELS["llama"](random_ids(1, 2), cache)
        assert cache.length == 3


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_forward_that_fails_half_way_leaves_the_cache_as_it_was(kind):
    model = small_model("llama")
    ids = random_ids(1, 10)
    wanted = model(ids)
    cache = make_cache(kind, model, 1, 10)
    model(ids[:, :6], cache)

    def interrupt(module, arguments):
        raise KeyboardInterrupt

    hook = model.blocks[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(ids[:, 6:9], cache)
    hook.remove()
    assert cache.length == 6
    torch.testing.assert_close(model(ids[:, 6:], cache), wanted[:, 6:])
