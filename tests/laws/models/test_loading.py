"""Loading: what a user may name, and one clear line for everything that cannot be loaded."""

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import is_offline_mode
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BloomConfig, BloomForCausalLM

from anchorscope.errors import UserError
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import choose_device, choose_dtype, load
from gguf_models import small_llama, write_gguf

SPY = "import pathlib\npathlib.Path({marker!r}).write_text('ran')\n"
"""Code that leaves a trace when it is run."""


def refused(source: object, **options: Any) -> str:
    """The one line that the user reads instead of a model."""
    with pytest.raises(UserError) as caught:
        load(str(source), **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="module")
def saved(save_tiny: Callable[[str], Path]) -> Path:
    """A model folder as a user would have it; read only."""
    return save_tiny("llama")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


class _LeavesAMarker:
    """What a harmful pickle does: something of its own choice, while it is being read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


@pytest.mark.every_family
def test_a_saved_folder_gives_the_same_numbers(tiny: LanguageModel, save_tiny: Callable[[str], Path]) -> None:
    place = save_tiny(tiny.model.config.model_type)
    lm = load(str(place))
    assert lm.name == place.name
    assert lm.source == str(place)
    assert not lm.model.training
    ids = torch.tensor([lm.tokenizer("How far does it see? Let us ask.").input_ids])
    assert ids.tolist() == [tiny.tokenizer("How far does it see? Let us ask.").input_ids]
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids).logits, tiny.model(ids).logits)
    mine, theirs = lm.model.state_dict(), tiny.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on processors without bfloat16 units
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_come_in_the_precision_that_was_asked_for(saved: Path, dtype: str) -> None:
    lm = load(str(saved), dtype=dtype)
    assert {parameter.dtype for parameter in lm.model.parameters()} == {getattr(torch, dtype)}
    assert lm.model.config._attn_implementation == "sdpa"


def test_loading_is_silent(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(str(saved))
    assert capfd.readouterr() == ("", "")


def test_a_home_folder_may_be_abbreviated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load("~/model").name == "model"


def test_an_unknown_name_gets_a_hint() -> None:
    text = refused("smollm2-135")
    assert "Unknown model 'smollm2-135'" in text
    assert "Did you mean 'smollm2-135m'?" in text
    assert "OWNER/NAME" in text


def test_a_name_like_nothing_gets_no_hint() -> None:
    text = refused("zzzzzz")
    assert "allowed: smollm2-135m" in text
    assert "Did you mean" not in text


def test_an_embedded_model_that_is_not_here_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path))
    text = refused("smollm2-135m")
    assert "not installed" in text
    assert "anchorscope models --install smollm2-135m" in text


@pytest.mark.parametrize("place", ["./nowhere", "nowhere/at/all", "/nowhere"])
def test_a_folder_that_is_not_there_is_named(place: str) -> None:
    text = refused(place)
    assert f"{place!r} does not exist" in text
    assert ".gguf" in text


def test_a_folder_without_config_says_what_it_found(tmp_path: Path) -> None:
    assert "(found: nothing)" in refused(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    text = refused(tmp_path)
    assert "no config.json" in text
    assert "notes.txt" in text


def test_pickled_weights_are_refused_and_never_read(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": _LeavesAMarker(marker)}))
    text = refused(folder)
    assert "no safetensors" in text
    assert "pytorch_model.bin" in text
    assert "can run code" in text
    assert not marker.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert marker.exists()  # the trap was live


def test_pickled_weights_beside_safetensors_are_not_touched(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": _LeavesAMarker(marker)}))
    load(str(folder))
    assert not marker.exists()


def test_other_safetensors_do_not_open_the_door_for_pickled_weights(folder: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (folder / "model.safetensors").rename(folder / "adapter.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": _LeavesAMarker(marker)}))
    assert "model.safetensors" in refused(folder)
    assert not marker.exists()


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "found: no weights" in refused(folder)


def test_the_fingerprint_does_not_depend_on_where_the_model_lies(saved: Path, folder: Path) -> None:
    assert saved != folder
    assert load(str(saved)).fingerprint() == load(str(folder)).fingerprint()


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    change_config(folder, intermediate_size=64)
    assert "weights" in refused(folder)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_weights_are_refused_instead_of_drawn_at_random(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors.pop("model.layers.2.mlp.up_proj.weight"))
    text = refused(folder)
    assert "lacks model.layers.2.mlp.up_proj.weight (1 in all)" in text


@pytest.mark.parametrize(("layers", "found"), [(6, "lacks model.layers.4"), (2, "has no place for model.layers.2")])
def test_a_config_with_another_number_of_layers_is_refused(folder: Path, layers: int, found: str) -> None:
    change_config(folder, num_hidden_layers=layers)
    assert found in refused(folder)


def test_a_head_that_is_the_embedding_may_be_missing_or_saved_twice(folder: Path) -> None:
    change_config(folder, tie_word_embeddings=True)
    change_weights(folder, lambda tensors: tensors.pop("lm_head.weight"))
    alone = load(str(folder))
    change_weights(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"] + 0}))
    assert load(str(folder)).fingerprint() == alone.fingerprint()
    assert torch.equal(alone.model.lm_head.weight, alone.model.model.embed_tokens.weight)


def test_leftovers_of_old_checkpoints_do_no_harm(saved: Path, folder: Path) -> None:
    # Older Llama files hold the rotary frequencies of every layer, which are computed today.
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda tensors: tensors.update({name: torch.ones(4)}))
    assert load(str(folder)).fingerprint() == load(str(saved)).fingerprint()


@pytest.mark.parametrize("keep", [0, 100, -100])
def test_a_damaged_weight_file_is_refused(folder: Path, keep: int) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:keep])
    assert f"weights of model {str(folder)!r} cannot be loaded" in refused(folder)


def test_a_folder_without_tokenizer_says_how_to_save_one(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    text = refused(folder)
    assert "no tokenizer" in text
    assert "tokenizer.save_pretrained" in text


@pytest.mark.parametrize("content", ["{", '{"version": "1.0"}', ""])
def test_a_damaged_tokenizer_is_refused(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    assert "tokenizer" in refused(folder)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"model_type": "no-such-architecture"}'])
def test_a_damaged_config_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    assert f"Model {str(folder)!r} cannot be read" in refused(folder)


def test_a_config_value_of_the_wrong_kind_is_refused(folder: Path) -> None:
    change_config(folder, hidden_size="wide")
    text = refused(folder)
    assert f"Model {str(folder)!r} cannot be read" in text
    assert "hidden_size" in text


def test_a_masked_language_model_is_not_causal(folder: Path) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertForMaskedLM(BertConfig(vocab_size=260, **sizes)).save_pretrained(folder)
    text = refused(folder)
    assert "not a causal language model" in text
    assert "BertForMaskedLM" in text


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("t5", "T5ForConditionalGeneration"), ("bart", "BartModel"), ("llama", "LlamaForSequenceClassification")],
)
def test_other_kinds_of_models_are_not_causal(folder: Path, kind: str, architecture: str) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [architecture]}))
    text = refused(folder)
    assert "not a causal language model" in text
    assert architecture in text


def test_an_unknown_architecture_is_named_with_the_known_ones(folder: Path) -> None:
    BloomForCausalLM(BloomConfig(vocab_size=260, hidden_size=8, n_layer=1, n_head=2)).save_pretrained(folder)  # ALiBi
    text = refused(folder)
    assert "'bloom'" in text
    assert "known: gemma, gemma2," in text


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"anything")
    assert "weights.bin' is not a GGUF file" in refused(tmp_path / "weights.bin")


@pytest.mark.parametrize(
    "content", [b"", b"hello world, this is no model", b"GGUF\x03\0\0\0" + b"\xff" * 40, b"GGUF\x03\0\0\0" + b"\0" * 16]
)
def test_a_broken_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    text = refused(file)
    assert f"Model {str(file)!r} cannot be read" in text


def test_a_gguf_file_gives_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    original = small_llama()
    write_gguf(original, tmp_path / "small one.gguf")
    lm = load(str(tmp_path / "small one.gguf"))
    assert lm.name == "small one"
    ids = torch.tensor([lm.tokenizer("the hen").input_ids])
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids).logits, original(ids).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keep", [4, 20, 1000, 50_000])
def test_a_gguf_that_is_cut_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    write_gguf(small_llama(), tmp_path / "whole.gguf")
    file = tmp_path / "part.gguf"
    file.write_bytes((tmp_path / "whole.gguf").read_bytes()[:keep])
    assert f"Model {str(file)!r} cannot be read" in refused(file)


def test_an_unknown_precision_is_refused(saved: Path) -> None:
    text = refused(saved, dtype="bfloat")
    assert "Unknown dtype 'bfloat'" in text
    assert "Did you mean 'bfloat16'?" in text


@pytest.mark.parametrize("device", ["banana", "cuda:99"])
def test_a_device_that_is_not_here_is_refused(saved: Path, device: str) -> None:
    text = refused(saved, device=device)
    assert f"Device {device!r} cannot be used here" in text
    assert "allowed: auto, cpu, cuda" in text


def test_a_hub_id_without_a_network_is_one_line() -> None:
    assert is_offline_mode()  # or this test would wait for a server
    text = refused("someone/some-model")
    assert "Model 'someone/some-model' cannot be read" in text


def test_an_impossible_hub_id_is_one_line() -> None:
    assert "'someone/some model!' cannot be read" in refused("someone/some model!")


@pytest.fixture
def spied(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A model folder that brings code of its own, and the file that appears if it is run."""
    marker = tmp_path / "marker"
    (folder / "spy.py").write_text(
        SPY.format(marker=str(marker)) + "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class SpyConfig(LlamaConfig):\n    model_type = 'spy'\n"
        "class SpyModel(LlamaForCausalLM):\n    config_class = SpyConfig\n"
    )
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder, marker


CODE = {"AutoConfig": "spy.SpyConfig", "AutoModelForCausalLM": "spy.SpyModel"}


def test_code_that_comes_with_a_model_is_not_run(spied: tuple[Path, Path]) -> None:
    folder, marker = spied
    change_config(folder, model_type="spy", architectures=["SpyModel"], auto_map=CODE)
    text = refused(folder)
    assert "cannot be read" in text
    assert not marker.exists()


def test_code_beside_a_known_architecture_is_ignored(spied: tuple[Path, Path]) -> None:
    folder, marker = spied
    change_config(folder, auto_map=CODE)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": [None, "spy.SpyTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert type(load(str(folder)).model).__name__ == "LlamaForCausalLM"
    assert not marker.exists()


def test_code_is_run_when_it_is_asked_for(spied: tuple[Path, Path]) -> None:
    # The trap of the two tests before is live.
    folder, marker = spied
    change_config(folder, auto_map=CODE)
    assert type(load(str(folder), trust_remote_code=True).model).__name__ == "SpyModel"
    assert marker.exists()


def test_automatic_choices_depend_on_the_machine_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    assert choose_device("cuda:1") == "cuda:1"
    assert choose_dtype("auto", "cpu") == "float32"
    assert choose_dtype("auto", "cuda") == choose_dtype("auto", "cuda:1") == "bfloat16"
    assert choose_dtype("float16", "cpu") == "float16"
