"""The door for models: whatever stands in a stranger's files, one line says so before a model is built or loaded."""

import json
import os
import pickle
import random
import shutil
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from anchorscope.errors import UserError
from anchorscope.models import hub_files, limits, memory, meta_model, model_door, weight_files
from anchorscope.models.config_door import check_raw
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import load, read_facts
from anchorscope.models.plain_files import Unfit, parse_object

FAMILIES = (
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "olmo2",
    "olmo3",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
)


@pytest.fixture(scope="module")
def saved(save_tiny: Callable[[str], Path]) -> Callable[[str], Path]:
    """A model folder of a family; read only."""
    made: dict[str, Path] = {}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = save_tiny(family)
        return made[family]

    return get


@pytest.fixture
def folder(saved: Callable[[str], Path], tmp_path: Path) -> Path:
    """A Llama's folder, to be damaged."""
    return Path(shutil.copytree(saved("llama"), tmp_path / "model"))


@pytest.fixture(autouse=True)
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


def refused(source: object, read: Callable[..., Any] = read_facts) -> str:
    """The one line that the user reads."""
    with pytest.raises(UserError) as caught:
        read(str(source))
    text = str(caught.value)
    assert "\n" not in text
    return text


ABSURD: list[tuple[dict[str, Any], str]] = [
    ({"num_hidden_layers": 10**7}, "num_hidden_layers = 10000000; allowed: at most 1,000"),
    ({"n_layer": 10**7}, "n_layer = 10000000"),
    ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers = 1000000000"),
    ({"num_labels": 10**8}, "num_labels = 100000000"),
    ({"num_experts": 10**12}, "num_experts"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0; allowed: a whole number from 1 to 1,000"),
    ({"num_hidden_layers": "many"}, "expected int, got str"),
    ({"num_hidden_layers": None}, "num_hidden_layers"),
    ({"num_hidden_layers": True}, "num_hidden_layers"),
    ({"num_hidden_layers": float("nan")}, "num_hidden_layers"),
    ({"hidden_size": -32}, "hidden_size"),
    ({"hidden_size": 10**18}, "hidden_size = 1000000000000000000; allowed: a whole number from 1 to 1,000,000"),
    ({"hidden_size": 2.5}, "hidden_size"),
    ({"hidden_size": 33, "head_dim": None}, "hidden size (33) is not a multiple"),
    ({"vocab_size": 0}, "vocab_size = 0"),
    ({"num_attention_heads": -1}, "num_attention_heads = -1"),
    ({"num_key_value_heads": 0}, "num_key_value_heads = 0"),
    ({"num_key_value_heads": 3}, "4 heads that share 3 key-value heads"),
    ({"head_dim": 0}, "head_dim = 0"),
    ({"intermediate_size": -1}, "no model can be built"),
    ({"pad_token_id": 10**9}, "no model can be built"),
    ({"eos_token_id": list(range(5000))}, "at most 1000 tokens"),
    ({"layer_types": ["full_attention"]}, "number of `layer_types`"),
    ({"rope_parameters": {"rope_type": "bananas", "rope_theta": 1e4}}, "no model can be built"),
    ({"hidden_act": "org/kernel"}, "no model can be built"),
    ({"attn_implementation": "org/kernel"}, "names a kernel from elsewhere (attn_implementation = 'org/kernel')"),
    ({"_attn_implementation": "paged|org/kernel"}, "names a kernel from elsewhere"),
    ({"attn_implementation": {"": "org/kernel@main"}}, "names a kernel from elsewhere"),
    ({"experts_implementation": "org/kernel"}, "names a kernel from elsewhere"),
    ({"quantization_config": {"quant_method": "bananas"}}, "quantised in a way that cannot be read here"),
    ({"quantization_config": "gptq"}, "cannot be read"),
    ({"transformers_weights": "adapter_model.bin"}, "names another file to be read (transformers_weights"),
    ({"configuration_files": ["../config.5.0.0.json"]}, "names another file to be read (configuration_files"),
    ({"architectures": [5]}, "architectures = [5]"),
    ({"model_type": ["llama"]}, "model_type = ['llama']"),
    ({"dtype": 5}, "no model can be built"),
    ({"text_config": "mine"}, "num_hidden_layers = None"),
    ({"model_type": "spy", "auto_map": {"AutoConfig": "other/repo--a.B"}}, "allow it with --trust-remote-code"),
    ({"num_hidden_layers": 900}, "900 layers are needed, and the files hold 39 tensors"),
    ({"intermediate_size": 10**7}, "has 47,648 numbers where"),
    ({"vocab_size": 9_000_000}, "has 47,648 numbers where"),
]


@pytest.mark.parametrize(("changes", "words"), ABSURD, ids=lambda one: str(one)[:50])
def test_an_absurd_configuration_is_one_line_without_weights_being_read(
    folder: Path, changes: dict[str, Any], words: str, no_network: list[Any]
) -> None:
    change(folder / "config.json", **changes)
    assert words in refused(folder)
    assert no_network == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"hidden_size": ' + b"9" * 400 + b"}", "a number of 400 digits"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x": ' + b"[" * 60 + b"]" * 60 + b"}", "nested more than 32 deep"),
        (b'{"x": [' + b"{}," * 3_000_000 + b"{}]}", "has 9,000,011 bytes; at most 8,388,608 are read"),
        (b'{"model_type": "\xff"}', "not JSON"),
        (b"[]", "holds list instead of an object"),
    ],
)
def test_a_configuration_is_read_within_bounds(folder: Path, content: bytes, words: str) -> None:
    (folder / "config.json").write_bytes(content)
    assert words in refused(folder)


def test_json_of_many_values_is_not_parsed() -> None:
    with pytest.raises(Unfit, match=r"holds about 8,000,00\d values; at most 8,000,000 are read"):
        parse_object(b'{"a": [' + b"0," * 8_000_000 + b"0]}", "tokenizer.json")


def test_every_family_that_transformers_knows_is_within_the_bounds() -> None:
    known = 0
    for kind in list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)[::4]:  # all take a quarter of a minute
        try:
            config = AutoConfig.for_model(kind).to_dict()
        except Exception:  # a few need values that have no default
            continue
        check_raw(json.loads(json.dumps(config, default=str)))
        known += 1
    assert known > 40


HOSTILE = (10**7, -1, 0, 10**18, 2**70, "wide", 2.5, float("nan"), None, True, [1, 2], {"a": 1}, "org/kernel")


@pytest.mark.parametrize("family", FAMILIES)
def test_any_field_with_any_value_is_read_or_refused_in_one_line(
    saved: Callable[[str], Path], family: str, tmp_path: Path, no_network: list[Any]
) -> None:
    place = Path(shutil.copytree(saved(family), tmp_path / "model"))
    plain = (place / "config.json").read_text()
    assert read_facts(str(place)).n_layers == 4
    draw = random.Random(family)
    for field in draw.sample(sorted(json.loads(plain)), 4):
        value = draw.choice(HOSTILE)
        (place / "config.json").write_text(json.dumps({**json.loads(plain), field: value}))
        with suppress(UserError):  # anything else is a failure
            read_facts(str(place))
    assert no_network == []


def test_a_model_that_makes_too_many_modules_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_model, "MODULES", 20)
    assert "it has more than 20 modules" in refused(folder)
    monkeypatch.setattr(meta_model, "MODULES", limits.MODULES)
    assert read_facts(str(folder)).n_layers == 4  # the counting is over


def test_what_a_configuration_says_of_known_kernels_is_not_followed(folder: Path) -> None:
    change(folder / "config.json", attn_implementation="flash_attention_2", experts_implementation="grouped_mm")
    assert load(str(folder)).model.config._attn_implementation == "sdpa"


def test_names_of_other_repositories_are_not_asked_for(folder: Path, no_network: list[Any]) -> None:
    change(
        folder / "config.json",
        _name_or_path="other/repo",
        base_model_name_or_path="other/repo",
        auto_map={"AutoConfig": "other/repo--a.B", "AutoModelForCausalLM": "other/repo--a.C"},
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


@pytest.mark.parametrize("content", ['{"base_model_name_or_path": "other/repo", "peft_type": "LORA"}', "["])
def test_adapters_are_not_followed_to_their_base(folder: Path, content: str, no_network: list[Any]) -> None:
    (folder / "adapter_config.json").write_text(content)
    assert "holds an adapter" in refused(folder, load)
    (folder / "config.json").unlink()
    assert "holds an adapter without its model" in refused(folder, load)
    assert no_network == []


class _LeavesAMarker:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "ran")


PICKLES = (
    "pytorch_model.bin",
    "adapter_model.bin",
    "model.pt",
    "model.pth",
    "tokenizer.pkl",
    "vocab.pkl",
    "tf_model.h5",
    "flax_model.msgpack",
    "tokenizer.model",
    "spiece.model",
)


@pytest.mark.parametrize("named", [None, "index", "tokenizer"])
def test_pickles_are_never_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    marker = tmp_path / "marker"
    for name in PICKLES:
        (folder / name).write_bytes(pickle.dumps(_LeavesAMarker(marker)))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load was called"))
    if named == "index":
        (folder / "model.safetensors").unlink()
        weights = {"model.norm.weight": "pytorch_model.bin"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    if named == "tokenizer":
        change(folder / "tokenizer_config.json", tokenizer_class="AutoTokenizer", vocab_file="tokenizer.pkl")
    words = {"index": "no safetensors weights", "tokenizer": "which is no tokenizer"}
    if named is None:
        load(str(folder))
    else:
        assert words[named] in refused(folder, load)
    assert not marker.exists()


def write_header(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    raw = file.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


HEAD = "lm_head.weight"


@pytest.mark.parametrize(
    "edit",
    [
        lambda header: header[HEAD].update(data_offsets=[0, 4]),
        lambda header: header[HEAD].update(data_offsets=[-4, 33276]),
        lambda header: header[HEAD].update(dtype="X99"),
        lambda header: header[HEAD].update(dtype=["F32"]),
        lambda header: header[HEAD].update(shape=[-260, -32]),
        lambda header: header[HEAD].update(shape=[2**40, 2**40]),
        lambda header: header[HEAD].update(shape="260x32"),
        lambda header: header.update({HEAD: 5}),
        lambda header: header.pop(HEAD),
    ],
)
def test_a_header_that_cannot_be_is_told_before_anything_is_read(
    folder: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    write_header(folder / "model.safetensors", edit)
    assert "model.safetensors is damaged" in refused(folder)


@pytest.mark.parametrize("length", [0, 10**9, 2**63, 2**64 - 1])
def test_a_header_is_no_longer_than_its_file(folder: Path, length: int) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    assert "The weights of model" in refused(folder)


def test_weights_in_parts_lie_in_the_same_folder(folder: Path) -> None:
    index, part = folder / weight_files.INDEX, "model-00001-of-00001.safetensors"
    (folder / "model.safetensors").rename(folder / part)
    names = ("../x.safetensors", "/x.safetensors", "a/b.safetensors", "pytorch_model.bin", 5, "x\0.safetensors")
    for name in names:
        index.write_text(json.dumps({"weight_map": {HEAD: name}}))
        assert "allowed: safetensors files in the same folder" in refused(folder)
    for content in ({"weight_map": []}, {"weight_map": {}}, {}):
        index.write_text(json.dumps(content))
        assert "lists no weights" in refused(folder)
    index.write_text(json.dumps({"weight_map": {HEAD: "model-00002-of-00002.safetensors"}}))
    assert "model-00002-of-00002.safetensors is missing" in refused(folder)
    tensors = weight_files.read_header(folder / part)
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(tensors, part)}))
    assert load(str(folder)).n_layers == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_told_wherever_it_is(folder: Path, value: float) -> None:
    def spoil(model: Any) -> None:
        model.model.embed_tokens.weight[-1, 0] = value  # a token that no check would come by

    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        spoil(model)
    model.save_pretrained(folder)
    assert "model.embed_tokens.weight contains NaN or infinity" in refused(folder, load)


def test_weights_that_cannot_fit_are_refused_with_the_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "host_memory", lambda: (50_000, 100_000))
    text = refused(folder, load)
    assert "need 0.0 GB of memory, and there are 0.0 GB (0.0 GB free)" in text
    read_facts(str(folder))  # a look at it costs nothing
    monkeypatch.undo()
    free, total = memory.host_memory()
    assert 0 < free <= total


TOKENIZERS: list[tuple[dict[str, Any], str]] = [
    ({"tokenizer_class": "AutoTokenizer"}, "which is no tokenizer"),
    ({"tokenizer_class": "RagTokenizer"}, "which is no tokenizer"),
    ({"tokenizer_class": "pipeline"}, "allowed: the name of a tokenizer's class"),
    ({"tokenizer_class": 5}, "allowed: the name of a tokenizer's class"),
    ({"fast_tokenizer_files": ["tokenizer.1.0.0.json"]}, "names other files to be read"),
    ({"model_max_length": "x"}, "no tokenizer that can be loaded"),
    ({"auto_map": 5}, "no tokenizer that can be loaded"),
]


@pytest.mark.parametrize(("changes", "words"), TOKENIZERS)
def test_settings_of_a_tokenizer_are_checked(folder: Path, changes: dict[str, Any], words: str) -> None:
    change(folder / "tokenizer_config.json", **changes)
    assert words in refused(folder)


def replace_step(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizer(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


WIDE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}] * 1000,
    "pair": [],
    "special_tokens": {"<x>": {"id": "<x>", "ids": [1] * 10**4, "tokens": ["a"] * 10**4}},
}
FAR = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"<x>": {"id": "<x>", "ids": [10**9], "tokens": ["<x>"]}},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (normalizer(*[replace_step({"String": "a"}, "aa")] * 40), "more than 256 times longer (normalizer)"),
        (normalizer(replace_step({"Regex": "."}, "a" * 10**6)), "more than 256 times longer"),
        (normalizer(*[{"type": "Lowercase"}] * 65), "66 steps in normalizer; allowed: at most 64"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**7}}, "more than 256 times longer"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAB"}}, "damaged table of characters"),
        ({"post_processor": WIDE}, "more than 256 times longer (post_processor)"),
        ({"post_processor": FAR}, "token number 1000000000, and the model has embeddings for 260 tokens"),
        ({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"a": 1}}}, "Missing [UNK] token"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "zz": 300}, "merges": []}}, "token number 300"),
        ({"model": 5}, "no tokenizer that can be loaded"),
    ],
    ids=str,
)
def test_what_a_tokenizer_does_to_texts_is_bounded(folder: Path, changes: dict[str, Any], words: str) -> None:
    change(folder / "tokenizer.json", **changes)
    assert words in refused(folder)


def test_texts_may_grow_a_little(folder: Path) -> None:
    steps = [replace_step({"String": "…"}, "..."), {"type": "Prepend", "prepend": " "}]
    change(folder / "tokenizer.json", **normalizer(*steps))
    assert read_facts(str(folder)).tokenizer("a…").input_ids == read_facts(str(folder)).tokenizer("a...").input_ids


@pytest.mark.parametrize("stops", ["</s>", [1] * 5000, -7, {"a": 1}, [None, "x"], 2.5, True])
def test_ends_of_an_answer_are_token_ids(folder: Path, stops: Any) -> None:
    change(folder / "generation_config.json", eos_token_id=stops)
    assert "generation_config.json says eos_token_id" in refused(folder)


def test_an_added_token_without_an_embedding_is_told_when_a_text_spells_it_out(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token, text in ((259, "<picture>"), (260, "<image>")):
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": token, "content": text})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    lm: LanguageModel = load(str(folder))  # models have such tokens for pictures
    lm.refuse_unknown_tokens(torch.tensor(lm.tokenizer("no picture").input_ids))
    with pytest.raises(UserError, match=r"token '<image>' \(number 260\), and model 'model' has embeddings for 260"):
        lm.refuse_unknown_tokens(torch.tensor(lm.tokenizer("an <image> here").input_ids))


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "vocab.json",
    ],
)
def test_pipes_and_devices_are_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert name in refused(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert name in refused(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert name in refused(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("~nosuchuser/x", "home folder of a user who is not known here"),
        ("a\0b", "is no name"),
        ("", "is no name"),
        ("x" * 300, "File name too long"),
        ("./" + "x" * 400, "File name too long"),
        ("x" * 5000, "5000 characters long"),
        ("\udcff/x", "not UTF-8"),
        ("/dev/null", "neither a folder nor a regular file"),
        ("models/x.gguf", "Model file 'models/x.gguf' does not exist"),
    ],
)
def test_names_that_cannot_be(name: str, words: str, no_network: list[Any]) -> None:
    assert words in refused(name)
    assert words in refused(name, load)
    assert no_network == []


def test_a_circle_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").symlink_to("x.gguf")
    assert "Too many levels of symbolic links" in refused(tmp_path / "x.gguf")


def test_a_hub_id_is_fetched_settings_first_and_then_read_without_the_hub(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[Any]
) -> None:
    snapshot = tmp_path / "commit"
    asked: list[list[str]] = []

    def fetch(source: str, names: list[str], commit: str | None) -> Path:
        asked.append(names)
        snapshot.mkdir(exist_ok=True)
        for file in saved("llama").iterdir():
            if file.name in names or (f"*{file.suffix}" in names):
                shutil.copy(file, snapshot)
        return snapshot

    monkeypatch.setattr(hub_files, "_fetch", fetch)
    facts = read_facts("someone/tiny")
    assert (facts.name, facts.parameters) == ("tiny", 47_648)
    assert not (snapshot / "model.safetensors").exists()
    assert asked == [["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken"]]
    assert load("someone/tiny").source == "someone/tiny"
    assert asked[-1] == ["model.safetensors"]
    change(snapshot / "config.json", num_hidden_layers=10**7)
    monkeypatch.setattr(hub_files, "_fetch", lambda *_: snapshot)
    (snapshot / "model.safetensors").unlink()
    assert "allowed: at most 1,000" in refused("someone/tiny", load)
    assert no_network == []


def test_a_hub_that_is_not_there_is_one_line(no_network: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "Model 'someone/tiny' cannot be read" in refused("someone/tiny")
    assert no_network == []


def test_the_hub_comes_back_when_a_model_was_read(folder: Path) -> None:
    from huggingface_hub import constants

    seen = []
    real = model_door.build_meta

    def spied(*given: Any) -> Any:
        seen.append(constants.HF_HUB_OFFLINE)
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_door, "build_meta", spied)
        read_facts(str(folder))
    assert seen == [True]
    assert constants.HF_HUB_OFFLINE is False
