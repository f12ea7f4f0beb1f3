"""`anchorscope detect` from kept states to tables, bundles and page; and what it refuses, in one line."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result

from anchorscope.catalogue import DETECTORS
from anchorscope.detecting import detect as story
from anchorscope.detecting.detect import BUNDLES, Detection, DetectOptions, _command
from anchorscope.detectors.bundle import read_bundle
from anchorscope.detectors.bundle_files import bundle_files
from anchorscope.detectors.evaluation import COMPARED
from anchorscope.errors import UserError
from anchorscope.files import partial_name
from anchorscope.report import detection
from anchorscope.report.panel_figure import ExperimentFigure
from anchorscope.stats.detection_metrics import METRICS
from commands import invoke
from kept_runs import STATES, questions_of, write_kept_run
from whole_runs import files_of

QUICK = {"folds": 2, "seeds": 2, "tosses": 2, "resamples": 100, "device": "cpu"}
FEW = ("confidence", "probe", "probe+confidence", "relation")
TABLES = ("detectors.csv", "differences.csv", "detector_curves.csv", "controls.csv")


def command(*arguments: object) -> Result:
    quick = [
        part for name, value in QUICK.items() for part in (f"--{name}", str(value))
    ]
    return invoke("detect", *map(str, arguments), *quick)


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = (one for one in result.stderr.splitlines() if one.startswith("error: "))
    assert result.stderr.rstrip().endswith(line)
    return line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kept_run(
        tmp_path_factory.mktemp("runs") / "facts", [questions_of("facts")]
    )


@pytest.fixture(scope="module")
def detected(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Detection:
    """Every detector, compared; the page is written, and its figures are drawn."""

    def draw(figures: Sequence[ExperimentFigure], *_: object) -> None:
        for figure in figures:
            figure.plot()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detection, "save_all", draw)
        return story.detect(
            [run], out=tmp_path_factory.mktemp("detect") / "out", **QUICK
        )


@pytest.fixture
def unprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are left out: they take the time, and one test looks at them."""
    monkeypatch.setattr(detection, "save_all", lambda *_: None)


def test_the_detector_that_the_answer_names_is_the_recommended_one(
    detected: Detection,
) -> None:
    answer, name = detected.manifest["answer"], detected.manifest["recommended"]
    assert answer.startswith(f"Use {name} (" if name else "No detector is recommended")
    assert detected.recommended == (
        detected.path / "bundles" / name if name in BUNDLES else None
    )


def test_the_command_that_repeats_it_works_where_it_was_made() -> None:
    runs = [Path("runs/a"), Path("/home/runs/b")]
    options = DetectOptions(detectors=("probe",))
    words = "anchorscope detect runs/a --detectors probe"
    assert _command(runs[:1], Path("runs/a/detectors"), options) == words
    both = "anchorscope detect runs/a b --out runs/ab"
    assert _command(runs, Path("runs/ab"), DetectOptions()) == both


def test_every_detector_has_every_metric_with_an_interval(detected: Detection) -> None:
    table = detected.detectors
    assert set(table["detector"]) == set(DETECTORS)
    assert (
        table.select("detector", "train", "test", "metric", "prevalence")
        .is_duplicated()
        .sum()
        == 0
    )
    assert set(table["n"]) == {80}
    for name, entry in DETECTORS.items():
        own = table.filter(pl.col("detector") == name)
        assert set(own["passes"]) == {entry.passes}
        if entry.variant_of is None:
            for prevalence in ("balanced", "natural"):
                found = own.filter(pl.col("prevalence") == prevalence)[
                    "metric"
                ].to_list()
                assert set(found) - {"auroc-spread"} == {"auroc", *METRICS}, (
                    name,
                    prevalence,
                )
        else:
            assert set(own["metric"]) == {"auroc", "auroc-spread"}
    told = table.filter(pl.col("metric") != "auroc-spread")
    assert told.filter(~(pl.col("ci_low") <= pl.col("ci_high"))).is_empty()
    areas = dict(
        table.filter(
            (pl.col("metric") == "auroc") & (pl.col("prevalence") == "balanced")
        )
        .select("detector", "value")
        .iter_rows()
    )
    assert areas["probe+confidence"] > 0.75  # the made world has much to find
    assert abs(areas["random-weights"] - 0.5) < 0.2


def test_differences_are_those_of_the_values(detected: Detection) -> None:
    keys = ["detector", "train", "test", "metric", "prevalence"]
    values = detected.detectors.select(*keys, "value")
    both = detected.differences.join(values, on=keys).join(
        values.rename({"detector": "against", "value": "other"}),
        on=["against", *keys[1:]],
    )
    assert both.height == detected.differences.height
    assert ((both["value"] - both["other"]) - both["difference"]).abs().max() < 1e-9
    assert set(both["metric"]) == set(COMPARED)
    others = {"confidence", "probe", "probe+confidence"}
    for name in set(DETECTORS) - others:
        assert others <= set(both.filter(pl.col("detector") == name)["against"]), name


def test_bundles_say_what_was_measured(detected: Detection) -> None:
    for name in BUNDLES:
        found = read_bundle(detected.path / "bundles" / name)
        assert found.name == name
        assert found.setting.fingerprint == "weights"
        assert (
            len(found.card.quality)
            == detected.detectors.filter(pl.col("detector") == name).height
        )
        leading = found.thresholds[0]
        least = min((one.risk for one in found.thresholds if one.coverage), default=1.0)
        assert {one.risk for one in found.thresholds} >= {
            risk for risk in (0.1, 0.05, 0.2, 0.3) if risk < least
        }
        reached = [one for one in found.thresholds if one.probability is not None]
        warned = any(
            f"{name} calls no answer true at any of its risks" in text
            for text in detected.manifest["warnings"]
        )
        assert warned == (not reached), name
        # three in ten answers, which stand for different numbers
        assert not reached or 0.1 < leading.coverage < 0.5
        # 40 true, and 3 × 40 false behind the used ones
        assert found.calibration.prevalence == pytest.approx(0.25)
        assert found.range is not None
        assert found.range.longest == 26
        assert sum(row["n"] for row in found.card.calibration) == 80


@pytest.mark.usefixtures("unprinted")
def test_one_object_for_programs_and_only_what_is_asked_for(
    run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = (
        "--detectors",
        "probe,confidence",
        "--bundles",
        "probe",
        "--risk",
        "0.25",
        "--json",
    )
    result = command(run, "--out", out, *arguments)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["out"], told["model"], told["runs"], told["bundles"]) == (
        str(out),
        "tiny",
        ["facts"],
        ["confidence", "probe"],
    )
    assert (
        told["recommended"] == "confidence"
    )  # saved although only the probe was wanted
    assert bundle_files(out) == bundle_files(out / "bundles" / "confidence")
    assert (
        "warning: facts has fewer than 200 true answers: intervals are wide\n"
        in result.stderr
    )
    assert set(pl.read_csv(out / "detectors.csv")["detector"]) == {
        "probe",
        "confidence",
    }
    saved = sorted(path.name for path in (out / "bundles").iterdir())
    assert saved == ["confidence", "probe"]
    assert [one.risk for one in read_bundle(out / "bundles" / "probe").thresholds] == [
        0.25
    ]
    quiet = command(
        run, "--out", out, *arguments[:-1], "--quiet"
    )  # an earlier one is replaced
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.usefixtures("unprinted")
def test_what_was_not_kept_is_left_out_and_said(tmp_path: Path) -> None:
    path = write_kept_run(
        tmp_path / "run", [questions_of("facts")], kept=STATES, features=False
    )
    found = story.detect(
        [path], out=tmp_path / "out", detectors=(*FEW, "mop", "p-true"), **QUICK
    )
    warnings = " ".join(found.manifest["warnings"])
    assert (
        "run did not keep states-cut and detection, not computed now: Unknown model 'tiny'"
        in warnings
    )
    assert found.manifest["left_out"] == {
        "mop": "states of the run 'knockout' were not kept",
        "p-true": "the column 'p_true' was not kept",
    }
    assert set(found.detectors["detector"]) == set(FEW)
    assert found.manifest["bundles"] == sorted({*BUNDLES} & {*FEW})


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_model_of_the_hub_is_named_before_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    """The recipe of a run from elsewhere may name any model: nothing is asked of the hub without a line."""
    path = write_kept_run(
        tmp_path / "run",
        [questions_of("facts")],
        kept=STATES,
        features=False,
        model="strangers/model",
    )

    def ask_the_hub(*_: object, **__: object) -> None:
        raise UserError("the hub was asked")

    monkeypatch.setattr(story, "run_recipe", ask_the_hub)
    result = command(path, "--out", tmp_path / "out", *quiet)
    assert "the hub was asked" in refused(result)
    told = result.stderr.splitlines()
    (named,) = (line for line in told if "with strangers/model, fetched from" in line)
    assert told.index(named) < len(told) - 1


def test_a_run_that_kept_no_states_before_the_answer_has_the_others(
    tmp_path: Path,
) -> None:
    path = write_kept_run(
        tmp_path / "run", [questions_of("facts")], kept=("clean",), features=False
    )
    found = story.detect([path], out=tmp_path / "out", detectors=FEW, **QUICK)
    assert not any("did not keep" in line for line in found.manifest["warnings"])
    more = story.detect(
        [path], out=tmp_path / "more", detectors=(*FEW, "auto"), **QUICK
    )
    assert "run did not keep states, not computed now" in " ".join(
        more.manifest["warnings"]
    )
    assert (
        set(more.detectors["detector"]) == set(found.detectors["detector"]) == set(FEW)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--folds", 1), "--folds is 1; at least 2 is needed."),
        (
            ("--risk", 2),
            "--risk is 2; it is a share of the accepted answers, between 0 and 1.",
        ),
        (("--risk", "nan"), "--risk is nan; it is a share"),
        (
            ("--risk", "x"),
            "--risk is 'x'; give shares between 0 and 1 with commas, like 0.1,0.2.",
        ),
        (
            ("--detectors", "prob"),
            "Unknown detector 'prob'; allowed: auto, confidence, eigen-score-10",
        ),
        (("--bundles", "aut"), "Did you mean 'auto'?"),
        (("--bundles", "relation"), "'relation' cannot be saved"),
        (("--bundles", "probe,p-true"), "'p-true' cannot be saved"),
        (("--bundles", "mop-random-gate"), "'mop-random-gate' cannot be saved"),
        (("--device", "tpu"), "Device 'tpu' cannot be used here"),
        (
            ("--folds", 60),
            "40 groups are too few for 60 folds: some would be empty; take fewer (--folds)",
        ),
    ],
)
def test_wrong_options_are_one_line_alone(
    arguments: tuple[object, ...], message: str, run: Path, tmp_path: Path
) -> None:
    quick = {
        name: value for name, value in QUICK.items() if f"--{name}" not in arguments
    }
    flags = [
        part for name, value in quick.items() for part in (f"--{name}", str(value))
    ]
    whole = [
        "detect",
        str(run),
        "--out",
        str(tmp_path / "out"),
        *flags,
        *map(str, arguments),
    ]
    assert message in refused(invoke(*whole))
    assert not list(tmp_path.iterdir())


def test_runs_that_cannot_be_used_are_one_line_and_nothing_is_written(
    run: Path, tmp_path: Path
) -> None:
    facts = questions_of("facts")
    made = {
        "bare": write_kept_run(tmp_path / "bare", [facts], kept=()),
        "few": write_kept_run(tmp_path / "few", [questions_of("few", n_true=29)]),
        "nan": write_kept_run(
            tmp_path / "nan", [questions_of("nan")], nan_in="knockout"
        ),
        "other": write_kept_run(
            tmp_path / "other", [questions_of("more")], fingerprint="others"
        ),
        "again": write_kept_run(tmp_path / "again", [facts]),
        "site": write_kept_run(
            tmp_path / "site", [questions_of("more")], site="residual"
        ),
        "damaged": write_kept_run(tmp_path / "damaged", [facts]),
        "lump": write_kept_run(
            tmp_path / "lump",
            [replace(questions_of("lump"), groups=np.zeros(80, np.int64))],
        ),
        "pure": write_kept_run(
            tmp_path / "pure", [replace(questions_of("pure"), groups=np.arange(80) % 4)]
        ),
        "empty": tmp_path / "empty",
    }
    place = made["damaged"] / "states" / "facts" / "knockout.safetensors"
    place.write_bytes(place.read_bytes()[:-9])
    made["empty"].mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    for paths, message in (
        (
            [made["bare"]],
            "kept no states, and they cannot be computed now: Unknown model 'tiny'",
        ),
        (
            [made["few"]],
            "has 29 true and 51 false answers; a detector needs at least 30 of each",
        ),
        ([made["nan"]], "The knockout states of 'nan' in "),
        (
            [run, made["other"]],
            "differ in their model ('weights' and 'others'); a detector reads one.",
        ),
        (
            [run, made["site"]],
            "differ in their site ('mlp' and 'residual'); a detector reads one.",
        ),
        ([run, made["again"]], "Two runs have the dataset 'facts'"),
        (
            [made["damaged"]],
            "is damaged: states/facts/knockout.safetensors is not what was written",
        ),
        ([made["lump"]], "1 groups are too few for 2 folds"),
        (
            [made["pure"]],
            "40 true and 40 false answers in 4 groups are too few: every fold needs some of both",
        ),
        ([made["empty"]], "is not a finished run (no manifest.json)"),
        ([tmp_path / "file"], "is not a finished run"),
    ):
        assert message in refused(command(*paths, "--out", tmp_path / "out")), message
        assert sorted(tmp_path.rglob("*")) == before, message
    with pytest.raises(UserError, match="No run is named"):
        story.detect([], out=tmp_path / "out")
    with pytest.raises(
        UserError,
        match="2 runs are given, and no folder for the result; name one with --out",
    ):
        story.detect([run, made["other"]])


@pytest.mark.usefixtures("unprinted")
def test_what_is_stopped_leaves_what_was_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "tosses": 0, "detectors": ("probe",), "bundles": ("probe",)}
    left = tmp_path / partial_name("out") / "bundles"  # as a killed one leaves it
    left.mkdir(parents=True)
    (left / "detector.json").write_text("{")
    earlier = story.detect([run], out=tmp_path / "out", **options)
    kept = files_of(earlier.path)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        story, "write_detection_report", stopped
    )  # tables and bundles are written by then
    result = command(
        run, "--out", tmp_path / "new", "--detectors", "probe", "--bundles", "probe"
    )
    assert result.exit_code == 130
    assert "stopped; nothing half made was kept" in result.stderr
    with pytest.raises(KeyboardInterrupt):
        story.detect([run], out=tmp_path / "out", **options, fresh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert files_of(tmp_path / "out") == kept
