"""A broken plug-in, and every command that may load it: the command works, or says one line that names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repo import SOURCES

BROKEN = {
    "exits": "import sys\nsys.exit()",
    "exits-well": "import sys\nsys.exit(0)",
    "exits-badly": "raise SystemExit('bye')",
    "interrupts": "raise KeyboardInterrupt",
    "raises": "1 / 0",
    "syntax": "def",
    "imports": "import nowhere",
    "other": "ONE = 3",
    "deep": "def f():\n    f()\nf()",
    "base": "raise BaseException('x')",
    "interrupts-by-another-name": "class Stop(KeyboardInterrupt): ...\nraise Stop",
    "no-text": "class E(Exception):\n    __str__ = None\nraise E",
    "exits-when-looked-at": "class A:\n    @property\n    def __class__(self): raise SystemExit\nONE = A()",
}
GROUPS = ("graders", "datasets", "experiments", "families")
COMMANDS = (
    ("plugins",),
    ("run", "--model", "nowhere", "--out", "out"),
    ("data", "atlas"),
    ("models",),
)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("group", GROUPS)
def test_no_command_ends_without_a_word(name: str, group: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN[name] + "\n")
    folder = tmp_path / "things-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: things\nVersion: 1.0\n"
    )
    points = f"[anchorscope.{group}]\n{name} = broken:ONE\n"
    (folder / "entry_points.txt").write_text(points)
    paths = os.pathsep.join([str(SOURCES), str(tmp_path)])
    words = COMMANDS[(list(BROKEN).index(name) + GROUPS.index(group)) % len(COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-m", "anchorscope", *words],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(lines)) in ((0, 0), (2, 1)), done.stderr
    if words == ("plugins",):
        assert f"The plug-in {name!r} of package things 1.0" in done.stderr
    if done.returncode == 0:
        assert done.stdout
    assert not (tmp_path / "out").exists()
