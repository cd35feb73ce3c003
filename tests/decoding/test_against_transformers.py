"""Greedy ids of generate against transformers' own generate, on the same checkpoint."""

import pytest
import torch
from decoding_tools import FAMILIES

from llmlab.decoding import generate
from llmlab.model import load_model

SIZES = {"vocab_size": 67, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
ROTARY = SIZES | {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
SETTINGS = {
    "gpt2": SIZES | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "llama": ROTARY,
    "mistral": ROTARY | {"sliding_window": 6},
    "qwen2": ROTARY,
    "qwen3": ROTARY | {"head_dim": 16},
}
PROMPTS = [[5, 17, 3, 66, 24, 41, 8], [9, 9], [30, 1, 12, 7, 55]]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    """One random checkpoint, as transformers' model and as ours."""
    import transformers

    transformers.set_seed(0)
    config = transformers.AutoConfig.for_model(request.param, **SETTINGS[request.param])
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # wide weights: the answer depends on every position
            if parameter.dim() == 2:
                parameter.normal_(std=0.3)
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return theirs, load_model(folder)


def generated(theirs, ids, count, **options):
    ids = torch.tensor(ids)
    out = theirs.generate(
        ids, max_new_tokens=count, do_sample=False, attention_mask=torch.ones_like(ids), **options
    )
    return out[:, ids.shape[1] :].tolist()


def test_one_prompt(pair):
    theirs, ours = pair
    for prompt in PROMPTS:
        expected = generated(theirs, [prompt], 20)[0]
        for cache in (None, "dynamic", "static"):
            assert generate(ours, prompt, 20, cache=cache).ids == expected


def test_left_padded_batch(pair):
    theirs, ours = pair
    longest = max(map(len, PROMPTS))
    pads = [longest - len(prompt) for prompt in PROMPTS]
    out = theirs.generate(
        torch.tensor([[0] * pad + prompt for pad, prompt in zip(pads, PROMPTS, strict=True)]),
        attention_mask=torch.tensor([[0] * pad + [1] * (longest - pad) for pad in pads]),
        max_new_tokens=20,
        do_sample=False,
    )
    expected = out[:, longest:].tolist()
    assert generate(ours, PROMPTS, 20).ids == expected


def test_stops_where_transformers_stops(pair):
    theirs, ours = pair
    prompt = PROMPTS[0]
    tokens = generated(theirs, [prompt], 20)[0]
    stop = tokens[7]
    expected = generated(theirs, [prompt], 20, eos_token_id=stop)[0]
    assert expected[-1] == stop
    generation = generate(ours, prompt, 20, stop_ids=[stop])
    assert generation.ids == expected[:-1]  # ours leaves the stop token out
    assert generation.finish_reason == "stop"
