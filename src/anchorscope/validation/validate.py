"""`validate`: the whole evidence on the planted model, marked against what was planted.

The run is an ordinary one, with the ordinary recipe and the ordinary run folder; only the questions, answers and
weights are ours. What comes out is read from that folder. The harder worlds, which have no model, come after it.
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import torch

from anchorscope.artefacts.run_folder import is_run
from anchorscope.artefacts.sealed_folder import read_sealed, refuse_foreign, sealed_text
from anchorscope.catalogue import RATED
from anchorscope.errors import UserError
from anchorscope.execute.choose import Choice
from anchorscope.files import PARTIAL, files_below, new_folder, replacing, writable
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.pipeline import run_recipe
from anchorscope.planted.items import MODEL_FOLDER, PlantedItem, json_lines, planted_items
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import Recipe, make_recipe
from anchorscope.validation.page import worlds_section, write_validation
from anchorscope.validation.recovery import MAIN_WAYS, Items, read_items, read_scores, recovery_table, sentences
from anchorscope.validation.worlds import SIZES, WORLDS, run_worlds, worlds_sentences, worlds_summary, worlds_table

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


def validate(out: Path, options: Options, fresh: bool = False, progress: Progress | None = None) -> Path:
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
    if not is_run(out / "run"):
        ours = f"{DATASET}.jsonl"  # all that is there before the run has its own marker
        with writable(out):
            refuse_foreign(out, [ours, f"{ours}{PARTIAL}", "run"])
    with new_folder(out):
        _plant(questions, planted, fresh and is_run(out / "run"))
        return _validate(out, options, recipe, device, fresh, listener)


def _validate(
    out: Path, options: Options, recipe: Recipe, device: torch.device, fresh: bool, listener: Progress
) -> Path:
    run = run_recipe(recipe, out / "run", fresh=fresh, progress=listener, choice=options.choice)
    items = read_items(run)
    scores = read_scores(run, items)
    recovery = recovery_table(items, scores, options.bootstrap, options.seed)
    world_results = run_worlds(options.replicas, options.world_items, device, options.seed, options.worlds, listener)
    worlds = worlds_table(world_results)
    for name, table in (("recovery", recovery), ("worlds", worlds)):
        with replacing(out / f"{name}.csv") as half_made:
            table.write_csv(half_made)
    summary_sentences = [*sentences(items, recovery), *worlds_sentences(world_results)]
    section = worlds_section(worlds, {world.name: world.about for world in WORLDS.values()})
    facts = _facts(run, items, options.seed)
    write_validation(out, summary_sentences, recovery, section, facts, _command(options, "NEW_FOLDER"), listener)
    with replacing(out / SUMMARY) as half_made:
        record = summary(out, recovery, run) | {
            "worlds": worlds_summary(world_results),
            "summary": summary_sentences,
            "command": _command(options, str(out)),
        }
        text = sealed_text(out, record, _written(out))
        half_made.write_text(text, encoding="utf-8")
    return out


def _written(out: Path) -> list[str]:
    """The files that a validation writes beside its run, which has a list of its own."""
    tables = [f"{DATASET}.jsonl", *(f"{name}.csv" for name in ("recovery", "worlds"))]
    pages = re.compile(r"validation\.(html|md)|figures/recovery\.\w+")
    return [*tables, *filter(pages.fullmatch, files_below(out))]


def read_summary(out: Path) -> dict[str, Any]:
    """What a validation found, for programs."""
    return {name: value for name, value in read_sealed(out / SUMMARY).items() if name not in ("sha256", "command")}


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
    model = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["model"]
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
    worlds = "" if options.worlds == tuple(WORLDS) else f" --worlds {','.join(options.worlds)}"
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
        for (way,), rows in rows_of_experiment.group_by("rule_or_variant", maintain_order=True):
            ways[str(way)] = _way(rows)
        main = MAIN_WAYS.get(experiment, next(iter(ways)))
        best = ways.get(main) or next(iter(ways.values()))
        by_experiment[experiment] = {"way": main, **best, "ways": ways}
    unavailable = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["unavailable"]
    return {"out": str(out), "recovery": by_experiment, "unavailable": unavailable}


def _way(rows: pl.DataFrame) -> dict[str, Any]:
    """AUC with interval, within true and false answers, and what else is known."""
    numbers: dict[str, Any] = {}
    for row in rows.to_dicts():
        part = numbers if row["truth"] == "all" else numbers.setdefault(f"within_{row['truth']}", {})
        if row["quantity"] == "auc":
            part |= {"auc": row["value"], "ci_low": row["ci_low"], "ci_high": row["ci_high"], "n": row["n"]}
        else:
            part[row["quantity"]] = {name: row[name] for name in ("value", "ci_low", "ci_high", "n")}
    return numbers
