"""The result tables of a run, built from the records of its steps, with the columns of `schema`."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.catalogue import POSITIONS
from anchorscope.datasets.text import Span
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Effect
from anchorscope.experiments.experiment import Found, Statistic
from anchorscope.items import Item
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import FinalProbe, ProbeSet
from anchorscope.schema import (
    EFFECT_SCHEMA,
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    ITEM_SCHEMA,
    PATHWAY_COLUMNS,
    UNAVAILABLE_SCHEMA,
)
from anchorscope.spans.locate import ItemTokens


def confidence(answer: Answer) -> tuple[float | None, float | None]:
    """Mean and minimum log-probability of the answer's tokens; None where they are not known."""
    if not answer.log_probs:
        return None, None
    return float(np.mean(answer.log_probs)), float(np.min(answer.log_probs))


def _confidences(answers: Sequence[Answer]) -> tuple[list[float | None], list[float | None]]:
    """`confidence` of many answers at once: those of one length are one array."""
    means: list[float | None] = [None] * len(answers)
    least: list[float | None] = [None] * len(answers)
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, answer in enumerate(answers):
        by_length[len(answer.log_probs or ())].append(index)
    for length, places in by_length.items():
        if length:
            rows = np.array([answers[index].log_probs for index in places], dtype=np.float64)
            for index, mean, low in zip(places, rows.mean(1).tolist(), rows.min(1).tolist(), strict=True):
                means[index], least[index] = mean, low
    return means, least


def items_frame(
    items: Sequence[Item], folds: Mapping[int, int], pathways: pl.DataFrame, headline: tuple[str, str]
) -> pl.DataFrame:
    """items.parquet: one row per question that was asked, used or not; `folds` by index of the item."""
    questions, labels = [item.question for item in items], [item.label for item in items]
    answers, located = [item.answer for item in items], [item.tokens for item in items]
    site, position = headline
    here = pathways.filter((pl.col("site") == site) & (pl.col("position") == position))
    assigned = {
        name: dict(here.filter(pl.col("assignment") == name).select("item_id", "pathway").iter_rows())
        for name in ("plain", "corrected")
    }
    means, least = _confidences(answers)
    to_json = json.JSONEncoder(ensure_ascii=False).encode
    columns: dict[str, Any] = {
        "dataset": [one.dataset for one in questions],
        "item_id": [one.item_id for one in questions],
        "question": [one.question for one in questions],
        "answers": _lists([one.answers for one in questions], _texts),
        "subject": [one.subject for one in questions],
        "relation": [one.relation for one in questions],
        "property_words": _lists([one.property_words for one in questions], _texts),
        "exact_question": _places([one.exact_spans for one in questions]),
        "question_words": _places([place.words.spans if place and place.words else () for place in located]),
        "group": [one.group for one in labels],
        "model_answer": [one.text for one in answers],
        "truthful": [one.truthful for one in labels],
        "confidence_mean": means,
        "confidence_min": least,
        "status": [one.status for one in labels],
        "weight": [one.weight for one in labels],
        "fold": [folds.get(index) for index in range(len(questions))],
        "input_ids": _lists([place.input_ids if place else () for place in located], _whole_numbers),
        "question_tokens": _lists([place.question_tokens if place else () for place in located], _whole_numbers),
        "answer_tokens": _lists([place.answer_tokens if place else () for place in located], _whole_numbers),
        "probe_positions": _positions(located),
        "pathway": [assigned["plain"].get(one.item_id) for one in questions],
        "pathway_corrected": [assigned["corrected"].get(one.item_id) for one in questions],
        "metadata": [to_json(dict(one.metadata)) for one in questions],
    }
    return pl.DataFrame([pl.Series(name, columns[name], dtype=kind) for name, kind in ITEM_SCHEMA.items()])


def _lists(rows: Sequence[Sequence[Any]], column: Callable[[list[Any]], pl.Series]) -> pl.Series:
    """A column of lists; `column` makes one of all their entries. Polars would make one of every list, far slower."""
    sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    entries = column(list(chain.from_iterable(rows))).alias("entry")
    filled = pl.DataFrame([pl.Series("row", np.repeat(np.arange(len(rows)), sizes)), entries])
    lists = filled.group_by("row", maintain_order=True).agg("entry")
    every = pl.DataFrame({"row": np.arange(len(rows))}).join(lists, on="row", how="left", maintain_order="left")
    return every["entry"].fill_null([]).rechunk()


def _places(rows: Sequence[Sequence[Span]]) -> pl.Series:
    """A column of lists of [start, end)."""
    return _lists(rows, lambda spans: _lists(spans, _whole_numbers))


def _texts(entries: list[Any]) -> pl.Series:
    return pl.Series(entries, dtype=pl.String)


def _whole_numbers(entries: list[Any]) -> pl.Series:
    return pl.Series(entries, dtype=pl.Int64)


def _positions(located: Sequence[ItemTokens | None]) -> pl.Series:
    """The column of probe positions; null where nothing was located."""
    there = pl.Series([place is not None for place in located], dtype=pl.Boolean)
    fields = pl.DataFrame(
        {
            name: pl.Series([place.positions[at] if place else None for place in located], dtype=pl.Int64)
            for at, name in enumerate(POSITIONS)
        }
    )
    return fields.select(pl.when(there).then(pl.struct(POSITIONS))).to_series()


def unused_frames(dataset: str, sample: QuestionSample, items: Sequence[Item]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Items and counts of a dataset that has too few answers of either kind: none of its items is used."""
    unused = [
        replace(item, label=replace(item.label, status="too few", weight=0.0)) if item.is_used else item
        for item in items
    ]
    nowhere = pl.DataFrame(schema=dict.fromkeys(PATHWAY_COLUMNS, pl.String()))
    return items_frame(unused, {}, nowhere, ("", "")), counts_frame(dataset, sample, unused)


def effects_frame(
    dataset: str,
    item_ids: Sequence[str],
    probes: Sequence[str],
    positions: Sequence[str],
    clean: np.ndarray,
    effects: Sequence[Effect],
) -> pl.DataFrame:
    """effects.parquet: log-odds of "truthful" over the layers, before and after, per item, intervention and probe."""
    frames = []
    for effect in effects:
        for q, position in enumerate(positions):
            for s, site in enumerate(SITES):
                for p, probe in enumerate(probes):
                    names = {"intervention": effect.intervention, "probe": probe, "site": site, "position": position}
                    frame = pl.DataFrame(
                        {
                            "dataset": [dataset] * len(effect.items),
                            "item_id": [item_ids[index] for index in effect.items],
                            **{name: [value] * len(effect.items) for name, value in names.items()},
                            "variant": _variants(effect),
                            "n_cut": effect.n_cut,
                            "n_candidates": _or_null(effect.n_candidates, pl.Int64, len(effect.items)),
                            "attention_ratio": _or_null(effect.attention_ratio, pl.Float64, len(effect.items)),
                            "logit_clean": _over_layers(clean[effect.items, q, s, p]),
                            "logit_after": _over_layers(effect.logits[:, q, s, p]),
                        }
                    )
                    frames.append(frame)
    return pl.concat(frames).select(*EFFECT_SCHEMA)


def _or_null(values: np.ndarray | None, kind: type[pl.DataType], n: int) -> pl.Series:
    """A column; of nulls where nothing is known."""
    return pl.Series([None] * n if values is None else values, dtype=kind)


def _variants(effect: Effect) -> list[str]:
    """What each row is called: the edges that were cut, or which donor it had."""
    if effect.run is None or not effect.run.any():
        return [effect.variant] * len(effect.items)
    return [f"{effect.variant} {run + 1}" for run in effect.run]


def _over_layers(log_odds: np.ndarray) -> pl.Series:
    """A column of lists from [item, layer], without a Python number in between."""
    return pl.Series(np.ascontiguousarray(log_odds, dtype=np.float32)).arr.to_list()


def counts_frame(dataset: str, sample: QuestionSample, items: Sequence[Item]) -> pl.DataFrame:
    """What became of the questions of one dataset."""
    labels, used = [item.label for item in items], [item for item in items if item.is_used]
    rules = [item.tokens.rule for item in used if item.tokens is not None]
    relations = {item.question.relation for item in items if item.question.relation is not None}
    return pl.DataFrame(
        [
            {
                "dataset": dataset,
                "read": sample.read,
                "bad": sample.bad,
                "repeated": sample.repeated,
                "few_shot": sample.few_shot,
                "yes_no": sample.yes_no,
                "asked": len(items),
                "empty": sum(label.status == "empty" for label in labels),
                "truncated": sum(label.status == "truncated" for label in labels),
                "too_long": sum(label.status == TOO_LONG for label in labels),
                "true": sum(label.truthful is True for label in labels),
                "false": sum(label.truthful is False for label in labels),
                "used": len(used),
                "used_true": sum(item.label.truthful is True for item in used),
                "supplied": sum(item.question.model_answer is not None for item in items),
                "supplied_labels": sum(None not in (item.question.truthful, item.label.truthful) for item in items),
                "groups": len({item.label.group for item in used}),
                "relations": len(relations),
                **{f"words_by_{rule}": rules.count(rule) for rule in ("own", "metadata", "rules", "model")},
            }
        ]
    )


def probe_tensors(
    dataset: str, probes: Sequence[str], fitted: Mapping[str, ProbeSet], final: Mapping[str, FinalProbe]
) -> dict[str, Tensor]:
    """probes.safetensors: `DATASET/SITE/POSITION/PROBE/weight` [fold, layer, d_model] and `/bias` [fold, layer].

    The probe `final`, which learned from all items, has no folds: [layer, d_model] and [layer].
    """
    tensors = {}
    for place, one in final.items():
        tensors[f"{dataset}/{place}/final/weight"] = one.weight.contiguous()
        tensors[f"{dataset}/{place}/final/bias"] = one.bias.contiguous()
    for place, found in fitted.items():
        for index, probe in enumerate(probes):
            name = f"{dataset}/{place}/{probe}"
            tensors[f"{name}/weight"] = found.weight[index].contiguous()
            tensors[f"{name}/bias"] = found.bias[index].contiguous()
    return tensors


def experiments_frame(model: str, dataset: str, headline: tuple[str, str], found: Mapping[str, Found]) -> pl.DataFrame:
    """experiments.csv: one statistic per row."""
    site, position = headline
    place = {"model": model, "dataset": dataset, "site": site, "position": position}
    rows = [{**place, "experiment": name, **_row(one)} for name, result in found.items() for one in result.statistics]
    return pl.DataFrame(rows, schema=EXPERIMENT_SCHEMA)


def _row(one: Statistic) -> dict[str, object]:
    estimate = one.estimate
    return {
        "variant": one.variant,
        "against": one.against,
        "assignment": one.assignment,
        "group": one.group,
        "truth": one.truth,
        "layer": one.layer,
        "probe_layer": one.probe_layer,
        "quantity": one.quantity,
        "value": _number(estimate.value),
        "ci_low": _number(estimate.ci_low),
        "ci_high": _number(estimate.ci_high),
        "n": estimate.n,
        "p_value": _number(one.p_value),
        "q_value": _number(one.q_value),
        "method": estimate.method,
    }


def experiment_items_frame(dataset: str, item_ids: Sequence[str], found: Mapping[str, Found]) -> pl.DataFrame:
    """experiment_items.parquet: one number of one item per row."""
    frames = [pl.DataFrame(schema=EXPERIMENT_ITEM_SCHEMA)]
    for name, result in found.items():
        for one in result.values:
            columns = {
                "dataset": [dataset] * len(one.items),
                "item_id": [item_ids[index] for index in one.items],
                "experiment": [name] * len(one.items),
                "variant": [one.variant] * len(one.items),
                "quantity": [one.quantity] * len(one.items),
                "value": [_number(float(value)) for value in one.values],
            }
            frames.append(pl.DataFrame(columns, schema=EXPERIMENT_ITEM_SCHEMA))
    return pl.concat(frames)


def unavailable_frame(dataset: str, missing: Sequence[Missing]) -> pl.DataFrame:
    """What was asked for and cannot be done on a dataset, with the reason."""
    rows = [(dataset, one.experiment, one.reason) for one in missing]
    return pl.DataFrame(rows, schema=UNAVAILABLE_SCHEMA, orient="row")


def _number(value: float | None) -> float | None:
    """A missing value is null in the tables, never NaN."""
    return value if value is not None and math.isfinite(value) else None
