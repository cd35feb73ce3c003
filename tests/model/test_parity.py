"""The same checkpoint gives the same logits and the same greedy ids as in transformers."""

import pytest
import torch
from model_tools import CHECKPOINTS, FAMILIES, VOCAB_SIZE, hugging_face_model, random_ids

from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.model import load_model

# On fp32 logits of size 5. Another order of the same sums (chunks, padding, another attention)
# costs more: between its own two ways of attention transformers differs by up to 3e-5 here.
SAME_ORDER = {"atol": 1e-5, "rtol": 0}
TOLERANCE = {"atol": 6e-5, "rtol": 0}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def pair(request, tmp_path_factory):
    """(transformers' model, ours from the folder that it saved)."""
    theirs = hugging_face_model(request.param)
    folder = tmp_path_factory.mktemp("checkpoint")
    theirs.save_pretrained(folder)
    return theirs, load_model(folder)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


def caches(model, batch, length):
    return (
        DynamicKVCache(model.config),
        StaticKVCache(model.config, batch_size=batch, max_length=length),
    )


def test_every_family_is_here():
    assert {settings["model_type"] for settings in CHECKPOINTS.values()} == set(FAMILIES)


def test_logits(pair):
    theirs, ours = pair
    ids = random_ids(2, 24)
    wanted = theirs(ids).logits
    assert wanted.abs().max() > 1  # there is something to get wrong
    torch.testing.assert_close(ours(ids), wanted, **SAME_ORDER)


# Newer versions of transformers say `cache`; this keyword works in all of them.
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_logits_with_a_cache(pair):
    theirs, ours = pair
    ids = random_ids(2, 24)
    for cache in caches(ours, 2, 24):
        their_cache = None
        for piece in ids.split([7, 1, 1, 9, 1, 5], dim=1):  # prompt, tokens, chunks of a prompt
            answer = theirs(piece, past_key_values=their_cache, use_cache=True)
            their_cache = answer.past_key_values
            torch.testing.assert_close(ours(piece, cache), answer.logits, **TOLERANCE)
        assert cache.length == 24


def test_logits_with_padding_on_the_left(pair):
    theirs, ours = pair
    ids = random_ids(3, 16)
    mask = torch.ones(3, 16, dtype=torch.long)
    mask[0, :3] = 0
    mask[2, :11] = 0
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    wanted = theirs(ids, attention_mask=mask, position_ids=position_ids).logits
    real = mask.bool()
    torch.testing.assert_close(ours(ids, attention_mask=mask)[real], wanted[real], **TOLERANCE)
    for cache in caches(ours, 3, 16):
        pieces = [
            ours(ids[:, start:end], cache, attention_mask=mask[:, :end])
            for start, end in ((0, 9), (9, 10), (10, 16))
        ]
        logits = torch.cat(pieces, 1)
        assert logits.isfinite().all()
        torch.testing.assert_close(logits[real], wanted[real], **TOLERANCE)


def greedy(model, ids, mask, count, cache):
    """`count` new ids for every row, a token at a time."""
    new, fed = [], ids
    for _ in range(count):
        fed = model(fed, cache, attention_mask=mask)[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat((mask, torch.ones_like(fed)), 1)
        new.append(fed)
    return torch.cat(new, 1)


def test_greedy_ids(pair):
    theirs, ours = pair
    ids = random_ids(2, 9)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    wanted = theirs.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=20,
        min_new_tokens=20,
        do_sample=False,
        pad_token_id=VOCAB_SIZE - 1,
    )[:, 9:]
    for cache in caches(ours, 2, 29):
        assert torch.equal(greedy(ours, ids, mask, 20, cache), wanted)
    ours.set_attention("reference")
    try:
        assert torch.equal(greedy(ours, ids, mask, 20, DynamicKVCache(ours.config)), wanted)
    finally:
        ours.set_attention("sdpa")


def test_reference_attention_gives_the_same_logits(pair):
    _, ours = pair
    ids = random_ids(2, 24)
    wanted = ours(ids)
    ours.set_attention("reference")
    try:
        torch.testing.assert_close(ours(ids), wanted, **TOLERANCE)
    finally:
        ours.set_attention("sdpa")


def test_parameter_count(pair):
    theirs, ours = pair
    assert ours.num_parameters() == theirs.num_parameters()
