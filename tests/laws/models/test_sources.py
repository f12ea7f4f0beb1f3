"""What a model's name points to: a signature sees every byte of its files, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest

from anchorscope.models.sources import source_signature
from gguf_models import small_llama, write_gguf


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "small one.gguf"
    write_gguf(small_llama(), file)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_llama().save_pretrained(tmp_path / "folder")
    return tmp_path / "folder"


def test_a_signature_changes_with_the_files_and_nothing_else(
    gguf: Path, folder: Path, tmp_path: Path
) -> None:
    first = source_signature(str(gguf))
    assert first is not None
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


def test_a_hub_snapshot_is_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(
        "huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path), raising=False
    )
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
