"""Lists and settings from anywhere: regular files only, and none that is too long."""

import os
from pathlib import Path

import pytest

from anchorscope.artefacts.run_folder import read_index, read_manifest
from anchorscope.artefacts.sealed_folder import INDEX, read_sealed
from anchorscope.detectors.bundle import read_bundle
from anchorscope.errors import UserError
from anchorscope.files import read_regular


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_has_no_end_is_refused_in_every_place(kind: str, tmp_path: Path) -> None:
    for name in ("a", "manifest.json", INDEX, "detector.json"):
        place = tmp_path / name
        if kind == "device":
            place.symlink_to("/dev/zero")
        elif kind == "pipe":
            os.mkfifo(place)
        else:
            place.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - a folder cannot even be opened so
        read_regular(tmp_path / "a")
    with pytest.raises(OSError):  # noqa: PT011
        read_sealed(tmp_path / "a")
    for read in (read_manifest, read_index, read_bundle):
        with pytest.raises(UserError):
            read(tmp_path)
