"""The main job on real weights, as a user runs it: the embedded model on the atlas, through the command.

One run serves all tests here. Its effects are then recomputed with plain transformers from the files alone.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

import needs
from recompute import recompute

pytestmark = pytest.mark.embedded

LIMIT = 100
"""Questions asked: four of ten answers are true, and a run needs 30 true and 30 false ones."""
RECOMPUTED = 2
"""Items whose passes are run again by transformers."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("embedded") / "run"
    options = [
        "--limit",
        str(LIMIT),
        "--balance",
        "dataset",
        "--max-per-class",
        "30",
        "--max-new-tokens",
        "8",
    ]
    options += [
        "--bootstrap",
        "200",
        "--folds",
        "3",
        "--random-cuts",
        "1",
        "--directions",
        "2",
        "--no-report",
    ]
    options += ["--out", str(out), "--json"]
    command = [sys.executable, "-m", "anchorscope", "run", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["out"] == str(out)
    return out


def test_the_model_answers_some_and_not_all(run: Path) -> None:
    items = pl.read_parquet(run / "items.parquet")
    assert items.height == LIMIT
    assert 0.3 <= items["truthful"].mean() <= 0.6
    used = items.filter(pl.col("status") == "used")
    assert used["truthful"].sum() * 2 == used.height == 60
    assert items["confidence_mean"].is_not_null().all()


def test_plain_transformers_gives_the_same_effects(run: Path) -> None:
    folder = needs.embedded_model()
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    found = recompute(run, model, n_items=RECOMPUTED)
    assert found.log_odds < 1e-2
    assert found.probability < 1e-3
    assert found.effect > 0.1
    assert found.n_scores == RECOMPUTED * 2 * 3 * 30


def test_the_chart_is_what_the_method_promises(run: Path) -> None:
    curves = pl.read_csv(run / "curves.csv").filter(
        (pl.col("site") == "mlp") & (pl.col("truth") == "all")
    )

    def curve(intervention: str, group: str) -> list[float]:
        rows = curves.filter(
            (pl.col("intervention") == intervention) & (pl.col("group") == group)
        ).sort("layer")
        return rows["delta_p"].to_list()

    middle = slice(13, 20)
    q, a = curve("knockout", "Q-Anchored"), curve("knockout", "A-Anchored")
    assert mean(q[middle]) < mean(a[middle]) - 5, (
        "Q-Anchored lies below A-Anchored in the middle layers"
    )
    assert abs(q[0]) < 2, "at the first layer hardly anything has flowed yet"
    random = curve("random", "Q-Anchored")
    assert sum(random[middle]) / sum(q[middle]) < 0.5, "random tokens do much less"
    assert max(map(abs, curve("none", "Q-Anchored"))) < 0.01, (
        "cutting nothing changes nothing"
    )


def test_the_signal_is_real_and_told_beside_its_baselines(run: Path) -> None:
    scores = pl.read_csv(run / "probe_scores.csv")
    clean = scores.filter(
        (pl.col("intervention") == "clean") & (pl.col("site") == "mlp")
    )
    assert clean.filter(pl.col("kind") == "transfer")["auc"].max() > 0.65
    kinds = set(scores["kind"].unique())
    assert kinds >= {
        "relation-only",
        "words",
        "confidence-mean",
        "confidence-min",
        "within-relation",
        "refit",
    }
