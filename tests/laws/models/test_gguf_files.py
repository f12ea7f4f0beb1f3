"""GGUF files are read into exactly the model that transformers alone reads from them, and broken ones are one line."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    modeling_gguf_pytorch_utils,
    tokenization_utils_tokenizers,
)
from transformers.integrations import ggml

from anchorscope.errors import UserError
from anchorscope.models import gguf_files
from anchorscope.models.families import all_families
from anchorscope.models.language_model import tokenizer_fingerprint
from anchorscope.models.loading import load, read_facts
from anchorscope.models.process_settings import quiet_transformers
from anchorscope.progress import Progress, Silent
from gguf_models import small_llama, write_gguf

WIDTH, HIDDEN, LAYERS, VOCABULARY = 256, 512, 2, 259
EXPERTS, EXPERT_HIDDEN = 4, 768
ARCHITECTURES = sorted(
    layout.architecture for family in all_families() for layout in family.gguf
)
LIBRARIES: list[Any] = [
    gguf,
    gguf.GGUFReader,
    gguf.quants,
    modeling_gguf_pytorch_utils,
    tokenization_utils_tokenizers,
    ggml,
]


def blocks(kind: Kind, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random weights of a kind: rounded where `gguf` can, else any bytes at all."""
    values = rng.standard_normal(shape, dtype=np.float32)
    try:
        return gguf.quantize(values, kind)
    except NotImplementedError:
        size, stored = gguf.GGML_QUANT_SIZES[kind]
        return rng.integers(
            0, 256, (*shape[:-1], shape[-1] // size * stored), dtype=np.uint8
        )


def write_family(file: Path, family: str, kind: Kind) -> None:
    """A GGUF file of a tiny model of one architecture, every matrix in one kind of blocks."""
    writer, rng = gguf.GGUFWriter(str(file), family), np.random.default_rng(0)
    d_head = 128 if family == "qwen3" else 64
    kv_heads = 4 if family == "gpt2" else 2
    hidden = 4 * WIDTH if family == "gpt2" else HIDDEN
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(4)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(d_head)
    writer.add_value_length(d_head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_freq_base(50_000.0)
    writer.add_sliding_window(16)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(2)
    writer.add_vocab_size(VOCABULARY)
    writer.add_array("general.tags", ["tiny", "random"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_scores([0.5] * VOCABULARY)
    writer.add_token_merges([])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)

    def matrix(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", blocks(kind, shape, rng), raw_dtype=kind)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(name, rng.standard_normal(size, dtype=np.float32))

    matrix("token_embd", VOCABULARY, WIDTH)
    vector("output_norm.weight", WIDTH)
    if family in ("llama", "phi3"):
        matrix("output", VOCABULARY, WIDTH)
    if family == "llama":
        vector("rope_freqs.weight", d_head // 2)
    if family == "gpt2":
        matrix("position_embd", 1024, WIDTH)
        vector("output_norm.bias", WIDTH)
    q_rows, kv_rows = 4 * d_head, kv_heads * d_head
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        vector(f"{block}attn_norm.weight", WIDTH)
        vector(f"{block}ffn_norm.weight", WIDTH)
        matrix(f"{block}attn_output", WIDTH, q_rows)
        if family in ("gpt2", "phi3"):
            matrix(f"{block}attn_qkv", q_rows + 2 * kv_rows, WIDTH)
        else:
            matrix(f"{block}attn_q", q_rows, WIDTH)
            matrix(f"{block}attn_k", kv_rows, WIDTH)
            matrix(f"{block}attn_v", kv_rows, WIDTH)
        if family == "gpt2":
            for name in ("attn_norm", "ffn_norm", "attn_output", "ffn_down"):
                vector(f"{block}{name}.bias", WIDTH)
            vector(f"{block}attn_qkv.bias", 3 * WIDTH)
            vector(f"{block}ffn_up.bias", hidden)
        if family == "qwen2":
            vector(f"{block}attn_q.bias", q_rows)
            vector(f"{block}attn_k.bias", kv_rows)
            vector(f"{block}attn_v.bias", kv_rows)
        if family in ("qwen3", "qwen3moe", "gemma3"):
            vector(f"{block}attn_q_norm.weight", d_head)
            vector(f"{block}attn_k_norm.weight", d_head)
        if family in ("gemma2", "gemma3"):
            vector(f"{block}post_attention_norm.weight", WIDTH)
            vector(f"{block}post_ffw_norm.weight", WIDTH)
        if family == "qwen3moe":
            matrix(f"{block}ffn_gate_inp", EXPERTS, WIDTH)
            matrix(f"{block}ffn_gate_exps", EXPERTS, EXPERT_HIDDEN, WIDTH)
            matrix(f"{block}ffn_up_exps", EXPERTS, EXPERT_HIDDEN, WIDTH)
            matrix(f"{block}ffn_down_exps", EXPERTS, WIDTH, EXPERT_HIDDEN)
            continue
        if family not in ("gpt2", "phi3"):
            matrix(f"{block}ffn_gate", hidden, WIDTH)
        matrix(f"{block}ffn_up", 2 * hidden if family == "phi3" else hidden, WIDTH)
        matrix(f"{block}ffn_down", WIDTH, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


Read = tuple[dict[str, bytes], torch.Tensor]
IDS = torch.arange(3, 23)[None]


def content(model: Any) -> Read:
    """Every weight as bytes, and logits."""
    state = {
        name: tensor.contiguous().view(torch.uint8)
        for name, tensor in model.state_dict().items()
    }
    with torch.no_grad():
        logits = model.eval()(IDS).logits
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}, logits


def read_alone(file: Path, dtype: torch.dtype) -> Read:
    """By transformers."""
    model, gaps = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=dtype, output_loading_info=True
    )
    assert not any(gaps.values())
    for parameter in model.parameters():  # GPT-2's are views: other digits in products
        parameter.data = parameter.data.contiguous()
    return content(model)


def read_here(file: Path, dtype: torch.dtype) -> Read:
    header = gguf_files.read_header(file)
    config = gguf_files.read_config(header)
    model, gaps = gguf_files.read_model(header, config, dtype, Silent())
    assert not any(gaps.values())
    return content(model)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(
            ("llama", kind)
            for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_K)
        ),
        *(("llama", kind) for kind in (Kind.Q6_K, Kind.IQ2_XXS, Kind.IQ4_XS)),
        *((family, Kind.Q8_0) for family in ARCHITECTURES),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning"
)
def test_every_bit_is_what_transformers_alone_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, kind: Kind
) -> None:
    write_family(tmp_path / "x.gguf", family, kind)
    monkeypatch.setattr(
        gguf_files, "_VALUES_AT_ONCE", 5 * 256
    )  # so that every matrix is unpacked in pieces
    with quiet_transformers():
        for dtype in (torch.bfloat16, torch.float32):
            weights, logits = read_here(tmp_path / "x.gguf", dtype)
            wanted, wanted_logits = read_alone(tmp_path / "x.gguf", dtype)
            assert weights == wanted
            assert torch.equal(logits.isnan(), wanted_logits.isnan())
            assert torch.equal(logits.nan_to_num(), wanted_logits.nan_to_num())


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_configuration_and_tokenizer_are_those_that_transformers_reads(
    tmp_path: Path, family: str
) -> None:
    write_family(tmp_path / "x.gguf", family, Kind.F32)
    header = gguf_files.read_header(tmp_path / "x.gguf")
    with quiet_transformers():
        config = gguf_files.read_config(header)
        found = gguf_files.read_tokenizer(header, config)
        wanted_config = AutoConfig.from_pretrained(tmp_path, gguf_file="x.gguf")
        wanted = AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf")
    assert json.dumps(config.to_dict()) == json.dumps(wanted_config.to_dict())
    assert type(found) is type(wanted)
    assert tokenizer_fingerprint(found) == tokenizer_fingerprint(wanted)


def test_a_vocabulary_is_stepped_over(tmp_path: Path) -> None:
    """To `gguf` alone each word is two arrays; half a minute for a real file."""
    write_gguf(small_llama(), tmp_path / "x.gguf")
    fields = gguf_files.read_header(tmp_path / "x.gguf").fields
    alone = gguf.GGUFReader(tmp_path / "x.gguf").fields
    assert fields.keys() == alone.keys()
    for name, field in alone.items():
        if field.types[1:] != [gguf.GGUFValueType.STRING]:
            assert fields[name].contents() == field.contents()
        assert len(fields[name].parts) <= 5


class Watching(Progress):
    """Compares what the libraries hold, while a file is read, with what they held before."""

    def __init__(self) -> None:
        self.before = self.seen()
        self.looks = 0

    def seen(self) -> list[dict[str, Any]]:
        return [dict(vars(library)) for library in LIBRARIES]

    def advance(self, units: int) -> None:
        self.looks += 1
        for now, before in zip(self.seen(), self.before, strict=True):
            assert all(now[name] is value for name, value in before.items())


def test_no_function_of_a_library_is_replaced(tmp_path: Path) -> None:
    write_gguf(small_llama(), tmp_path / "x.gguf")
    watching = Watching()
    load(str(tmp_path / "x.gguf"), progress=watching)
    assert watching.looks == 2 + 9 * 2


def test_a_gguf_is_the_same_model_as_its_safetensors(tmp_path: Path) -> None:
    write_gguf(small_llama(), tmp_path / "small one.gguf")
    listener = Mock(spec=Silent())
    lm = load(str(tmp_path / "small one.gguf"), progress=listener)
    listener.start.assert_called_once_with("read small one.gguf", 2 + 9 * 2)
    listener.finish.assert_called_once_with()
    assert lm.name == read_facts(str(tmp_path / "small one.gguf")).name == "small one"
    lm.model.save_pretrained(tmp_path / "saved")
    lm.tokenizer.save_pretrained(tmp_path / "saved")
    saved = load(str(tmp_path / "saved"))
    assert lm.fingerprint() == saved.fingerprint()
    assert tokenizer_fingerprint(lm.tokenizer) == tokenizer_fingerprint(saved.tokenizer)


def renamed(before: bytes, after: bytes) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        assert content.count(before) == 1
        return content.replace(before, after)

    return change


def dimensions(name: bytes, rows: int, columns: int) -> bytes:
    return name + struct.pack("<IQQ", 2, columns, rows)


UP, KEYS = b"blk.1.ffn_up.weight", b"blk.1.attn_k.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            renamed(UP, b"blk.1.ffn_xx.weight"),
            r"it has no place for blk\.1\.ffn_xx\.weight \(1 in all\)",
        ),
        (
            renamed(UP, b"rope_factors_ttt.w1"),
            r"it lacks model\.layers\.1\.mlp\.up_proj\.weight \(1 in all\)",
        ),
        (
            renamed(dimensions(UP, 64, 32), dimensions(UP, 32, 64)),
            r"has in another shape .*up_proj.*\[32, 64\].*\[64, 32\]",
        ),
        (
            renamed(dimensions(KEYS, 16, 32), dimensions(KEYS, 8, 64)),
            r"has in another shape .*k_proj.*\[8, 64\].*\[16, 32\]",
        ),
        (lambda content: content[:-40], r"cut off, damaged or packed .*reshape"),
        (lambda content: content[:2000], "cut off, damaged or packed"),
        (
            renamed(
                b"llama.block_count\x04\0\0\0\x02", b"llama.block_count\x04\0\0\0\0"
            ),
            "it has 0 layers; allowed: 1 to 1,000",
        ),
        (
            renamed(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0mamba"),
            r"its architecture is 'mamba'; allowed: gemma2, gemma3, gpt2, llama, .*safetensors",
        ),
    ],
)
def test_a_file_that_is_no_whole_model_is_one_line(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    file = tmp_path / "x.gguf"
    write_gguf(small_llama(), file)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UserError, match=words) as caught:
        load(str(file))
    assert "\n" not in str(caught.value)


MAGIC = b"GGUF" + struct.pack("<I", 3)


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def fact(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def numbers(tensors: int, facts: int) -> bytes:
    return MAGIC + struct.pack("<QQ", tensors, facts)


NAMED = fact(b"general.architecture", 8, text(b"llama"))
ONE = numbers(1, 1) + NAMED + text(b"t")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut off"),
        (b"GGML" + b"\0" * 40, "magic invalid"),
        (b"GGUF" + struct.pack("<I", 9) + b"\0" * 16, "version 9"),
        (numbers(0, 1) + struct.pack("<Q", 2**63) + b"x", "cut off"),
        (numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 8, 10**7)), "cut off"),
        (numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 9, 1) * 1000), "KeyError: 9"),
        (numbers(0, 1) + fact(b"a", 99, b""), r"99\W* is not a valid GGUFValueType"),
        (
            numbers(0, 1) + fact(b"general.alignment", 4, struct.pack("<I", 0)),
            "Invalid alignment",
        ),
        (
            ONE + struct.pack("<IQIQ", 1, 32, 999, 0) + b"\0" * 999,
            r"999\W* is not a valid GGMLQuantizationType",
        ),
        (
            ONE + struct.pack("<IQIQ", 1, 32, 26, 0) + b"\0" * 999,
            "Dequantization for I32 is not yet implemented|packed in a way",
        ),
    ],
)
def test_a_hostile_header_is_one_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        read_facts(str(file))
    assert "\n" not in str(caught.value)
