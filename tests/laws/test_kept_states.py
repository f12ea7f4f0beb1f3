"""Room for states is looked at before they are made, and layers are named in numbers that a model can have."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from anchorscope.errors import UserError
from anchorscope.kept_states import parse_layers, refuse_full_disk


def test_too_little_room_is_reported_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100 * 10**9))
    with pytest.raises(UserError, match=r"\d+\.0 GB.* has 100\.0 GB free; "):
        refuse_full_disk(tmp_path, 51 * 10**9)


@pytest.mark.parametrize("text", ["0-99999999999999", "9" * 5000, "²", "3-1", "4", "-1", "", "0-999999999", "a"])
def test_layers_that_no_model_has_are_refused_at_once(text: str) -> None:
    with pytest.raises(UserError, match="--keep-layers ") as refused:
        parse_layers(text, 4)
    assert len(str(refused.value)) < 200
