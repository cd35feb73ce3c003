"""Hugging Face folders: whole, sharded, without prefix, damaged, pickled, written back."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest
import torch
from model_tools import CHECKPOINTS, hugging_face_model, random_ids, small_config, small_model
from safetensors.torch import load_file, save_file

from llmlab.model import DecoderModel, load_model, locate, save_model

IDS = random_ids(2, 12)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


@pytest.fixture
def plain_errors():
    """Without the test run's type checks, so that our own messages can be read."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def logits_of(theirs):
    return theirs(IDS).logits


def rewrite(folder, change):
    """Applies `change` to the dict of a folder's tensors."""
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.fixture
def llama_folder(tmp_path):
    save_model(small_model("llama", dtype=torch.float32), tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_shards(name, tmp_path):
    theirs = hugging_face_model(name)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    torch.testing.assert_close(load_model(tmp_path)(IDS), logits_of(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_a_checkpoint_of_the_body_alone_has_no_prefix(name, tmp_path):
    theirs = hugging_face_model(name)  # both are tied, so no head is missing
    theirs.base_model.save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors")
    assert not any(name.startswith(("transformer.", "model.")) for name in names)
    torch.testing.assert_close(load_model(tmp_path)(IDS), logits_of(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_stored_buffers_and_the_second_copy_of_a_tied_table_are_ignored(name, tmp_path):
    theirs = hugging_face_model(name)
    theirs.save_pretrained(tmp_path)

    def add(tensors):
        table = "transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"
        tensors["lm_head.weight"] = tensors[table].clone()
        if name == "gpt2":
            tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
            tensors["transformer.h.1.attn.masked_bias"] = torch.tensor(-1e4)
        else:
            tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    rewrite(tmp_path, add)
    torch.testing.assert_close(load_model(tmp_path)(IDS), logits_of(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_saved_models_load_in_transformers_and_here(name, tmp_path):
    from transformers import AutoModelForCausalLM

    theirs = hugging_face_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert save_model(ours, tmp_path / "ours") == tmp_path / "ours"

    again = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert type(again) is type(theirs)
    assert again.dtype == torch.float32
    assert torch.equal(logits_of(again), logits_of(theirs))
    assert torch.equal(load_model(tmp_path / "ours")(IDS), ours(IDS))
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert written.keys() == stored.keys()
    assert all(torch.equal(written[name], stored[name]) for name in stored)


def test_the_tokenizer_is_saved_beside(tmp_path):
    class Tokenizer:
        def save_pretrained(self, folder):
            (Path(folder) / "tokenizer.json").write_text("{}")

    save_model(small_model(), tmp_path / "new" / "folder", tokenizer=Tokenizer())
    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_model_that_its_family_cannot_express_is_not_written(tmp_path):
    import dataclasses

    model = DecoderModel(dataclasses.replace(small_config("llama"), norm="layer"))
    with pytest.raises(ValueError, match="norm='layer'"):
        save_model(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype, tmp_path):
    theirs = hugging_face_model("llama-scaled")
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path, dtype=dtype)
    assert not ours.training
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    wanted = logits_of(theirs)
    error = (ours(IDS).to(wanted.dtype) - wanted).abs().max() / wanted.abs().max()
    assert error < {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float64: 1e-5}[dtype]
    save_model(ours, tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["dtype"] == str(dtype)[6:]
    assert torch.equal(load_model(tmp_path / "again", dtype=dtype)(IDS), ours(IDS))


def test_a_16_bit_file_into_fp32(tmp_path):
    model = small_model("qwen2", dtype=torch.bfloat16)
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert torch.equal(loaded(IDS), model.float()(IDS))


def test_a_dtype_that_is_not_floating_point(llama_folder):
    with pytest.raises(ValueError, match=r"floating-point one.*torch\.int8"):
        load_model(llama_folder, dtype=torch.int8)


@pytest.mark.parametrize("dtype", ["float16", None, float])
def test_a_dtype_that_is_none(dtype, llama_folder, plain_errors):
    with pytest.raises(TypeError, match=r"such as torch\.float16; got"):
        load_model(llama_folder, dtype=dtype)


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "mps:7", torch.device("xla")])
def test_a_device_that_is_not_there(device, llama_folder):
    with pytest.raises(ValueError, match=rf"the device '{device}' cannot be used.*device='cpu'"):
        load_model(llama_folder, device=device)


def test_all_that_is_wrong_is_listed(llama_folder):
    def damage(tensors):
        del tensors["model.norm.weight"], tensors["model.layers.2.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(32)
        tensors["model.layers.0.self_attn.q_proj.lora"] = torch.zeros(32)
        tensors["model.layers.1.self_attn.k_proj.weight"] = torch.zeros(32, 32)
        tensors["lm_head.weight"] = torch.zeros(97, 32, dtype=torch.int8)

    rewrite(llama_folder, damage)
    with pytest.raises(ValueError, match="do not fit its config") as error:
        load_model(llama_folder)
    assert str(error.value).splitlines()[1:] == [
        "  missing: model.layers.2.mlp.up_proj.weight, model.norm.weight",
        "  unexpected: model.layers.0.self_attn.q_proj.bias, model.layers.0.self_attn.q_proj.lora",
        "  of the wrong shape: model.layers.1.self_attn.k_proj.weight [32, 32] instead of [16, 32]",
        "  not plain floating-point numbers (quantised?): lm_head.weight (I8)",
    ]


def test_an_untied_model_without_its_head(llama_folder):
    rewrite(llama_folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ValueError, match=r"missing: lm_head\.weight"):
        load_model(llama_folder)


class Exploit:
    """Unpickling this makes a file: proof that a pickle was opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "last.ckpt"])
def test_pickle_is_never_opened(name, llama_folder):
    (llama_folder / "model.safetensors").unlink()
    proof = llama_folder / "opened"
    (llama_folder / name).write_bytes(pickle.dumps(Exploit(proof)))
    with pytest.raises(ValueError, match=rf"{name}.*pickle.*save_pretrained"):
        load_model(llama_folder)
    assert not proof.exists()


def test_pickle_beside_safetensors_is_ignored(llama_folder):
    proof = llama_folder / "opened"
    (llama_folder / "pytorch_model.bin").write_bytes(pickle.dumps(Exploit(proof)))
    load_model(llama_folder)
    assert not proof.exists()


def test_a_folder_without_weights(llama_folder):
    (llama_folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load_model(llama_folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-100],
        lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        lambda data: b"",
    ],
)
def test_a_damaged_file(damage, llama_folder):
    file = llama_folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=r"no complete safetensors file.*git lfs pull"):
        load_model(llama_folder)


def test_a_damaged_shard_is_named(tmp_path):
    hugging_face_model("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(ValueError, match=rf"{shard} is no complete safetensors file"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ("{}", ValueError, "no index of safetensors"),
        ("no json", ValueError, "no index of safetensors"),
        ('{"weight_map": {"a": "../b.safetensors"}}', ValueError, "outside its folder"),
        ('{"weight_map": {"a": 5}}', ValueError, "outside its folder"),
        ('{"weight_map": {"a": 5, "b": "c"}}', ValueError, "no index of safetensors"),
        ('{"weight_map": []}', ValueError, "no index of safetensors"),
        ("[]", ValueError, "no index of safetensors"),
        ('{"weight_map": {"a": "b.safetensors"}}', FileNotFoundError, "lacks .*b.safetensors"),
    ],
)
def test_a_damaged_index(index, error, message, llama_folder):
    (llama_folder / "model.safetensors").unlink()
    (llama_folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(error, match=message):
        load_model(llama_folder)


def test_none_is_the_embedded_model(llama_folder, monkeypatch):
    monkeypatch.setattr(locate, "EMBEDDED_MODEL", llama_folder)
    assert load_model().config == small_config("llama")
    monkeypatch.setattr(locate, "EMBEDDED_MODEL", llama_folder / "absent")
    with pytest.raises(FileNotFoundError, match="make train"):
        load_model()


def test_paths_that_are_no_folder(llama_folder):
    with pytest.raises(FileNotFoundError, match="give the folder"):
        load_model(llama_folder / "config.json")
    absent = llama_folder / "absent"
    for path in (absent, f"{absent}/", "./absent", "/absent/model", "a/b/c", "~/absent"):
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            load_model(path)


def test_no_name_is_not_the_folder_one_is_in(llama_folder, monkeypatch):
    monkeypatch.chdir(llama_folder)
    assert load_model(".").config == small_config("llama")
    with pytest.raises(ValueError, match="the path is empty"):
        load_model("")
    with pytest.raises(ValueError, match="the path is empty"):
        save_model(small_model(), "")


def test_the_home_is_written_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert save_model(small_model(), "~/new/model") == tmp_path / "new" / "model"
    assert load_model("~/new/model").config == small_config("llama")
    for call in (load_model, lambda path: save_model(small_model(), path)):
        with pytest.raises(FileNotFoundError, match="there is no path '~no_such_user/x'"):
            call("~no_such_user/x")


def test_a_local_folder_comes_before_the_hub(llama_folder, monkeypatch):
    monkeypatch.chdir(llama_folder.parent)
    assert load_model(llama_folder.name).config == small_config("llama")


SCRIPT = """
import sys
from llmlab.model import load_model
heavy = {"transformers", "huggingface_hub", "triton", "matplotlib", "sympy", "torch._dynamo"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert load_model("owner/cached").num_parameters() > 0
assert not {"transformers", "sympy", "torch._dynamo"} & set(sys.modules)
try:
    load_model("owner/absent")
except FileNotFoundError as error:
    print(error)
"""


def test_a_hub_name_from_the_hubs_cache_and_without_a_network(tmp_path):
    repository = tmp_path / "models--owner--cached"
    save_model(small_model("llama", dtype=torch.float32), repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "no local folder 'owner/absent'" in result.stdout
    assert "Give the path of a downloaded folder" in result.stdout


def test_only_json_and_safetensors_are_fetched(llama_folder, monkeypatch):
    import huggingface_hub

    asked = {}

    def fetch(name, **options):
        asked.update(options, name=name)
        return str(llama_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert load_model("owner/model").config == small_config("llama")
    assert asked["name"] == "owner/model"
    assert asked["allow_patterns"] == ["*.json", "*.safetensors"]

    from huggingface_hub.utils import filter_repo_objects

    files = ["config.json", "model.safetensors", "model.bin", "code.py", "onnx/a.json"]
    kept = filter_repo_objects(
        files, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    assert list(kept) == ["config.json", "model.safetensors"]


PEAK = """
import sys
from llmlab.model import load_model
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
load_model(sys.argv[1])
before = peak()
model = load_model(sys.argv[2])
print(peak() - before, model.num_parameters() * 4)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_no_second_copy_of_the_model_is_in_memory(llama_folder, tmp_path):
    wide = small_config("llama", hidden_size=512, num_hidden_layers=12, intermediate_size=1024)
    save_model(DecoderModel(wide), tmp_path / "wide")
    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(llama_folder), str(tmp_path / "wide")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    grown, size = map(int, result.stdout.split())
    assert size > 80e6
    assert grown < 1.25 * size
