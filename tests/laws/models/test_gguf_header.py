"""GGUF headers: every length that a file gives itself is compared with the file before anything is read by it."""

import struct
from pathlib import Path

import pytest

from anchorscope.errors import UserError
from anchorscope.models.gguf_files import check_gguf, fast_gguf
from anchorscope.models.loading import load, read_facts
from anchorscope.models.plain_files import Unfit
from gguf_models import small_llama, write_gguf

MAGIC = b"GGUF" + struct.pack("<I", 3)


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def fact(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def numbers(tensors: int, facts: int) -> bytes:
    return MAGIC + struct.pack("<QQ", tensors, facts)


NAMED = fact(b"general.architecture", 8, text(b"llama"))
ONE = numbers(1, 1) + NAMED + text(b"t")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(small_llama(), file)
    return file


def test_the_tensors_of_a_whole_file_are_counted(whole: Path) -> None:
    found = check_gguf(whole)
    assert found.total == sum(parameter.numel() for parameter in small_llama().parameters())
    assert found.values["token_embd.weight"] == 260 * 32


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut off"),
        (b"GGML" + b"\0" * 40, "magic invalid"),
        (b"GGUF" + struct.pack("<I", 9) + b"\0" * 16, "version 9"),
        (numbers(0, 10**18) + NAMED, "cut off"),
        (numbers(2**64 - 1, 1) + NAMED, "cut off"),
        (numbers(0, 1) + struct.pack("<Q", 2**63) + b"x", "cut off"),
        (numbers(0, 1) + struct.pack("<Q", 10**6) + b"x", "cut off"),
        (numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 4, 2**62)), "a list of 4,611,686,018,427,387,904 members"),
        (numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 8, 10**7)), "cut off"),
        (numbers(0, 1) + fact(b"a", 9, struct.pack("<IQ", 9, 1) * 1000), "a list of type ARRAY"),
        (numbers(0, 1) + fact(b"a", 99, b""), r"99\W* is not a valid GGUFValueType"),
        (numbers(0, 1) + fact(b"llama.block_count", 4, struct.pack("<I", 10**7)), "llama.block_count = 10000000"),
        (numbers(0, 1) + fact(b"general.alignment", 4, struct.pack("<I", 0)), "Invalid alignment"),
        (ONE + struct.pack("<I", 2**32 - 1), "cut off"),
        (ONE + struct.pack("<IQIQ", 1, 32, 999, 0) + b"\0" * 999, r"999\W* is not a valid GGMLQuantizationType"),
        (ONE + struct.pack("<IQIQ", 1, 32, 26, 0) + b"\0" * 999, "quantised in a way that cannot be read"),
        (ONE + struct.pack("<IQQQQIQ", 4, *[2**40] * 4, 0, 0) + b"\0" * 99, "cut off"),
        (ONE + struct.pack("<IQIQ", 1, 32, 0, 2**62) + b"\0" * 999, "cut off"),
    ],
)
def test_a_hostile_header_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with fast_gguf("read"), pytest.raises(Unfit, match=words):
        check_gguf(file)
    with pytest.raises(UserError, match=words) as caught:
        read_facts(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_refused(whole: Path, tmp_path: Path, share: float) -> None:
    content = whole.read_bytes()
    file = tmp_path / "part.gguf"
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(UserError, match="cannot be read"):
        read_facts(str(file))


def test_more_than_the_file_holds_is_not_made(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "wide.gguf"
    known, asked = (fact(b"llama.feed_forward_length", 4, struct.pack("<I", width)) for width in (64, 60_000))
    assert known in whole.read_bytes()
    file.write_bytes(whole.read_bytes().replace(known, asked))
    for read in (read_facts, load):
        with pytest.raises(UserError, match=r"numbers where .* are needed"):
            read(str(file))


def test_settings_beside_the_file_are_looked_at_too(whole: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(whole.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RagTokenizer"}')
    with pytest.raises(UserError, match="which is no tokenizer"):
        read_facts(str(file))


@pytest.mark.parametrize("limit", [50_000, 10**9])
def test_a_conversion_that_cannot_fit_is_not_begun(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("anchorscope.models.memory.host_memory", lambda: (limit, limit))
    if limit > 10**8:
        assert load(str(whole)).n_layers == 2
        return
    with pytest.raises(UserError, match=r"dequantised weights .* GB of memory"):
        load(str(whole))


def test_numbers_that_are_no_sizes_may_be_large(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(numbers(0, 1) + fact(b"general.parameter_count", 10, struct.pack("<Q", 7 * 10**9)))
    assert check_gguf(file).total == 0
