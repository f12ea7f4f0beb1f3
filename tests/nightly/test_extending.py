"""The diffs of docs/extending.md apply to the tree, one by one and together, and do what the page says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import Block, blocks
from repo import DOCS, ROOT

DIFFS = [block for block in blocks(DOCS / "extending.md") if block.language == "diff"]
CHECK = """
from anchorscope.catalogue import DETECTORS, GRADERS
from anchorscope.datasets.formats import recognise_format
from anchorscope.experiments.experiment import chosen_experiments
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.families import listed_family
from anchorscope.plugins import load_at
from tiny_models import build_tiny

assert build_tiny("glm4").family is listed_family("glm4")
assert recognise_format({"front": "Q?", "back": ["A"]}).translate({"front": "Q?", "back": ["A"]})["answers"] == ["A"]
assert "last-word" in [one.name for one in of_experiments(["exact-tokens"])]
assert [one.name for one in chosen_experiments(["question-length"])] == ["question-length"]
assert DETECTORS["least-likely-token"].passes == 0 and DETECTORS["least-likely-token"].columns == ("log_prob_min",)
assert load_at("graders", "exact-match", GRADERS["exact-match"]).grade(" paris", ["Paris"], None)
"""


def apply(text: str, tree: Path, *options: str) -> None:
    command = ["git", "apply", *options, "-"]
    done = subprocess.run(
        command, cwd=tree, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("diff", DIFFS, ids=str)
def test_a_diff_applies(diff: Block) -> None:
    apply(diff.text, ROOT, "--check")


def test_all_diffs_together_add_one_of_each(tmp_path: Path) -> None:
    for name in ("src", "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for diff in DIFFS:
        apply(diff.text, tmp_path)
    paths = os.pathsep.join(str(tmp_path / name) for name in ("src", "tests/support"))
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
