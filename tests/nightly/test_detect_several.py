"""`anchorscope detect` on several datasets, and the same command twice."""

from pathlib import Path

import polars as pl
import pytest

from anchorscope.detecting import detect as story
from anchorscope.detecting.detect import Detection
from anchorscope.detectors.bundle import read_bundle
from anchorscope.report import detection
from kept_runs import CUTS, STATES, questions_of, write_kept_run

QUICK = {"folds": 2, "seeds": 2, "tosses": 2, "resamples": 100, "device": "cpu"}
FEW = ("confidence", "probe", "probe+confidence", "relation")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that kept all that detectors can read."""
    return write_kept_run(
        tmp_path_factory.mktemp("runs") / "facts", [questions_of("facts")]
    )


@pytest.fixture
def unprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are left out: no test here looks at them."""
    monkeypatch.setattr(detection, "save_all", lambda *_: None)


@pytest.fixture(scope="module")
def several(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Detection:
    """Three datasets of two runs, one of them asked under another prompt too; the other runs kept less."""
    folder = tmp_path_factory.mktemp("several")
    others = [questions_of("more", seed=1), questions_of("third", seed=2, shift=0.5)]
    zero = questions_of("facts", seed=3)
    paths = [
        run,
        write_kept_run(folder / "others", others, kept=CUTS),
        write_kept_run(folder / "zero", [zero], kept=STATES, prompt="zero-shot"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection, "save_all", lambda *_: None)
        names = (*FEW, "mop")
        return story.detect(
            paths,
            out=folder / "out",
            detectors=names,
            bundles=("probe",),
            **{**QUICK, "tosses": 0},
        )


def test_several_datasets_make_a_matrix_and_each_is_left_out_once(
    several: Detection,
) -> None:
    sets, prompted = ("facts", "more", "third"), "facts (prompt zero-shot)"
    table = several.detectors
    cells = {(train, test) for train in sets for test in (*sets, prompted)} | {
        (f"all but {one}", one) for one in sets
    }
    for name in ("probe", "probe+confidence"):
        own = table.filter((pl.col("detector") == name) & (pl.col("metric") == "auroc"))
        for prevalence in ("balanced", "natural"):
            found = own.filter(pl.col("prevalence") == prevalence)
            assert set(found.select("train", "test").iter_rows()) == cells
            assert found["value"].is_finite().all()
    relation = table.filter(pl.col("detector") == "relation")
    assert (
        relation["train"] == relation["test"]
    ).all()  # other data have other relations
    cut = set(
        table.filter(pl.col("detector") == "mop").select("train", "test").iter_rows()
    )
    assert ("more", "third") in cut
    assert several.manifest["trained_on"] == list(sets)
    card = read_bundle(several.path / "bundles" / "probe").card
    assert card.data.startswith("240 answers (facts: 80 answers")
    assert set(card.shifts) == {*sets, prompted}


@pytest.mark.usefixtures("unprinted")
def test_the_same_command_gives_the_same_tables_to_the_last_byte(
    run: Path, tmp_path: Path
) -> None:
    few = (
        "confidence",
        "probe",
        "probe+confidence",
        "saplma",
        "mop",
        "auto",
        "mop-random-gate",
    )
    detected, again = (
        story.detect(
            [run], out=tmp_path / name, detectors=chosen, bundles=("auto",), **QUICK
        )
        for name, chosen in (("all", ()), ("again", few))
    )
    for name in ("detectors", "differences", "detector_curves"):
        lines = (detected.path / f"{name}.csv").read_text().splitlines()
        place = lines[0].split(",").index("detector")
        own = [lines[0], *(line for line in lines[1:] if line.split(",")[place] in few)]
        # whatever else is compared
        assert (again.path / f"{name}.csv").read_text().splitlines() == own, name
    # Where labels are tossed the interval is wider the more detectors are asked.
    values = [
        pl.read_csv(one.path / "controls.csv").drop("low", "high")
        for one in (again, detected)
    ]
    assert values[0].equals(values[1].filter(pl.col("detector").is_in(few)))
    bundle = "bundles/auto/weights.safetensors"
    assert (again.path / bundle).read_bytes() == (detected.path / bundle).read_bytes()
