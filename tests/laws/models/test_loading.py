"""Loading: what a user may name, and one clear line for everything that cannot be loaded."""

import json
import os
import pickle
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from anchorscope.errors import UserError
from anchorscope.models import devices, loading
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load, read_facts

SPY = "import pathlib\npathlib.Path({marker!r}).write_text('ran')\n"
"""Code that leaves a trace when it is run."""


def refused(source: object, read: Callable[..., Any] = load, **options: Any) -> str:
    """The one line that the user reads instead of a model."""
    with pytest.raises(UserError) as caught:
        read(str(source), **options)
    return str(caught.value)


@pytest.fixture(scope="module")
def saved(save_tiny: Callable[[str], Path]) -> Path:
    """A model folder as a user would have it; read only."""
    return save_tiny("llama")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whoever wants to go out is noted and stopped."""
    asked: list[Any] = []

    def stopped(*given: Any, **_: Any) -> None:
        asked.append(given)
        raise OSError("no network in tests")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", stopped)
    monkeypatch.setattr(socket, "getaddrinfo", stopped)
    return asked


def change(file: Path, **changes: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**content, **changes}))


class _LeavesAMarker:
    """What a harmful pickle does: something of its own choice, while it is being read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


@pytest.mark.every_family
def test_a_saved_folder_gives_the_same_numbers(
    tiny: LanguageModel, save_tiny: Callable[[str], Path]
) -> None:
    place = save_tiny(tiny.model.config.model_type)
    lm = load(str(place))
    assert lm.name == place.name
    assert lm.source == str(place)
    assert not lm.model.training
    ids = torch.tensor([lm.tokenizer("How far does it see? Let us ask.").input_ids])
    assert ids.tolist() == [
        tiny.tokenizer("How far does it see? Let us ask.").input_ids
    ]
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids).logits, tiny.model(ids).logits)
    mine, theirs = lm.model.state_dict(), tiny.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_pickles_are_never_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    trap = pickle.dumps({"w": _LeavesAMarker(marker)})
    for name in (
        "pytorch_model.bin",
        "adapter_model.bin",
        "model.pt",
        "tokenizer.pkl",
        "tokenizer.model",
    ):
        (folder / name).write_bytes(trap)
    change(folder / "config.json", transformers_weights="adapter_model.bin")
    monkeypatch.setattr(
        torch, "load", lambda *_, **__: pytest.fail("torch.load was called")
    )
    load(str(folder))
    (folder / "model.safetensors").unlink()
    text = refused(folder)
    assert all(
        part in text for part in ("no safetensors", "pytorch_model.bin", "can run code")
    )
    assert not marker.exists()
    pickle.loads(trap)
    assert marker.exists()  # the trap was live


def change_weights(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_weights_are_refused_instead_of_drawn_at_random(folder: Path) -> None:
    change_weights(
        folder, lambda tensors: tensors.pop("model.layers.2.mlp.up_proj.weight")
    )
    text = refused(folder)
    assert "lacks model.layers.2.mlp.up_proj.weight (1 in all)" in text


def test_weights_without_a_place_are_refused(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=2)
    assert "has no place for model.layers.2" in refused(folder)


def test_a_head_that_is_the_embedding_may_be_missing_or_saved_twice(
    folder: Path,
) -> None:
    change(folder / "config.json", tie_word_embeddings=True)
    change_weights(folder, lambda tensors: tensors.pop("lm_head.weight"))
    alone = load(str(folder))
    change_weights(
        folder,
        lambda tensors: tensors.update(
            {"lm_head.weight": tensors["model.embed_tokens.weight"] + 0}
        ),
    )
    assert load(str(folder)).fingerprint() == alone.fingerprint()
    assert torch.equal(
        alone.model.lm_head.weight, alone.model.model.embed_tokens.weight
    )


DAMAGED = {
    "model.safetensors": (
        ["", "x" * 100],
        "weights of model {folder!r} cannot be loaded",
    ),
    "tokenizer.json": (["{", '{"version": "1.0"}', ""], "tokenizer"),
    "config.json": (
        ["{", "[]", "{}", '{"model_type": "no-such-architecture"}'],
        "Model {folder!r} cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(folder: Path, name: str) -> None:
    contents, words = DAMAGED[name]
    for content in (*contents, (folder / name).read_text(errors="replace")[:-100]):
        (folder / name).write_text(content)
        assert words.format(folder=str(folder)) in refused(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named_wherever_it_is(
    folder: Path, value: float
) -> None:
    change_weights(
        folder, lambda tensors: tensors["model.embed_tokens.weight"][-1].fill_(value)
    )  # an unused token
    assert "model.embed_tokens.weight contains NaN or infinity" in refused(folder)


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        ("bert", "BertForMaskedLM"),
        ("t5", "T5ForConditionalGeneration"),
        ("bart", "BartModel"),
        ("llama", "LlamaForSequenceClassification"),
    ],
)
def test_other_kinds_of_models_are_not_causal(
    folder: Path, kind: str, architecture: str
) -> None:
    (folder / "config.json").write_text(
        json.dumps({"model_type": kind, "architectures": [architecture]})
    )
    text = refused(folder)
    assert "not a causal language model" in text
    assert architecture in text


@pytest.fixture
def spied(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """A model folder that brings code of its own, and the file that appears if it is run."""
    marker = tmp_path / "marker"
    (folder / "spy.py").write_text(
        SPY.format(marker=str(marker))
        + "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class SpyConfig(LlamaConfig):\n    model_type = 'spy'\n"
        "class SpyModel(LlamaForCausalLM):\n    config_class = SpyConfig\n"
    )
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder, marker


CODE = {"AutoConfig": "spy.SpyConfig", "AutoModelForCausalLM": "spy.SpyModel"}


def test_code_that_comes_with_a_model_is_not_run(spied: tuple[Path, Path]) -> None:
    folder, marker = spied
    change(
        folder / "config.json",
        model_type="spy",
        architectures=["SpyModel"],
        auto_map=CODE,
    )
    text = refused(folder)
    assert "cannot be read" in text
    assert not marker.exists()


def test_code_beside_a_known_architecture_is_ignored(spied: tuple[Path, Path]) -> None:
    folder, marker = spied
    change(folder / "config.json", auto_map=CODE)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": [None, "spy.SpyTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert type(load(str(folder)).model).__name__ == "LlamaForCausalLM"
    assert not marker.exists()


def test_code_is_run_when_it_is_asked_for(spied: tuple[Path, Path]) -> None:
    # The trap of the two tests before is live.
    folder, marker = spied
    change(folder / "config.json", auto_map=CODE)
    assert type(load(str(folder), trust_remote_code=True).model).__name__ == "SpyModel"
    assert marker.exists()


ABSURD: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": 10**7}, "num_hidden_layers = 10000000; allowed: 1 to 1,000"),
    ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers = 1000000000"),
    ({"num_hidden_layers": float("nan")}, "num_hidden_layers = nan"),
    ({"hidden_size": 33, "head_dim": None}, "hidden size (33) is not a multiple"),
    ({"intermediate_size": -1}, "no model can be built"),
    (
        {"rope_parameters": {"rope_type": "bananas", "rope_theta": 1e4}},
        "no model can be built",
    ),
    ({"hidden_act": "org/kernel"}, "no model can be built"),
    ({"quantization_config": "gptq"}, "cannot be read"),
    (
        {"model_type": "spy", "auto_map": {"AutoConfig": "other/repo--a.B"}},
        "allow it with --trust-remote-code",
    ),
]


@pytest.mark.parametrize(("changes", "words"), ABSURD, ids=lambda one: str(one)[:50])
def test_an_absurd_configuration_is_one_line(
    folder: Path, changes: dict[str, Any], words: str, no_network: list[Any]
) -> None:
    change(folder / "config.json", **changes)
    assert words in refused(folder)
    assert no_network == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "config.json is not JSON"),
        (
            b'{"x": [' + b"{}," * 3_000_000 + b"{}]}",
            "it has 9,000,011 bytes, at most 8,388,608 are read",
        ),
        (b'{"model_type": "\xff"}', "not JSON"),
        (b"[]", "holds list instead of an object"),
    ],
)
def test_a_configuration_is_read_within_bounds(
    folder: Path, content: bytes, words: str
) -> None:
    (folder / "config.json").write_bytes(content)
    assert words in refused(folder, read_facts)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "org/kernel"])
def test_kernels_that_a_configuration_names_are_not_used(
    folder: Path, kernel: str, no_network: list[Any]
) -> None:
    change(
        folder / "config.json",
        attn_implementation=kernel,
        experts_implementation=kernel,
    )
    assert load(str(folder)).model.config._attn_implementation == "sdpa"
    assert no_network == []


def test_names_of_other_repositories_are_not_asked_for(
    folder: Path, no_network: list[Any]
) -> None:
    change(
        folder / "config.json",
        _name_or_path="other/repo",
        base_model_name_or_path="other/repo",
        auto_map={
            "AutoConfig": "other/repo--a.B",
            "AutoModelForCausalLM": "other/repo--a.C",
        },
        use_kernels=True,
        kernel_config={"RMSNorm": "org/kernel:Norm"},
    )
    change(
        folder / "tokenizer_config.json",
        name_or_path="other/repo",
        auto_map={"AutoTokenizer": ["other/repo--a.D", None]},
        tokenizer_file="/nowhere/tokenizer.json",
    )
    assert type(load(str(folder)).model).__name__ == "LlamaForCausalLM"
    assert no_network == []


@pytest.mark.parametrize(
    "content", ['{"base_model_name_or_path": "other/repo", "peft_type": "LORA"}', "["]
)
def test_adapters_are_not_followed_to_their_base(
    folder: Path, content: str, no_network: list[Any]
) -> None:
    (folder / "adapter_config.json").write_text(content)
    assert "holds an adapter" in refused(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in refused(folder)
    assert no_network == []


def test_weights_in_parts_lie_in_the_same_folder(folder: Path) -> None:
    index, part = (
        folder / "model.safetensors.index.json",
        "model-00001-of-00001.safetensors",
    )
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / part)
    for name in (
        "../x.safetensors",
        "/x.safetensors",
        "a/b.safetensors",
        "pytorch_model.bin",
    ):
        index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
        assert "allowed: safetensors files in the same folder" in refused(folder)
    for content in ({"weight_map": []}, {"weight_map": {"lm_head.weight": 5}}, {}):
        index.write_text(json.dumps(content))
        assert "model.safetensors.index.json cannot be read" in refused(folder)
    index.write_text(
        json.dumps(
            {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
        )
    )
    assert "model-00002-of-00002.safetensors is missing" in refused(folder)
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(tensors, part)})
    )
    assert load(str(folder)).n_layers == 4


def test_weights_that_cannot_fit_are_refused_with_the_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "host_memory", lambda: (50_000, 100_000))
    text = refused(folder)
    assert "need 0.0 GB of memory, and there are 0.0 GB (0.0 GB free)" in text
    read_facts(str(folder))  # a look at it costs nothing
    monkeypatch.undo()
    free, total = devices.host_memory()
    assert 0 < free <= total


def test_weights_that_do_not_fit_are_reported(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes."
        )

    monkeypatch.setattr(torch.nn.Module, "to", too_large)
    assert "do not fit into the memory of cpu in float32" in refused(saved)


FAR = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"<x>": {"id": "<x>", "ids": [10**9], "tokens": ["<x>"]}},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"post_processor": FAR},
            "token number 1000000000, and the model has 260 embeddings",
        ),
        (
            {"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"a": 1}}},
            "Missing [UNK] token",
        ),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0, "zz": 300}, "merges": []}},
            "token number 300",
        ),
        ({"model": 5}, "no tokenizer that can be loaded"),
    ],
    ids=str,
)
def test_a_tokenizer_must_fit_the_model(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    change(folder / "tokenizer.json", **changes)
    assert words in refused(folder, read_facts)


def test_an_added_token_without_an_embedding_is_told_when_a_text_spells_it_out(
    folder: Path,
) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token, text in ((259, "<picture>"), (260, "<image>")):
        tokenizer["added_tokens"].append(
            {**tokenizer["added_tokens"][0], "id": token, "content": text}
        )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    lm: LanguageModel = load(str(folder))  # models have such tokens for pictures
    lm.refuse_unknown_tokens(torch.tensor(lm.tokenizer("no picture").input_ids))
    with pytest.raises(
        UserError,
        match=r"token '<image>' \(number 260\), and model 'model' has embeddings for 260",
    ):
        lm.refuse_unknown_tokens(
            torch.tensor(lm.tokenizer("an <image> here").input_ids)
        )


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"],
)
def test_pipes_and_devices_are_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert name in refused(folder) or "regular file" in refused(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert name in refused(folder) or "regular file" in refused(folder)


def test_a_hub_id_is_fetched_settings_first_and_then_read_without_the_hub(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[Any]
) -> None:
    snapshot = tmp_path / "commit"
    asked: list[list[str]] = []

    def fetch(source: str, names: list[str], commit: str | None) -> Path:
        asked.append(names)
        snapshot.mkdir(exist_ok=True)
        for file in saved.iterdir():
            if file.name in names or (f"*{file.suffix}" in names):
                shutil.copy(file, snapshot)
        return snapshot

    monkeypatch.setattr(loading, "_fetch", fetch)
    facts = read_facts("someone/tiny")
    assert (facts.name, facts.parameters) == ("tiny", 47_648)
    assert not (snapshot / "model.safetensors").exists()
    assert asked == [["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"]]
    assert load("someone/tiny").source == "someone/tiny"
    assert asked[-1] == ["model.safetensors"]
    assert no_network == []
