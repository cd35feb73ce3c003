"""The benchmark compares answers, and counts what it says."""

import pytest

from llmlab.bench import serving
from llmlab.bench.serving import CONTENDERS, GPT2_SIZE, make_workload, run
from llmlab.model import DecoderModel


def test_a_quick_run(capsys):
    results = run(quick=True, slots=3, models=("embedded",))
    assert [result.contender for result in results] == [*CONTENDERS] * 2
    assert all(result.tokens_per_second > 0 for result in results)
    printed = capsys.readouterr().out
    assert printed.count("8 of 8 answers the same") == 10
    assert printed.count(" 1.00 x alone") >= 2


def test_another_answer_is_seen(monkeypatch):
    one_off = dict(CONTENDERS)
    chunked = one_off["chunked"]

    def wrong(model, workload, slots):
        answers = chunked(model, workload, slots)
        answers[0][0] += 1
        return answers

    monkeypatch.setitem(serving.CONTENDERS, "chunked", wrong)
    with pytest.raises(AssertionError, match="chunked gives other answers"):
        run(quick=True, slots=3, models=("embedded",))


def test_the_large_model_has_the_size_of_gpt2():
    import torch

    with torch.device("meta"):
        assert DecoderModel(GPT2_SIZE).num_parameters() == 124_439_808


def test_lengths():
    even, skewed = (
        make_workload(name, vocab_size=50, count=32, longest=64) for name in ("even", "skewed")
    )
    assert all(16 <= new <= 64 for _, new in even.requests)
    assert sorted(new for _, new in skewed.requests)[-4:] == [64] * 4
    assert sum(new <= 8 for _, new in skewed.requests) == 28
    assert skewed.new_tokens == sum(new for _, new in skewed.requests)
