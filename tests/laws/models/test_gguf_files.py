"""GGUF files are read quickly into exactly the numbers that transformers alone reads from them."""

import json
import struct
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    modeling_gguf_pytorch_utils,
)

from anchorscope.errors import UserError
from anchorscope.models import embedded
from anchorscope.models.embedded import check_gguf, fast_gguf
from anchorscope.models.language_model import tokenizer_fingerprint
from anchorscope.models.loading import load, read_facts
from anchorscope.models.process_settings import quiet_transformers
from anchorscope.progress import Silent
from gguf_models import small_llama, write_gguf

WIDTH, HIDDEN, LAYERS, VOCABULARY = 256, 512, 2, 259
REPLACED = [
    (gguf, "GGUFReader"),
    (gguf.GGUFReader, "_get_field_parts"),
    (gguf, "dequantize"),
    (gguf, "get_tensor_name_map"),
    (modeling_gguf_pytorch_utils, "_gguf_parse_value"),
    (modeling_gguf_pytorch_utils, "tqdm"),
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
    """A GGUF file of a tiny model of one family, every matrix in one kind of blocks."""
    writer, rng = gguf.GGUFWriter(str(file), family), np.random.default_rng(0)
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2 if family != "gpt2" else 4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    if family == "gemma2":
        writer.add_key_length(64)
        writer.add_value_length(64)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges([])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name: str, *shape: int) -> None:
        writer.add_tensor(f"{name}.weight", blocks(kind, shape, rng), raw_dtype=kind)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(name, rng.standard_normal(size, dtype=np.float32))

    matrix("token_embd", VOCABULARY, WIDTH)
    vector("output_norm.weight", WIDTH)
    if family == "gpt2":
        matrix("position_embd", 64, WIDTH)
        vector("output_norm.bias", WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        vector(f"{block}attn_norm.weight", WIDTH)
        vector(f"{block}ffn_norm.weight", WIDTH)
        matrix(f"{block}attn_output", WIDTH, WIDTH)
        if family == "gpt2":
            matrix(f"{block}attn_qkv", 3 * WIDTH, WIDTH)
            matrix(f"{block}ffn_up", HIDDEN, WIDTH)
            matrix(f"{block}ffn_down", WIDTH, HIDDEN)
            for name in ("attn_norm", "ffn_norm", "attn_output", "ffn_down"):
                vector(f"{block}{name}.bias", WIDTH)
            vector(f"{block}attn_qkv.bias", 3 * WIDTH)
            vector(f"{block}ffn_up.bias", HIDDEN)
            continue
        matrix(f"{block}attn_q", WIDTH, WIDTH)
        matrix(f"{block}attn_k", WIDTH // 2, WIDTH)
        matrix(f"{block}attn_v", WIDTH // 2, WIDTH)
        if family == "gemma2":
            vector(f"{block}post_attention_norm.weight", WIDTH)
            vector(f"{block}post_ffw_norm.weight", WIDTH)
        matrix(f"{block}ffn_gate", HIDDEN, WIDTH)
        matrix(f"{block}ffn_up", HIDDEN, WIDTH)
        matrix(f"{block}ffn_down", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def bits(
    file: Path, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, bytes], str, dict[str, Any]]:
    """Every weight as bytes, the configuration as text, and what is said of gaps."""
    torch.manual_seed(0)  # weights that the file does not have are drawn
    with quiet_transformers():
        model, gaps = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=dtype, output_loading_info=True
        )
    state = {
        name: tensor.contiguous().view(torch.uint8)
        for name, tensor in model.state_dict().items()
    }
    weights = {name: tensor.numpy().tobytes() for name, tensor in state.items()}
    return (
        weights,
        json.dumps(model.config.to_dict(), default=str, sort_keys=True),
        dict(gaps),
    )


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(
            ("llama", kind)
            for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q8_0)
        ),
        *(("llama", kind) for kind in (Kind.Q4_K, Kind.Q6_K, Kind.IQ4_XS)),
        ("gemma2", Kind.Q8_0),
        ("gpt2", Kind.Q8_0),
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
        embedded, "_VALUES_AT_ONCE", 5 * 256
    )  # so that every matrix is unpacked in pieces
    for dtype in (torch.bfloat16, torch.float32):
        wanted = bits(tmp_path / "x.gguf", dtype)
        with fast_gguf("read"):
            assert bits(tmp_path / "x.gguf", dtype) == wanted
    assert wanted[2]["missing_keys"] == set()
    assert wanted[2]["unexpected_keys"] == set()


def test_the_tokenizer_is_the_same_and_what_was_replaced_is_put_back(
    tmp_path: Path,
) -> None:
    write_gguf(small_llama(), tmp_path / "x.gguf")
    before = [getattr(module, name) for module, name in REPLACED]
    with quiet_transformers():
        wanted = AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf")
    with quiet_transformers(), fast_gguf("read"):
        assert all(
            getattr(module, name) is not old
            for (module, name), old in zip(REPLACED, before, strict=True)
        )
        found = AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf")
    assert tokenizer_fingerprint(found) == tokenizer_fingerprint(wanted)
    with (
        quiet_transformers(),
        fast_gguf("read"),
        pytest.raises(OSError, match=r"y\.gguf"),
    ):
        AutoTokenizer.from_pretrained(tmp_path, gguf_file="y.gguf")
    assert [getattr(module, name) for module, name in REPLACED] == before


def test_a_gguf_is_the_same_model_as_its_safetensors(tmp_path: Path) -> None:
    write_gguf(small_llama(), tmp_path / "small one.gguf")
    listener = Mock(spec=Silent())
    lm = load(str(tmp_path / "small one.gguf"), progress=listener)
    listener.start.assert_called_once_with("read small one.gguf (MB)", 1)
    assert lm.name == read_facts(str(tmp_path / "small one.gguf")).name == "small one"
    lm.model.save_pretrained(tmp_path / "saved")
    lm.tokenizer.save_pretrained(tmp_path / "saved")
    saved = load(str(tmp_path / "saved"))
    assert lm.fingerprint() == saved.fingerprint()
    assert tokenizer_fingerprint(lm.tokenizer) == tokenizer_fingerprint(saved.tokenizer)


def test_weights_with_gaps_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    write_gguf(small_llama(), file)
    content = file.read_bytes()
    assert content.count(b"blk.1.ffn_up.weight") == 1
    file.write_bytes(
        content.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight")
    )  # as many numbers, one unnamed
    with pytest.raises(
        UserError, match=r"it lacks model\.layers\.1\.mlp\.up_proj\.weight \(1 in all\)"
    ):
        load(str(file))


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
        (
            numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 9, 1) * 1000),
            "a list of type ARRAY",
        ),
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
            "quantised in a way that cannot be read",
        ),
    ],
)
def test_a_hostile_header_is_one_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with fast_gguf("read"), pytest.raises(ValueError, match=words):
        check_gguf(file)
    with pytest.raises(UserError, match=words):
        read_facts(str(file))
