"""`validate`: the whole evidence on the planted model, marked against what was planted.

The run is an ordinary one, with the ordinary recipe and the ordinary run folder; only the questions, answers and
weights are ours. What comes out is read from that folder. The harder worlds, which have no model, come after it.

What counts is the AUC within true and within false answers: an experiment that only knows the label reaches a high AUC
over all answers wherever pathway and label go together, and none within them.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl
import torch

from anchorscope.artefacts.run_folder import is_run
from anchorscope.artefacts.sealed_folder import read_sealed, refuse_foreign, sealed_text
from anchorscope.catalogue import RATED
from anchorscope.errors import UserError
from anchorscope.execute.choose import Choice
from anchorscope.files import files_below, new_folder, replacing, writable
from anchorscope.json_text import from_json
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.pipeline import run_recipe
from anchorscope.planted.items import (
    MODEL_FOLDER,
    PlantedItem,
    json_lines,
    planted_items,
)
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.findings import TRUTHS, find, present, select
from anchorscope.report.page import (
    Section,
    SectionFigure,
    SectionsPage,
    filled,
    write_sections_page,
)
from anchorscope.report.panel_figure import (
    ChartSpec,
    ExperimentFigure,
    Forest,
    save_all,
)
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, shown
from anchorscope.validation.recovery import (
    MAIN_WAYS,
    Items,
    read_items,
    read_scores,
    recovery_table,
    sentences,
)
from anchorscope.validation.worlds import (
    SIZES,
    WORLDS,
    run_worlds,
    worlds_sentences,
    worlds_summary,
    worlds_table,
)

DATASET = "planted"
SUMMARY = "validation.json"


@dataclass(frozen=True)
class Options:
    """What to validate with."""

    items: int = 1200
    """Planted items."""
    evidence: tuple[str, ...] = RATED
    """Experiments to rate; `all` for all that can be."""
    seed: int = 0
    bootstrap: int = 2000
    device: str = "auto"
    world_items: tuple[int, ...] = tuple(SIZES)
    """Numbers of items in the harder worlds."""
    replicas: int | None = None
    """Replicas of every world; None: the usual few."""
    worlds: tuple[str, ...] = tuple(WORLDS)
    """Names of the worlds."""
    threads: int | None = None
    """Threads that a worker computes with on a CPU; None: as many as torch takes here."""
    choice: Choice = field(default_factory=Choice)
    """Who runs the planted model; the harder worlds have none."""


def validate(
    out: Path, options: Options, fresh: bool = False, progress: Progress | None = None
) -> Path:
    """Runs everything into a folder: the run itself, the worlds, the tables, the figures and the page."""
    listener = progress or Silent()
    questions = out / f"{DATASET}.jsonl"
    wanted = RATED if "all" in options.evidence else options.evidence
    recipe = make_recipe(
        {
            "model": str(MODEL_FOLDER),
            "datasets": (f"file:{questions}",),
            "prompt": "zero-shot",
            "balance": "none",
            "max_per_class": max(options.items, 30),
            "evidence": wanted,
            "seed": options.seed,
            "bootstrap": options.bootstrap,
            "device": options.device,
            "dtype": "float32",
            "evidence_items": max(options.items, 60),
            "threads": options.threads,
        }
    )
    device = checked_device(choose_device(options.device))
    planted = planted_items(options.items, options.seed)
    _refuse_other(out)
    if not is_run(out / "run"):
        ours = f"{DATASET}.jsonl"  # all that is there before the run has its own marker
        with writable(out):
            refuse_foreign(out, [ours, "run"])
    with new_folder(out):
        _plant(questions, planted, fresh and is_run(out / "run"))
        return _validate(out, options, recipe, device, fresh, listener)


def _refuse_other(out: Path) -> None:
    """Refuses a folder with a link inside, or with a run on something else than planted items."""
    links = [name for name in ("run", "figures") if (out / name).is_symlink()]
    datasets: Sequence[str] = ()
    with suppress(UserError):  # there is none yet, or the run will make it again
        datasets = read_recipe(out / "run" / "recipe.toml").get("datasets", ())
    planted = f"{DATASET}.jsonl"
    others = [name for name in datasets if Path(name).name != planted]
    if links or others:
        what = f"a link {links[0]!r}" if links else f"a run on {others[0]!r}"
        raise UserError(
            f"Folder {str(out)!r} holds {what}, which is no part of a validation; choose another with --out."
        )


def _validate(
    out: Path,
    options: Options,
    recipe: Recipe,
    device: torch.device,
    fresh: bool,
    listener: Progress,
) -> Path:
    run = run_recipe(
        recipe, out / "run", fresh=fresh, progress=listener, choice=options.choice
    )
    items = read_items(run)
    scores = read_scores(run, items)
    recovery = recovery_table(items, scores, options.bootstrap, options.seed)
    _write_table(out / "recovery.csv", recovery)
    world_results = run_worlds(
        options.replicas,
        options.world_items,
        device,
        options.seed,
        options.worlds,
        listener,
    )
    worlds = worlds_table(world_results)
    _write_table(out / "worlds.csv", worlds)
    summary_sentences = [*sentences(items, recovery), *worlds_sentences(world_results)]
    section = worlds_section(
        worlds, {world.name: world.about for world in WORLDS.values()}
    )
    facts = _facts(run, items, options.seed)
    write_validation(
        out,
        summary_sentences,
        recovery,
        section,
        facts,
        _command(options, "NEW_FOLDER"),
        listener,
    )
    with replacing(out / SUMMARY) as half_made:
        record = summary(out, recovery, run) | {
            "worlds": worlds_summary(world_results),
            "summary": summary_sentences,
            "command": _command(options, str(out)),
        }
        text = sealed_text(out, record, _written(out))
        half_made.write_text(text, encoding="utf-8")
    return out


def _write_table(path: Path, table: pl.DataFrame) -> None:
    with replacing(path) as half_made:
        table.write_csv(half_made)


def _written(out: Path) -> list[str]:
    """The files that a validation writes beside its run, which has a list of its own."""
    tables = [f"{DATASET}.jsonl", *(f"{name}.csv" for name in ("recovery", "worlds"))]
    pages = re.compile(r"validation\.(html|md)|figures/recovery\.\w+")
    return [*tables, *filter(pages.fullmatch, files_below(out))]


def read_summary(out: Path) -> dict[str, Any]:
    """What a validation found, for programs."""
    return {
        name: value
        for name, value in read_sealed(out / SUMMARY).items()
        if name not in ("sha256", "command")
    }


def _plant(path: Path, planted: Sequence[PlantedItem], fresh: bool) -> None:
    """Writes the planted items; those of an earlier validation with other options are not quietly replaced."""
    text = json_lines(planted)
    if path.exists() and not fresh and path.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{str(path.parent)!r} holds a validation with other items; start over with --fresh, or choose another "
            f"folder with --out."
        )
    with replacing(path) as half_made:
        half_made.write_text(text, encoding="utf-8")


def _facts(run: Path, items: Items, seed: int) -> dict[str, str]:
    """What was run, for the page."""
    model = from_json((run / "manifest.json").read_text(encoding="utf-8"))["model"]
    return {
        "model": f"{model['architecture']}, {model['n_layers']} layers, {model['d_model']} wide, "
        f"{model['parameters']:,} parameters, fingerprint {model['fingerprint'][:16]}",
        "items": f"{len(items.ids):,}, seed {seed}",
        "called right by the probe": f"{int(items.correct.sum()):,}",
        "the run": "run/report.html",
    }


def _command(options: Options, out: str) -> str:
    """What repeats it."""
    sizes = ",".join(map(str, options.world_items))
    replicas = "" if options.replicas is None else f" --replicas {options.replicas}"
    worlds = (
        ""
        if options.worlds == tuple(WORLDS)
        else f" --worlds {','.join(options.worlds)}"
    )
    return (
        f"anchorscope validate --items {options.items} --evidence {','.join(options.evidence)} "
        f"--seed {options.seed} --bootstrap {options.bootstrap} --world-items {sizes}{replicas}{worlds} "
        f"--out {shlex.quote(out)}"
    )


def summary(out: Path, recovery: pl.DataFrame, run: Path) -> dict[str, Any]:
    """The result for programs: per experiment its main way, and all ways below it."""
    by_experiment: dict[str, Any] = {}
    for experiment in recovery["experiment"].unique(maintain_order=True):
        ways: dict[str, Any] = {}
        rows_of_experiment = recovery.filter(pl.col("experiment") == experiment)
        for (way,), rows in rows_of_experiment.group_by(
            "rule_or_variant", maintain_order=True
        ):
            ways[str(way)] = _way(rows)
        main = MAIN_WAYS.get(experiment, next(iter(ways)))
        best = ways.get(main) or next(iter(ways.values()))
        by_experiment[experiment] = {"way": main, **best, "ways": ways}
    unavailable = from_json((run / "manifest.json").read_text(encoding="utf-8"))[
        "unavailable"
    ]
    return {"out": str(out), "recovery": by_experiment, "unavailable": unavailable}


def _way(rows: pl.DataFrame) -> dict[str, Any]:
    """AUC with interval, within true and false answers, and what else is known."""
    numbers: dict[str, Any] = {}
    for row in rows.to_dicts():
        part = (
            numbers
            if row["truth"] == "all"
            else numbers.setdefault(f"within_{row['truth']}", {})
        )
        if row["quantity"] == "auc":
            part |= {
                "auc": row["value"],
                "ci_low": row["ci_low"],
                "ci_high": row["ci_high"],
                "n": row["n"],
            }
        else:
            part[row["quantity"]] = {
                name: row[name] for name in ("value", "ci_low", "ci_high", "n")
            }
    return numbers


# The page

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#9467bd", "#8c564b")
_PARTS = ("together", "question", "answer", "either")
_HOW_TO_READ = (
    "The model of this page was trained on a made-up language, so the pathway of every item is known: its truth can be "
    "known only from the question, only from the answer, or from both. Truth and pathway are crossed. AUC: the chance "
    "that an item planted in the question scores above one planted in the answer: 1 is perfect, 0.5 guessing. The "
    "columns within true and within false answers decide: a rule that only follows the label does well on neither.",
    "A rule that fails here should not be trusted elsewhere; one that succeeds has passed an easy test.",
)
_WORLDS_TEXT = (
    "States are drawn without a model, with evidence for the label in the question, in the answer or only in both "
    "together, so the parts of an infinite sample are known. A world passes where every part is off by at most 0.03 on "
    "average, intervals hold the truth at least 93 times in 100, and what is not there is claimed at most 5 times in "
    "100. Intervals of these rates are in worlds.csv; ask for more replicas with --replicas.",
)


def _areas(table: pl.DataFrame) -> pl.DataFrame:
    """The AUCs, with a line's name per experiment and rule; the lines of an experiment together."""
    areas = table.filter((pl.col("quantity") == "auc") & pl.col("value").is_finite())
    line = pl.concat_str(
        "experiment", "rule_or_variant", separator=": ", ignore_nulls=True
    )
    order = pl.col("experiment").replace_strict(
        {name: n for n, name in enumerate(present(areas, "experiment"))}
    )
    areas = areas.with_columns(line=line, dataset=pl.col("truth").fill_null("all"))
    return areas.sort(order, maintain_order=True) if areas.height else areas


def _recovery_panels(data: pl.DataFrame) -> list[Forest]:
    marks = {"marker": "o", "markersize": 4.6, "markeredgewidth": 0.0, "linewidth": 1.5}
    styles = {
        name: marks | {"color": colour}
        for name, colour in zip(
            present(data, "experiment"), cycle(_COLOURS), strict=False
        )
    }
    lines = {name: name for name in present(data, "line")}
    return [
        Forest(
            "line",
            lines,
            "AUC",
            "",
            2.35,
            by="experiment",
            marks=styles,
            offset=0.0,
            null=0.5,
        )
    ]


RECOVERY_CHART = ChartSpec(
    "recovery",
    "recovery",
    "AUC for the planted pathway of every experiment and rule, for all, true and false answers",
    "Within true and within false answers the label is no help; 0.5 is guessing, below it is the wrong way round.",
    "AUC of an experiment's score: items planted in the question against items planted in the answer. Lines: 95% "
    "intervals.",
    _areas,
    _recovery_panels,
    share="x",
    height=lambda data: 0.4 + 0.235 * max(3, data["line"].n_unique()),
    labels=lambda data: max(0.3, 0.082 * max(map(len, data["line"]), default=0) - 0.5),
    gap=0.2,
    dataset_words=lambda truth: TRUTHS[truth],
    legend_columns=5,
)


def areas_table(table: pl.DataFrame) -> Table:
    """AUC for the planted pathway: all answers, true ones, false ones."""
    areas = _areas(table)
    rows = []
    for experiment, rule in (
        areas.select("experiment", "rule_or_variant")
        .unique(maintain_order=True)
        .iter_rows()
    ):
        mine = select(areas, experiment=experiment, rule_or_variant=rule)
        cells = [
            shown(find(mine, dataset=truth), lambda value: estimate(value, 3))
            for truth in TRUTHS
        ]
        rows.append((experiment, rule or NOTHING, *cells, count(mine["n"][0])))
    return Table(
        (
            "experiment",
            "rule or variant",
            "AUC, all",
            "within true",
            "within false",
            "items",
        ),
        tuple(rows),
        2,
    )


def worlds_section(table: pl.DataFrame, about: Mapping[str, str]) -> Section:
    """What came out of every world at every number of items."""
    tables = []
    for size in sorted(table["items"].drop_nulls().unique()):
        rows, lines = select(table, items=size), []
        for world in present(rows, "world"):
            mine = select(rows, world=world)
            bias = [_value(mine, "bias", part, 1) for part in _PARTS]
            rates = [
                _value(mine, name, "all parts", 100)
                for name in ("covered", "false alarms")
            ]
            replicas = count(
                select(mine, quantity="bias", part=_PARTS[0])["replicas"][0]
            )
            verdict = "yes" if mine["passes"][0] else "no"
            about_world = (
                world,
                about.get(world, NOTHING),
                _value(mine, "auc", "probe", 1),
            )
            lines.append((*about_world, *bias, *rates, replicas, verdict))
        biases = (f"bias: {part}" for part in _PARTS)
        head = (
            "world",
            "what it is",
            "AUC",
            *biases,
            "coverage, %",
            "false alarms, %",
            "replicas",
            "passes",
        )
        tables.append((f"{count(size)} items", Table(head, tuple(lines), 2)))
    return Section(
        "worlds", "Worlds whose parts are known", _WORLDS_TEXT, filled(*tables)
    )


def _value(rows: pl.DataFrame, quantity: str, part: str, factor: float) -> str:
    values = select(rows, quantity=quantity, part=part)["value"]
    return (
        number(factor * values[0], 0 if factor > 1 else 2) if len(values) else NOTHING
    )


def write_validation(
    out: Path,
    summary: Sequence[str],
    recovery: pl.DataFrame,
    worlds: Section,
    facts: Mapping[str, str],
    command: str,
    progress: Progress,
) -> None:
    """Write figures/recovery, validation.html and validation.md; the first sentence of the summary is the headline."""
    areas, chart, title = _areas(recovery), RECOVERY_CHART, "The planted model"
    truths = tuple(truth for truth in TRUTHS if truth in set(areas["dataset"]))
    save_all(
        [ExperimentFigure(areas, (chart.note,), chart, title, 0, truths)], out, progress
    )
    headline, *findings = summary
    page = SectionsPage(
        "anchorscope calibration",
        f"{title}: are planted pathways found?",
        AnswerCard(title, headline),
        (),
        [
            Section("how", "How to read it", _HOW_TO_READ),
            Section(
                "recovery",
                "Recovery",
                tuple(findings),
                filled(("", areas_table(recovery))),
            ),
            worlds,
            Section("run", "What was run", facts=facts, code=command),
        ],
        (SectionFigure(chart.name, chart.alt, chart.caption),),
    )
    write_sections_page(page, out, "validation")
