"""`--no-report`: every table and the answer, sealed; no page and no figures until they are asked for."""

from pathlib import Path

import anchorscope
from anchorscope.pipeline import run_recipe
from commands import invoke
from unprinted import unprinted
from whole_runs import SmallRun, files_of, watching

PAGE = {"report.html", "report.md"}


def pages_of(out: Path) -> set[str]:
    return {
        name for name in files_of(out) if name in PAGE or name.startswith("figures/")
    }


def test_a_run_without_a_report_is_whole_and_can_be_read(small_run: SmallRun) -> None:
    out = small_run.finished
    assert not small_run.recipe.report
    assert pages_of(out) == set()
    assert anchorscope.verify(out, progress=None).whole
    run = anchorscope.open_run(out)
    assert {"answer.json", "observations.json"} <= set(run.manifest["sha256"])
    assert run.card.sentence
    assert run.observations
    assert run.figure().axes
    shown = invoke("show", str(out))
    assert shown.exit_code == 0, shown.output


def test_the_same_recipe_with_a_report_adds_it_and_computes_nothing(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    with watching() as made, unprinted("delta_p"):
        run_recipe(small_run.recipe.model_copy(update={"report": True}), out)
    assert made == []
    assert pages_of(out) >= {*PAGE, "figures/delta_p.png"}
    for name, content in small_run.tables.items():
        assert (out / name).read_bytes() == content, name
    assert anchorscope.verify(out, progress=None).whole
