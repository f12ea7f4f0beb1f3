"""The result tables of a run, from the records of its steps, with the columns of `schema`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.generate import TOO_LONG, Answer
from anchorscope.artefacts.schema import (
    EFFECT_SCHEMA,
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    ITEM_SCHEMA,
    PATHWAY_SCHEMA,
    UNAVAILABLE_SCHEMA,
    empty,
)
from anchorscope.catalogue import POSITIONS
from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Effect
from anchorscope.experiments.experiment import Found
from anchorscope.items import Item
from anchorscope.json_text import to_json
from anchorscope.plan.interventions import Missing
from anchorscope.probes.crossfit import ProbeSet


def confidence(answer: Answer) -> tuple[float | None, float | None]:
    """Mean and minimum log-probability of the answer's tokens; None if unknown."""
    if not answer.log_probs:
        return None, None
    return float(np.mean(answer.log_probs)), float(np.min(answer.log_probs))


def items_frame(
    items: Sequence[Item],
    folds: Mapping[int, int],
    pathways: pl.DataFrame | None = None,
    headline: tuple[str, str] = ("", ""),
) -> pl.DataFrame:
    """items.parquet: one row per question asked, used or not; `folds` by index of the item."""
    if pathways is None:
        pathways = empty(PATHWAY_SCHEMA)
    questions, labels = (
        [item.question for item in items],
        [item.label for item in items],
    )
    answers, located = [item.answer for item in items], [item.tokens for item in items]
    site, position = headline
    headline_pathways = pathways.filter(
        (pl.col("site") == site) & (pl.col("position") == position)
    )
    assigned = dict(headline_pathways.select("item_id", "pathway").iter_rows())
    sure = [confidence(answer) for answer in answers]
    columns: dict[str, Sequence[Any]] = {
        "dataset": [question.dataset for question in questions],
        "item_id": [question.item_id for question in questions],
        "question": [question.question for question in questions],
        "answers": [question.answers for question in questions],
        "subject": [question.subject for question in questions],
        "relation": [question.relation for question in questions],
        "property_words": [question.property_words for question in questions],
        "exact_question": [question.exact_spans for question in questions],
        "question_words": [
            tokens.words.spans if tokens and tokens.words else () for tokens in located
        ],
        "group": [label.group for label in labels],
        "model_answer": [answer.text for answer in answers],
        "truthful": [label.truthful for label in labels],
        "confidence_mean": [mean for mean, _ in sure],
        "confidence_min": [least for _, least in sure],
        "status": [label.status for label in labels],
        "weight": [label.weight for label in labels],
        "fold": [folds.get(index) for index in range(len(questions))],
        "input_ids": [tokens.input_ids if tokens else () for tokens in located],
        "question_tokens": [
            tokens.question_tokens if tokens else () for tokens in located
        ],
        "answer_tokens": [tokens.answer_tokens if tokens else () for tokens in located],
        "probe_positions": [
            dict(zip(POSITIONS, tokens.positions, strict=True)) if tokens else None
            for tokens in located
        ],
        "pathway": [assigned.get(question.item_id) for question in questions],
        "metadata": [
            to_json(dict(question.metadata), ascii=False) for question in questions
        ],
        "context": [list(question.context) or None for question in questions],
        "thinking": [question.thinking for question in questions],
    }
    return pl.DataFrame(
        [
            pl.Series(name, columns[name], dtype=kind)
            for name, kind in ITEM_SCHEMA.items()
        ]
    )


def effects_frame(
    dataset: str,
    item_ids: Sequence[str],
    positions: Sequence[str],
    clean: np.ndarray,
    effects: Sequence[Effect],
) -> pl.DataFrame:
    """effects.parquet: log-odds of "truthful" over the layers, before and after, per item and intervention."""
    frames = []
    for effect in effects:
        variants: Any = effect.variant
        if effect.run is not None and effect.run.any():  # each row's donor has a number
            variants = [f"{effect.variant} {run + 1}" for run in effect.run]
        for q, position in enumerate(positions):
            for s, site in enumerate(SITES):
                frame = pl.DataFrame(
                    {
                        "dataset": dataset,
                        "item_id": [item_ids[index] for index in effect.items],
                        "intervention": effect.intervention,
                        "site": site,
                        "position": position,
                        "variant": variants,
                        "n_cut": effect.n_cut,
                        "n_candidates": effect.n_candidates,
                        "attention_ratio": effect.attention_ratio,
                        "logit_clean": _layer_lists(clean[effect.items, q, s]),
                        "logit_after": _layer_lists(effect.logits[:, q, s]),
                    },
                    schema_overrides=EFFECT_SCHEMA,
                )
                frames.append(frame)
    return pl.concat(frames).select(*EFFECT_SCHEMA)


def _layer_lists(log_odds: np.ndarray) -> pl.Series:
    """A column of lists from [item, layer], without Python numbers in between."""
    return pl.Series(np.ascontiguousarray(log_odds, dtype=np.float32)).arr.to_list()


def counts_frame(
    dataset: str, sample: QuestionSample, items: Sequence[Item]
) -> pl.DataFrame:
    labels, used = (
        [item.label for item in items],
        [item for item in items if item.is_used],
    )
    rules = [item.tokens.rule for item in used if item.tokens is not None]
    relations = {
        item.question.relation for item in items if item.question.relation is not None
    }
    return pl.DataFrame(
        [
            {
                "dataset": dataset,
                "read": sample.read,
                "bad": sample.bad,
                "empty_rows": sample.empty_rows,
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
                "supplied": sum(
                    item.question.model_answer is not None for item in items
                ),
                "supplied_labels": sum(
                    None not in (item.question.truthful, item.label.truthful)
                    for item in items
                ),
                "groups": len({item.label.group for item in used}),
                "relations": len(relations),
                **{
                    f"words_by_{rule}": rules.count(rule)
                    for rule in ("own", "metadata", "rules")
                },
            }
        ]
    )


def probe_tensors(dataset: str, fitted: Mapping[str, ProbeSet]) -> dict[str, Tensor]:
    """probes.safetensors: `DATASET/SITE/POSITION/weight` [fold, layer, d_model] and `/bias` [fold, layer]."""
    tensors = {}
    for place, probe_set in fitted.items():
        tensors[f"{dataset}/{place}/weight"] = probe_set.weight
        tensors[f"{dataset}/{place}/bias"] = probe_set.bias
    return tensors


def experiments_frame(
    model: str, dataset: str, headline: tuple[str, str], results: Mapping[str, Found]
) -> pl.DataFrame:
    """experiments.csv: one statistic per row."""
    site, position = headline
    headline_columns = {
        "model": model,
        "dataset": dataset,
        "site": site,
        "position": position,
    }
    rows = []
    for name, result in results.items():
        for statistic in result.statistics:
            row = {
                **headline_columns,
                "experiment": name,
                **vars(statistic),
                **vars(statistic.estimate),
            }
            rows.append({column: row[column] for column in EXPERIMENT_SCHEMA})
    return _with_nulls(pl.DataFrame(rows, schema=EXPERIMENT_SCHEMA))


def experiment_items_frame(
    dataset: str, item_ids: Sequence[str], results: Mapping[str, Found]
) -> pl.DataFrame:
    """experiment_items.parquet: one number of one item per row."""
    rows = [
        (dataset, item_ids[index], name, values.variant, values.quantity, float(value))
        for name, result in results.items()
        for values in result.values
        for index, value in zip(values.items, values.values, strict=True)
    ]
    return _with_nulls(pl.DataFrame(rows, schema=EXPERIMENT_ITEM_SCHEMA, orient="row"))


def _with_nulls(table: pl.DataFrame) -> pl.DataFrame:
    """Missing values are null in the tables, never NaN."""
    names = [name for name, kind in table.schema.items() if kind.is_float()]
    return table.with_columns(
        pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name)
        for name in names
    )


def unavailable_frame(dataset: str, missing: Sequence[Missing]) -> pl.DataFrame:
    rows = [(dataset, entry.experiment, entry.reason) for entry in missing]
    return pl.DataFrame(rows, schema=UNAVAILABLE_SCHEMA, orient="row")
