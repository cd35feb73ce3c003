"""What generate counts, returns, reports, and leaves behind."""

import io
import sys

import pytest
import torch
from decoding_tools import FAMILIES, fed_tokens, make_model, model_config

from llmlab.cache import DynamicKVCache, StaticKVCache
from llmlab.decoding import Sampler, generate

PROMPT = [3, 14, 15, 9, 26]
CACHES = (None, "dynamic", "static")


@pytest.fixture(scope="module")
def model():
    return make_model(model_config("llama"))


def static_cache(model, max_length=40, batch_size=1):
    return StaticKVCache(
        model.config, batch_size=batch_size, max_length=max_length, dtype=torch.float64
    )


# ---- counted work


@pytest.mark.parametrize("family", FAMILIES)
def test_projected_tokens(family):
    """What the first block computed, counted by a hook, and what the records say."""
    model = make_model(model_config(family))
    counts = fed_tokens(model)
    for n, m in ((1, 1), (1, 6), (5, 1), (5, 7)):
        for cache, expected in (
            (None, [n + step for step in range(m)]),  # together m n + m (m - 1) / 2
            ("dynamic", [n] + [1] * (m - 1)),  # together n + m - 1
            ("static", [n] + [1] * (m - 1)),
        ):
            counts.clear()
            generation = generate(model, PROMPT[:n], m, cache=cache)
            assert counts == expected
            assert [step.input_length for step in generation.steps] == expected
            assert generation.projected_tokens == sum(expected)


def test_projected_tokens_of_a_batch(model):
    counts = fed_tokens(model)
    generation = generate(model, [PROMPT, PROMPT[:2]], 4)
    assert counts == [10, 2, 2, 2]
    assert [step.projected_tokens for step in generation.steps] == counts
    assert [step.input_length for step in generation.steps] == [5, 1, 1, 1]


def test_steps(model):
    generation = generate(model, PROMPT, 4)
    assert [step.cache_length for step in generation.steps] == [5, 6, 7, 8]
    assert [step.cache_length for step in generate(model, PROMPT, 4, cache=None).steps] == [0] * 4
    seconds = [step.seconds for step in generation.steps]
    assert all(0 < value < 60 for value in seconds)
    assert generation.time_to_first_token == seconds[0]
    assert generation.time_per_output_token == pytest.approx(sum(seconds[1:]) / 3)
    assert generate(model, PROMPT, 1).time_per_output_token is None


def test_a_static_cache_is_as_long_as_needed(model, monkeypatch):
    made = []

    def record(*arguments, **options):
        made.append(StaticKVCache(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("llmlab.decoding.checks.StaticKVCache", record)
    generate(model, [PROMPT, PROMPT[:2]], 6)
    assert [(cache.batch_size, cache.capacity) for cache in made] == [(2, 11)]


def test_no_new_tokens_runs_nothing(model):
    counts = fed_tokens(model)
    cache = static_cache(model)
    for choice in (*CACHES, cache):
        generation = generate(model, PROMPT, 0, cache=choice)
        assert (generation.ids, generation.finish_reason) == ([], "length")
        assert (generation.steps, generation.projected_tokens) == ((), 0)
        assert generation.time_to_first_token is generation.time_per_output_token is None
    assert generate(model, [PROMPT, [1]], 0).ids == [[], []]
    assert counts == []
    assert cache.length == 0


# ---- forms of the prompt


def test_forms_of_one_prompt(model):
    expected = generate(model, PROMPT, 5).ids
    assert isinstance(expected, list)
    assert all(type(token) is int for token in expected)
    tensor = torch.tensor(PROMPT)
    for form in (tuple(PROMPT), tensor, tensor.int(), tensor.numpy(), list(tensor)):
        assert generate(model, form, 5).ids == expected


def test_forms_of_a_batch(model):
    expected = [generate(model, row, 5).ids for row in (PROMPT, PROMPT[::-1])]
    tensor = torch.tensor([PROMPT, PROMPT[::-1]])
    for form in (tensor, tensor.tolist(), list(tensor), tensor.numpy()):
        assert generate(model, form, 5).ids == expected
    assert generate(model, [PROMPT], 5).ids == expected[:1]
    assert generate(model, tensor[:1], 5).ids == expected[:1]


# ---- stopping, callbacks


@pytest.mark.parametrize("cache", CACHES)
def test_stop_ids(model, cache):
    tokens = generate(model, PROMPT, 12).ids
    stop = tokens[4]
    first = tokens.index(stop)
    generation = generate(model, PROMPT, 12, cache=cache, stop_ids={stop, 60})
    assert generation.ids == tokens[:first]
    assert generation.finish_reason == "stop"
    assert len(generation.steps) == first + 1
    in_prompt = next(token for token in PROMPT if token not in tokens)
    assert generate(model, PROMPT, 12, cache=cache, stop_ids=[in_prompt]).ids == tokens


def test_a_batch_runs_until_its_last_row_ends(model):
    rows = [PROMPT, PROMPT[:2], PROMPT[::-1]]
    tokens = [generate(model, row, 12).ids for row in rows]
    stop = next(token for token in tokens[0] if token not in tokens[2])
    generation = generate(model, rows, 12, stop_ids=[stop])
    assert generation.ids[0] == tokens[0][: tokens[0].index(stop)]
    assert generation.ids[2] == tokens[2]
    assert (generation.finish_reason[0], generation.finish_reason[2]) == ("stop", "length")
    assert len(generate(model, [PROMPT, PROMPT], 12, stop_ids=tokens[0][:1]).steps) == 1


def test_on_token(model):
    seen = []
    generation = generate(model, PROMPT, 5, on_token=seen.append)
    assert seen == generation.ids
    seen.clear()
    stop = generation.ids[3]
    stopped = generate(model, PROMPT, 5, on_token=seen.append, stop_ids=[stop])
    assert seen == stopped.ids
    rows = [[], []]
    batch = generate(model, [PROMPT, [7]], 5, on_token=lambda row, token: rows[row].append(token))
    assert rows == batch.ids


# ---- a cache that is passed in


@pytest.mark.parametrize("kind", [DynamicKVCache, static_cache])
def test_a_passed_cache_goes_on(model, kind):
    cache = kind(model.config) if kind is DynamicKVCache else kind(model)
    whole = generate(model, PROMPT, 10).ids
    first = generate(model, PROMPT, 4, cache=cache)
    assert cache.length == len(PROMPT) + 3  # the last new token was never fed
    second = generate(model, first.ids[-1:], 6, cache=cache)
    assert first.ids + second.ids == whole
    assert second.projected_tokens == 6
    assert cache.length == len(PROMPT) + 9
    # A cut back to the prompt gives the same again, and another prompt its own answer.
    cache.truncate(len(PROMPT) - 1)
    assert generate(model, PROMPT[-1:], 10, cache=cache).ids == whole
    cache.reset()
    assert generate(model, [1, 2], 5, cache=cache).ids == generate(model, [1, 2], 5, cache=None).ids


def test_a_passed_cache_after_a_stop(model):
    tokens = generate(model, PROMPT, 8).ids
    cache = static_cache(model)
    generation = generate(model, PROMPT, 8, cache=cache, stop_ids=[tokens[5]])
    assert cache.length == len(PROMPT) + len(generation.ids)  # all but the stop token


def test_a_passed_cache_keeps_only_what_is_real_in_every_row(model):
    rows = [PROMPT, PROMPT[::-1]]
    tokens = [generate(model, row, 11).ids for row in rows]
    stop = next(token for token in tokens[0][:8] if token not in tokens[1])
    cache = static_cache(model, batch_size=2)
    early = generate(model, rows, 8, cache=cache, stop_ids=[stop])
    kept = len(early.ids[0])
    assert cache.length == len(PROMPT) + kept
    # So both rows can go on from there.
    both = [[tokens[0][kept]], [tokens[1][kept]]]
    assert generate(model, both, 3, cache=cache).ids == [row[kept + 1 : kept + 4] for row in tokens]
    padded = DynamicKVCache(model.config)
    generate(model, [PROMPT, [1]], 4, cache=padded)
    assert padded.length == 0


# ---- failures leave everything usable


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_in_the_callback(model, error):
    whole = generate(model, PROMPT, 8).ids
    cache = static_cache(model)
    seen = []

    def fail(token):
        seen.append(token)
        if len(seen) == 3:
            raise error("enough")

    model.train()
    with pytest.raises(error, match="enough"):
        generate(model, PROMPT, 8, cache=cache, on_token=fail)
    assert model.training
    model.eval()
    assert seen == whole[:3]
    assert cache.length == len(PROMPT) + 2
    assert generate(model, seen[-1:], 5, cache=cache).ids == whole[3:]


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_an_exception_inside_a_forward(model, kind):
    cache = DynamicKVCache(model.config) if kind == "dynamic" else static_cache(model)
    generate(model, PROMPT[:3], 1, cache=cache)

    def fail(*_):
        raise RuntimeError("out of memory, say")

    handle = model.blocks[1].register_forward_pre_hook(fail)  # the first layer has written by then
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(model, [1, 2, 3, 4], 4, cache=cache)
    handle.remove()
    assert cache.length == 3
    assert generate(model, PROMPT[3:], 6, cache=cache).ids == generate(model, PROMPT, 6).ids


def test_model_state_is_given_back(model):
    model.train()
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    during = []
    handle = model.blocks[1].register_forward_pre_hook(
        lambda block, _: during.append((block.training, torch.is_inference_mode_enabled()))
    )
    generate(model, PROMPT, 2)
    handle.remove()
    assert during == [(False, True)] * 2
    assert [module.training for module in model.modules()] == before
    assert not torch.is_inference_mode_enabled()
    model.eval()


def test_a_cache_serves_the_reader_after_generate(model):
    """Outside inference mode, with gradients on, as a reader's next cell does it."""
    for cache in (DynamicKVCache(model.config), static_cache(model)):
        generation = generate(model, PROMPT, 3, cache=cache)
        with_cache = model(torch.tensor([generation.ids[-1:]]), cache)[0, -1]
        without = model(torch.tensor([PROMPT + generation.ids]))[0, -1]
        torch.testing.assert_close(with_cache, without)


# ---- bad calls


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "empty"),
        ([[1], []], "row 1 of ids is empty"),
        (torch.zeros(0, dtype=torch.int64), "empty"),
        (torch.zeros(0, 3, dtype=torch.int64), "empty"),
        (torch.zeros(2, 0, dtype=torch.int64), "row 0 of ids is empty"),
        (torch.zeros(1, 1, 1, dtype=torch.int64), r"\[1, 1, 1\]"),
        ([61], "61 is outside the vocabulary, whose ids are 0 to 60"),
        ([[3], [-1]], "row 1 of ids: -1"),
        (list(range(61)) + [1] * 4, "longer than the model's context of 64"),
        ([1] * 60, "60 tokens \\+ 5 new ones make 65.*context is 64.*at most 4"),
    ],
)
def test_bad_prompts(model, ids, message):
    counts = fed_tokens(model)
    with pytest.raises(ValueError, match=message):
        generate(model, ids, 5)
    assert counts == []


@pytest.mark.parametrize(
    "ids",
    [
        *("time flies", b"time", 7, None, ["a"], [1, [2]], [[1], 2], [[[1]]]),
        *([1.0, 2.0], [True], torch.tensor([1.0]), torch.tensor([True])),
    ],
)
def test_prompts_of_a_wrong_type(model, ids):
    with pytest.raises(TypeError, match=r"ids must be|a token id must be|row \d of ids must be"):
        generate(model, ids, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": -1}, "at least 0, got -1"),
        ({"cache": "paged"}, "static.*dynamic.*'paged'"),
        ({"stop_ids": [61]}, "stop_ids: 61"),
        ({"pad_id": 99}, "pad_id: 99"),
        ({"cache": None, "compile": True}, "needs a cache"),
    ],
)
def test_bad_options(model, options, message):
    counts = fed_tokens(model)
    with pytest.raises(ValueError, match=message):
        generate(model, **{"ids": PROMPT, "max_new_tokens": 5} | options)
    assert counts == []


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 2.0},
        {"max_new_tokens": True},
        {"max_new_tokens": "5"},
        {"max_new_tokens": None},
        {"stop_ids": 3},
        {"stop_ids": "3"},
        {"stop_ids": [1.5]},
        {"cache": 5},
        {"sampler": "greedy"},
        {"pad_id": 0.5},
    ],
)
def test_options_of_a_wrong_type(model, options):
    with pytest.raises(TypeError):
        generate(model, **{"ids": PROMPT, "max_new_tokens": 5} | options)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"layers": 3}, "layers"),
        ({"kv_heads": 4, "groups": 1}, "kv_heads"),
        ({"head_dim": 8}, "head_dim"),
    ],
)
def test_a_cache_of_another_model(model, change, name):
    other = model_config("llama", **change)
    for cache in (
        DynamicKVCache(other),
        StaticKVCache(other, batch_size=1, max_length=20, dtype=torch.float64),
    ):
        with pytest.raises(ValueError, match=f"another model: its {name}"):
            generate(model, PROMPT, 5, cache=cache)


def test_a_cache_that_does_not_fit_the_call(model):
    def refused(cache, ids=PROMPT, new=5, message=""):
        length = cache.length
        with pytest.raises(ValueError, match=message):
            generate(model, ids, new, cache=cache)
        assert cache.length == length

    config = model.config
    refused(StaticKVCache(config, batch_size=1, max_length=20), message="dtype is torch.float32")
    refused(
        StaticKVCache(config, batch_size=1, max_length=20, dtype=torch.float64, device="meta"),
        message="device is meta",
    )
    refused(static_cache(model, batch_size=2), message="2 rows, but ids has 1")
    refused(static_cache(model, 8), message="room for 8 positions and holds 0; this run needs 9")
    exact = static_cache(model, 9)
    assert len(generate(model, PROMPT, 5, cache=exact).ids) == 5
    refused(exact, [1], 1, message="room for 9 positions and holds 9")
    long = DynamicKVCache(config)
    generate(model, [1] * 30, 30, cache=long)
    refused(long, [1] * 3, 3, message="59 tokens in the cache.*make 65.*context is 64")
    two = static_cache(model, batch_size=2)
    generate(model, [PROMPT, PROMPT], 1, cache=two)
    refused(two, [[1], [1, 2]], 2, message="different lengths")


@pytest.mark.parametrize(
    ("sampler", "error", "message"),
    [
        (lambda logits: logits.argmax(dim=-1, keepdim=True), ValueError, r"shape \[1\], got"),
        (lambda logits: torch.tensor([61]), ValueError, "the sampler's choice: 61"),
        (lambda logits: torch.tensor([0.5]), TypeError, "what the sampler returns"),
    ],
)
def test_a_bad_sampler(model, sampler, error, message):
    with pytest.raises(error, match=message):
        generate(model, PROMPT, 2, sampler=sampler)


# ---- samplers and the progress bar


def test_sampled_rows_are_those_of_the_naive_loop(model):
    rows = [PROMPT, PROMPT[:2], [8]]
    runs = [generate(model, rows, 8, cache=cache, sampler=Sampler(seed=3)) for cache in CACHES]
    assert runs[0].ids == runs[1].ids == runs[2].ids
    assert runs[0].ids != generate(model, rows, 8).ids
    alone = generate(model, PROMPT, 8, sampler=Sampler(seed=3))
    assert runs[0].ids[0] == alone.ids


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar(model, monkeypatch):
    def shown(stream=Terminal, **options):
        monkeypatch.setattr(sys, "stderr", stream())
        generate(model, PROMPT, 3, **options)
        return sys.stderr.getvalue()

    def sleepy(logits):
        time_passed[0] += 1.5
        return logits.argmax(dim=-1)

    assert "token" in shown(progress=True, stream=io.StringIO)
    assert shown(progress=False) == shown() == ""  # the run was short
    time_passed = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: time_passed[0])
    assert "token" in shown(sampler=sleepy)
    assert shown(sampler=sleepy, stream=io.StringIO) == ""  # no terminal
    assert shown(sampler=sleepy, on_token=lambda token: None) == ""
