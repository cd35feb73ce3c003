"""What the notebooks print is stable, aligned, and the package's own source."""

import inspect

import pytest
import torch

from llmlab.attention import reference_attention
from llmlab.teaching import show_source, table


def test_a_matrix_is_printed_with_names_and_rounded(capsys):
    table(torch.tensor([[1.0, -0.001], [22.25, 3.0]]), rows=["遥", "b"], columns=["x", "y"])
    assert capsys.readouterr().out == "        x     y\n遥   1.00  0.00\n b  22.25  3.00\n"


def test_a_vector_and_whole_numbers(capsys):
    table(torch.tensor([1, 20]))
    assert capsys.readouterr().out == "1  20\n"


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 row names for 1 rows"):
        table([[1.0]], rows=["a", "b", "c"])
    with pytest.raises(ValueError, match="column names"):
        table([[1.0]], columns=["a", "b"])


def test_source_is_the_files_own(capsys):
    show_source(reference_attention)
    shown = capsys.readouterr().out.strip()
    assert shown.startswith("def reference_attention(") or shown.startswith("@")
    assert shown in inspect.getsource(inspect.getmodule(inspect.unwrap(reference_attention)))
