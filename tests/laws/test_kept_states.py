"""Room for states is looked at before they are made."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from anchorscope.errors import UserError
from anchorscope.kept_states import refuse_full_disk


def test_too_little_room_is_reported_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100 * 10**9))
    with pytest.raises(UserError, match=r"\d+\.0 GB.* has 100\.0 GB free; "):
        refuse_full_disk(tmp_path, 51 * 10**9)
