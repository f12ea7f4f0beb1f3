"""Sources: does the answer rest on the passage, on the thinking, or on memory?

How much of the evidence needs each source, against a random span of equal length; which answers hardly need theirs.

Where the questions say what their passage says (columns `kind` and `passage_says`, as in the built-in set `passages`),
the answer itself shows what the model went by. It *followed* a changed passage, or it kept to its *memory*. A stated
fact was *needed* where the same question gets a wrong answer after a passage about something else. Numbers of single
items are then checked against both: the AUC says how well each tells the two kinds of answers apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from anchorscope.answers.grade import grade
from anchorscope.datasets.relations import CHANGED, KINDS, STATED, UNRELATED
from anchorscope.evidence.source_use import FOLLOWED, IGNORED, kinds_of
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    ItemValues,
    Statistic,
)
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    Bools,
    Floats,
    auc_samples,
    estimate_of,
    p_value,
)
from anchorscope.items import Item
from anchorscope.report.findings import Findings, find, select
from anchorscope.report.verdicts import above
from anchorscope.report.wording import Table, estimate, percent
from anchorscope.stats.estimate import Estimate, estimate_share

if TYPE_CHECKING:
    from anchorscope.evidence_parts.need import Share, Terms

MEMORY, OTHER = "memory", "other"
BEHAVIOURS = (FOLLOWED, MEMORY, OTHER)
"""An answer gives what the passage says; what is true and not in the passage; or neither."""
MEASURES = {
    "evidence-moved": "how far cutting it moves the probe's log-odds",
    "state-moved": "how far cutting it moves the state",
    "context-used": "log-probability of the answer, with less without it",
    "attention": "attention that it receives",
    "overlap": "answer's words that stand in it",
}
"""Numbers of single items; the last three need no probe and no state, and are what the others have to beat."""
_MOST_IGNORED = 20  # answers that are listed
_NEEDS = "half splits, influence over groups, mean over the band"


def run(inputs: ExperimentInputs) -> Found:
    from anchorscope.evidence.sources import (
        EXCHANGED,
        KIND,
        SOURCE,
        SPAN,
        choose_pair,
        pair_parts,
    )
    from anchorscope.evidence_parts.parts import needs_by_name

    stored = inputs.sources()
    if not stored:
        return Found()
    needs = needs_by_name(stored)
    rows: list[Statistic] = []
    ways = {SOURCE: None, SPAN: "random span", EXCHANGED: "another item's"}
    for name in needs.get(SOURCE, {}):
        of_way = {
            way: needs[way][name].need().mean_over(inputs.band)
            for way in ways
            if name in needs.get(way, {})
        }
        rows += [
            Statistic("need", _estimate(inputs, share), name, ways[way])
            for way, share in of_way.items()
        ]
        if SPAN in of_way:
            difference = of_way[SOURCE] - of_way[SPAN]
            rows.append(
                Statistic(
                    "need_difference", _estimate(inputs, difference), name, ways[SPAN]
                )
            )
    for pair in (name for name in needs if "," in name):
        for part, share in pair_parts(needs, pair).items():
            rows.append(
                Statistic(
                    "part",
                    _estimate(inputs, share.mean_over(inputs.band)),
                    pair,
                    group=part,
                )
            )
    names = [key.partition("/")[2] for key in stored if key.startswith("context-used/")]
    main = choose_pair((), names)[0]
    rows += _ignored(inputs, names, stored)
    rows += _by_kind(inputs, needs.get(KIND, {}), main)
    rows += _areas(inputs, main, stored)
    columns = {
        key: column
        for key, column in stored.items()
        if key.partition("/")[0] in MEASURES
    }
    columns[f"{FOLLOWED}/{main}"] = _find_followed(inputs.used_items)
    values = [
        ItemValues(
            kind.replace("-", "_"),
            np.flatnonzero(there := np.isfinite(column)),
            column[there],
            name,
        )
        for key, column in columns.items()
        for kind, _, name in [key.partition("/")]
    ]
    missing = (
        ()
        if needs
        else (
            f"{inputs.n} used answers: too few for a share of the evidence that needs a source",
        )
    )
    return Found(tuple(rows), tuple(values), missing)


def _estimate(
    inputs: ExperimentInputs, share: Share, inside: Bools | None = None
) -> Estimate:
    groups = (
        inputs.measured.groups if inside is None else inputs.measured.groups[inside]
    )
    value, width = float(share.value[0]), float(share.half_width(groups)[0])
    return Estimate(value, value - width, value + width, len(groups), _NEEDS)


def _ignored(
    inputs: ExperimentInputs, names: Sequence[str], stored: Mapping[str, Floats]
) -> Iterator[Statistic]:
    """The share of answers that have hardly any of their probability from a source."""
    for name in names:
        used = stored[f"context-used/{name}"]
        there = np.isfinite(used)
        share = estimate_share(
            int((used[there] < IGNORED).sum()), int(there.sum()), "answers"
        )
        yield Statistic("ignored", share, name)


def behaviour(item: Item) -> str | None:
    """Whether an answer goes by its source or by memory, as its item says or its words show; None where unknown."""
    stated = {"true": FOLLOWED, "false": MEMORY}.get(
        str(item.question.metadata.get(FOLLOWED)).lower()
    )
    if stated is not None:
        return stated
    says = item.question.metadata.get("passage_says")
    if not isinstance(says, str) or item.label.truthful is None:
        return None
    if grade(item.answer.text, says.split("|"), item.question.question):
        return FOLLOWED
    return MEMORY if item.label.truthful else OTHER


def _by_kind(
    inputs: ExperimentInputs, needs: Mapping[str, Terms], name: str
) -> Iterator[Statistic]:
    """Answers of every kind of passage, of all that were asked; and what needs the source, of the used ones."""
    every, kinds = (
        np.array([behaviour(item) for item in inputs.items]),
        kinds_of(inputs.items),
    )
    for kind in dict.fromkeys(kinds.tolist()):
        given = [what for what in every[kinds == kind] if what is not None]
        for what in BEHAVIOURS if given else ():
            yield Statistic(
                "answers",
                estimate_share(given.count(what), len(given), "answers"),
                what,
                group=kind,
            )
    own = kinds_of(inputs.used_items)
    for kind, terms in needs.items():
        share = terms.need().mean_over(inputs.band)
        yield Statistic("need", _estimate(inputs, share, own == kind), name, group=kind)


def _areas(
    inputs: ExperimentInputs, name: str, stored: Mapping[str, Floats]
) -> Iterator[Statistic]:
    """How well each number tells answers that went by the passage from those that did not."""
    kinds, followed = kinds_of(inputs.used_items), _find_followed(inputs.used_items)
    known = _known_without(inputs.items)
    stated = np.array(
        [item.label.truthful and item.item_id in known for item in inputs.used_items]
    ) & (kinds == STATED)
    unknown = np.array(
        [not known.get(item.item_id, False) for item in inputs.used_items]
    )
    tests = (
        ("auc_followed", np.isfinite(followed), followed == 1.0),
        ("auc_needed", stated, unknown),
    )
    for quantity, inside, positive in tests:
        sizes = int((inside & positive).sum()), int((inside & ~positive).sum())
        if min(sizes) < FEW:
            continue
        for measure in MEASURES:
            scores, draws = (
                stored[f"{measure}/{name}"][inside],
                inputs.draws.take(np.flatnonzero(inside)),
            )
            samples = auc_samples(
                scores, positive[inside], np.zeros(len(scores), np.int64), draws
            )
            area = estimate_of(
                samples,
                len(scores),
                f"{METHOD}; {sizes[0]} of {len(scores)} answers are positive",
            )
            yield Statistic(
                quantity, area, measure, group=name, p_value=p_value(samples, 0.5)
            )


def _find_followed(items: Sequence[Item]) -> Floats:
    """1 where an answer followed its source, 0 where it kept to memory; NaN where source and memory may agree."""
    went_by = [
        behaviour(item)
        if kind == CHANGED or FOLLOWED in item.question.metadata
        else None
        for item, kind in zip(items, kinds_of(items), strict=True)
    ]
    return np.array(
        [{FOLLOWED: 1.0, MEMORY: 0.0}.get(what or "", np.nan) for what in went_by]
    )


def _known_without(items: Sequence[Item]) -> dict[str, bool]:
    """Of every stated fact: whether the same question has a true answer after a passage about something else."""
    truth = {item.item_id: item.label.truthful for item in items}
    return {
        name: bool(without)
        for name in truth
        if name.endswith(STATED)
        and (without := truth.get(name.removesuffix(STATED) + UNRELATED)) is not None
    }


EXPERIMENT = Experiment(
    "sources",
    "each source (passages, thinking, question) is hidden from all that comes after, or exchanged",
    run,
)


def _needs_source(rows: pl.DataFrame) -> section.Said | None:
    names = rows["variant"].to_list()
    name = "thinking" if "thinking" in names and "context" not in names else "context"
    gap = find(rows, measure="need", aspect="difference", variant=name)
    return section.number(
        gap, above(gap, 0.0), section.whole_percent, f"{name}, above a random span"
    )


class IgnoredItems(section.TableSpec):
    """The answers that ignored their source most, by name."""

    def table(self, findings: Findings, rows: pl.DataFrame) -> Table:
        wanted = select(
            findings.experiment_items, experiment="sources", quantity="context_used"
        )
        wanted = wanted.filter(
            pl.col("variant").is_in(["context", "thinking"])
            & (pl.col("value") < IGNORED)
        )
        lines = wanted.sort("value", "dataset", "item_id").head(_MOST_IGNORED)
        cells = lines.select("dataset", "item_id", "variant", "value").iter_rows()
        shown = tuple((*names, f"{used:.2f}") for *names, used in cells)
        return Table(("dataset", "item", "source", "context used"), shown, 3)


_SOURCE = section.Key("variant", "source")
_KIND = section.Key("group", "passage", {kind: kind for kind in KINDS})
SECTION = section.SectionSpec(
    slug="sources",
    title="Sources: passage, thinking, memory",
    asks="How much of the evidence needs each source, and which answers would have come without it?",
    careful="A long cut removes more than a short one: read the difference to a random span of equal length. "
    "Long answers are not in scope.",
    answer=section.Answer(
        "The evidence needs the source more than a random span of equal length",
        "The evidence needs the source no more than a random span of equal length",
        "Whether the evidence needs the source more than a random span of equal length is undecided",
        _needs_source,
    ),
    tables=(
        section.TableSpec(
            "Evidence that needs each source",
            (_SOURCE,),
            (
                section.value("needs it", percent, aspect="", against=None, group=None),
                section.value("random span", percent, aspect="", against="random span"),
                section.value(
                    "with another item's instead",
                    percent,
                    aspect="",
                    against="another item's",
                ),
                section.value("difference", percent, aspect="difference"),
                section.items(aspect="", against=None, group=None),
            ),
            lambda rows: select(rows, measure="need"),
        ),
        section.TableSpec(
            "Four parts of two sources",
            (_SOURCE, section.Key("group", "part")),
            (section.value("share", percent), section.items()),
            lambda rows: select(rows, measure="part"),
        ),
        section.TableSpec(
            "Answers and need by kind of passage",
            (_KIND,),
            (
                *(
                    section.value(what, percent, measure="answers", variant=what)
                    for what in BEHAVIOURS
                ),
                section.items("answers", measure="answers"),
                section.value("evidence that needs it", percent, measure="need"),
                section.items("used", measure="need"),
            ),
            lambda rows: select(rows, measure=("answers", "need")).filter(
                pl.col("group").is_not_null()
            ),
        ),
        section.TableSpec(
            "Who tells which answers went by the passage (AUC)",
            (section.Key("variant", "measure", MEASURES),),
            (
                section.value(
                    "followed a changed passage", estimate, measure="auc_followed"
                ),
                section.items(measure="auc_followed"),
                section.value("needed a stated one", estimate, measure="auc_needed"),
                section.items("items, stated", measure="auc_needed"),
            ),
            lambda rows: select(rows, measure=("auc_followed", "auc_needed")),
        ),
        IgnoredItems(
            "Answers that ignored their source (least of their probability comes from it)",
            (),
            (),
        ),
    ),
    docs="sources.md",
)
