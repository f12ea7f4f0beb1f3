"""A GGUF file is converted once: the copy is whole or does not count, and only what was made here is ever removed."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from anchorscope.cli.main import app
from anchorscope.errors import UserError
from anchorscope.models import converted, model_cache
from anchorscope.models.converted import clear, convert, converted_path, list_converted
from anchorscope.models.loading import load, make_ready, model_files, read_facts, source_signature
from anchorscope.models.model_cache import MANIFEST
from gguf_files import small_llama, write_gguf
from noting import Log

REAL = model_cache.convert_gguf


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "converted"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "small one.gguf"
    write_gguf(small_llama(), file)
    return file


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which files were converted."""
    seen: list[Path] = []

    def counted(gguf: Path, folder: Path) -> dict[str, Any]:
        seen.append(gguf)
        return REAL(gguf, folder)

    monkeypatch.setattr(converted, "convert_gguf", counted)
    return seen


def titles(log: Log) -> list[str]:
    return [entry[1] for entry in log.heard if entry[0] == "start"]


def test_a_gguf_is_converted_once_and_loads_the_same(shelf: Path, gguf: Path, made: list[Path]) -> None:
    log = Log()
    assert converted_path(gguf) is None
    first = load(str(gguf), progress=log)
    assert titles(log) == [f"convert small one.gguf once: 0 MB into {shelf}"]
    again = load(str(gguf), progress=log)
    assert len(titles(log)) == len(made) == 1
    assert first.name == again.name == read_facts(str(gguf)).name == "small one"
    assert first.source == again.source == str(gguf)
    assert first.fingerprint() == again.fingerprint()
    ids = torch.tensor([again.tokenizer("the hen").input_ids])
    with torch.no_grad():
        torch.testing.assert_close(again.model(ids).logits, small_llama()(ids).logits, rtol=1e-5, atol=1e-5)
    assert converted_path(gguf) == list_converted()[0].folder
    assert sorted(entry.name for entry in shelf.iterdir() if not entry.name.endswith(".lock")) == [
        list_converted()[0].folder.name
    ]


def test_the_same_bytes_elsewhere_are_known_and_others_are_not(
    shelf: Path, gguf: Path, tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = convert(gguf)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(gguf.read_bytes())
    assert convert(copy) == folder
    other = small_llama()
    with torch.no_grad():
        other.model.norm.weight += 1
    write_gguf(other, gguf)  # the same name, other weights
    os.utime(gguf, ns=(1, 1))
    assert converted_path(gguf) is None
    assert convert(gguf) != folder
    monkeypatch.setattr(converted, "EPOCH", converted.EPOCH + 1)
    assert converted_path(gguf) is None
    convert(gguf)
    assert len(made) == 3


@pytest.mark.parametrize(
    ("member", "how"),
    [
        ("model.safetensors", "byte"), ("model.safetensors", "missing"), ("config.json", "byte"),
        ("config.json", "missing"), ("tokenizer.json", "shorter"),
    ],
)  # fmt: skip
def test_a_damaged_copy_is_told_and_made_again(
    shelf: Path, gguf: Path, made: list[Path], member: str, how: str
) -> None:
    file = convert(gguf) / member
    whole = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(whole[:-1] if how == "shorter" else whole[:-1] + bytes([whole[-1] ^ 1]))
    assert converted_path(gguf) is None
    log = Log()
    assert convert(gguf, log) == file.parent
    (title,) = titles(log)
    assert title.startswith(f"convert small one.gguf again, as the cached copy is damaged ({member} ")
    assert file.read_bytes() == whole
    assert len(made) == 2
    assert len(list_converted()) == 1


def test_weights_that_were_changed_under_their_old_date_are_noticed(shelf: Path, gguf: Path) -> None:
    folder = convert(gguf)
    weights = folder / "model.safetensors"
    then, whole = weights.stat(), weights.read_bytes()
    os.utime(weights, ns=(1, 1))
    assert converted_path(gguf) == folder  # touched, but the same
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(weights, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert converted_path(gguf) is None


@pytest.mark.parametrize("stop", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_stopped_conversion_leaves_nothing(
    shelf: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    def broken(gguf: Path, folder: Path) -> dict[str, Any]:
        REAL(gguf, folder)
        raise stop

    monkeypatch.setattr(converted, "convert_gguf", broken)
    with pytest.raises(KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else UserError):
        make_ready(str(gguf))
    assert [entry for entry in shelf.iterdir() if not entry.name.endswith(".lock")] == []
    assert converted_path(gguf) is None


def test_weights_with_gaps_are_not_kept(shelf: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_gaps(gguf: Path, folder: Path) -> dict[str, Any]:
        return {**REAL(gguf, folder), "missing_keys": ["model.norm.weight"]}

    monkeypatch.setattr(converted, "convert_gguf", with_gaps)
    with pytest.raises(UserError, match=r"it lacks model\.norm\.weight"):
        load(str(gguf))
    assert list_converted() == []


def test_a_disk_that_is_too_small_is_one_line(shelf: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converted, "_float32_bytes", lambda file: 1 << 60)
    with pytest.raises(UserError, match=r"Converting 'small one.gguf' needs \d+ MB, found \d+ MB free in .*") as caught:
        load(str(gguf))
    assert "\n" not in str(caught.value)
    assert list_converted() == []


def test_the_size_is_that_of_the_dequantised_weights(shelf: Path, gguf: Path) -> None:
    values = sum(parameter.numel() for parameter in small_llama().parameters())
    assert converted._float32_bytes(gguf) == 4 * values


def cli(*given: str) -> Any:
    return CliRunner().invoke(app, ["models", *given])


def test_the_command_lists_and_clears(shelf: Path, gguf: Path) -> None:
    assert json.loads(cli("--clear", "all", "--json").stdout) == {"removed": [], "bytes": 0}
    folder = convert(gguf)
    size = sum(file.stat().st_size for file in folder.iterdir() if file.name != MANIFEST)
    (listed,) = json.loads(cli("--json").stdout)["converted"]
    assert listed == {"name": "small one", "source": str(gguf), "path": str(folder), "size_mb": round(size / 1e6)}
    assert "small one, converted from GGUF" in cli().output
    missed = cli("--clear", "small")
    assert isinstance(missed.exception, UserError | SystemExit)
    assert folder.exists()
    told = json.loads(cli("--clear", "small one", "--json").stdout)
    assert told["bytes"] == size
    assert [one["name"] for one in told["removed"]] == ["small one"]
    assert not folder.exists()
    convert(gguf)
    assert "removed small one (0 MB), converted from" in cli("--clear", "all").output
    assert list_converted() == []


def test_only_what_the_manifest_lists_is_removed(shelf: Path, gguf: Path) -> None:
    folder = convert(gguf)
    (folder / "notes.txt").write_text("mine")
    stranger = shelf / "stranger"
    stranger.mkdir()
    (stranger / "weights.bin").write_text("not ours")
    (stranger / MANIFEST).write_text(json.dumps({"kind": "something else", "files": {"weights.bin": 1}}))
    evil = shelf / "evil"
    evil.mkdir()
    victim = shelf.parent / "victim"
    victim.write_text("keep me")
    record = {"kind": "converted GGUF", "name": "evil", "source": {"path": "x"}, "files": {"../../victim": {"size": 7}}}
    (evil / MANIFEST).write_text(json.dumps(record))
    assert [one.name for one in clear("all")] == ["small one"]
    assert [entry.name for entry in folder.iterdir()] == ["notes.txt"]
    assert (stranger / "weights.bin").exists()
    assert victim.read_text() == "keep me"


def test_what_a_link_leads_to_is_not_removed(shelf: Path, gguf: Path, tmp_path: Path) -> None:
    folder = convert(gguf)
    own = tmp_path / "own"
    folder.rename(own)
    folder.symlink_to(own)
    before = sorted(file.name for file in own.iterdir())
    assert converted_path(gguf) == folder  # it may be used from elsewhere
    assert clear("all") == []
    assert sorted(file.name for file in own.iterdir()) == before


@pytest.mark.parametrize("record", [{"files": {"a": 5}}, {"files": {}, "source": 5, "name": "x"}, {"files": {}}])
def test_manifests_that_are_not_as_we_write_them_are_passed_over(shelf: Path, record: dict[str, Any]) -> None:
    (shelf / "odd").mkdir(parents=True)
    (shelf / "odd" / MANIFEST).write_text(json.dumps({"kind": "converted GGUF", **record}))
    assert list_converted() == []
    assert json.loads(cli("--json").stdout)["converted"] == []


def test_a_listed_name_that_is_a_folder_is_told(shelf: Path, gguf: Path) -> None:
    folder = convert(gguf)
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    (folder / "config.json" / "notes.txt").write_text("mine")
    assert converted_path(gguf) is None
    with pytest.raises(UserError, match="Cannot remove"):
        clear("all")
    assert (folder / "config.json" / "notes.txt").read_text() == "mine"


def test_a_signature_changes_with_the_files_and_nothing_else(shelf: Path, gguf: Path, tmp_path: Path) -> None:
    first = source_signature(str(gguf))
    assert first is not None
    folder = convert(gguf)
    assert source_signature(str(gguf)) == first
    os.utime(gguf, ns=(5, 5))
    assert source_signature(str(gguf)) == first  # touched, and the same
    of_folder = source_signature(str(folder))
    assert of_folder == source_signature(str(folder)) != first
    (folder / ".hidden").write_text("no part of the model")
    (folder / "pytorch_model.bin").write_text("never opened")
    assert source_signature(str(folder)) == of_folder
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert source_signature(str(copy)) == of_folder
    (folder / "adapter.json").write_text("{}")
    assert source_signature(str(folder)) != of_folder


def test_a_file_that_was_changed_under_its_old_date_is_another_model(shelf: Path, gguf: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(convert(gguf), tmp_path / "copy"))
    weights = folder / "model.safetensors"
    before, then = source_signature(str(folder)), weights.stat()
    with weights.open("r+b") as handle:  # one bit of the last number
        handle.seek(-1, os.SEEK_END)
        (last,) = handle.read(1)
        handle.seek(-1, os.SEEK_END)
        handle.write(bytes([last ^ 1]))
    os.utime(weights, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (then.st_size, then.st_mtime_ns)
    assert source_signature(str(folder)) != before


def test_the_files_of_a_model_are_listed_with_size_and_sha256(shelf: Path, gguf: Path) -> None:
    folder = convert(gguf)
    found = model_files(str(folder))
    assert found is not None
    assert set(found) == {one.name for one in folder.iterdir()}
    for name, told in found.items():
        content = (folder / name).read_bytes()
        assert told == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert model_files(str(gguf)) == {
        gguf.name: {"size": gguf.stat().st_size, "sha256": hashlib.sha256(gguf.read_bytes()).hexdigest()}
    }
    assert model_files("shape:llama-3.2-1b/8") is model_files("nowhere") is None


def test_names_that_point_nowhere_have_no_signature(shelf: Path, tmp_path: Path) -> None:
    assert source_signature("shape:llama-3.2-1b/8") == "shape:llama-3.2-1b/8"
    nowhere = ("smollm2-135m", "someone/not-cached", "some one/not possible!", "nowhere", f"{tmp_path}/x", "y" * 5000)
    for name in nowhere:
        assert source_signature(name) is None


def test_a_hub_snapshot_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False)
    repo = tmp_path / "models--someone--model"
    seen = set()
    for commit in ("a" * 40, "b" * 40):
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / "main").write_text(commit)
        for name in ("config.json", "model.safetensors"):
            (repo / "snapshots" / commit / name).write_text(f'{{"from": "{commit}"}}')
            os.utime(repo / "snapshots" / commit / name, ns=(1, 1))
        seen.add(source_signature("someone/model"))
    assert None not in seen
    assert len(seen) == 2
