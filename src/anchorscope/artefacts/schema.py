"""The columns of every file of a run folder, and the version of the whole.

Other programs rely on these names. Columns may be added; one that is renamed, dropped or given another meaning raises
`SCHEMA_VERSION`, and folders of other versions are then read as what they are or refused.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from anchorscope.catalogue import POSITIONS, SAMPLES

Schema = dict[str, pl.DataType]
SCHEMA_VERSION = 6
"""5 had two more rules that made groups, and probes of half of the folds' groups."""


def _texts(*names: str) -> Schema:
    return dict.fromkeys(names, pl.String())


def _numbers(*names: str) -> Schema:
    return dict.fromkeys(names, pl.Float64())


def _counts(*names: str) -> Schema:
    return dict.fromkeys(names, pl.Int64())


def states_file(dataset: str, run: str) -> str:
    """Kept states of a dataset in one run of its items, relative to the run folder."""
    return f"states/{dataset}/{run}.safetensors"


def features_file(dataset: str) -> str:
    """What detectors read of the used items beside their states (`FEATURE_SCHEMA`)."""
    return f"states/{dataset}/features.parquet"


def empty(schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    return pl.DataFrame(schema=schema)


ITEM_SCHEMA = {
    **_texts("dataset", "item_id", "question"),
    "answers": pl.List(pl.String()),
    **_texts("subject", "relation"),
    "property_words": pl.List(pl.String()),
    "exact_question": pl.List(pl.List(pl.Int64())),
    "question_words": pl.List(pl.List(pl.Int64())),
    "group": pl.Int64(),
    "model_answer": pl.String(),
    "truthful": pl.Boolean(),
    **_numbers("confidence_mean", "confidence_min"),
    "status": pl.String(),
    "weight": pl.Float64(),
    "fold": pl.Int64(),
    "input_ids": pl.List(pl.Int64()),
    "question_tokens": pl.List(pl.Int64()),
    "answer_tokens": pl.List(pl.Int64()),
    "probe_positions": pl.Struct(dict.fromkeys(POSITIONS, pl.Int64())),
    "pathway": pl.String(),
    "metadata": pl.String(),
    "context": pl.List(pl.String()),
    "thinking": pl.String(),
}
"""items.parquet; `exact_question` are the user's own spans, `question_words` those used for E_Q, `metadata` is JSON."""
EFFECT_SCHEMA = {
    **_texts("dataset", "item_id", "intervention", "variant", "site", "position"),
    **_counts("n_cut", "n_candidates"),
    "attention_ratio": pl.Float64(),
    "logit_clean": pl.List(pl.Float32()),
    "logit_after": pl.List(pl.Float32()),
}
"""effects.parquet; `n_candidates` is the number of tokens that cut ones were drawn from, `attention_ratio` the
attention that the cut tokens receive in the clean run over that of E_Q; null where it doesn't apply."""
CURVE_SCHEMA = {
    **_texts(
        "model",
        "dataset",
        "intervention",
        "variant",
        "site",
        "position",
        "group",
        "truth",
    ),
    "layer": pl.Int64(),
    **_numbers("delta_p", "ci_low", "ci_high"),
    **_counts("n", "n_groups"),
}
"""curves.csv; reference_curves.csv has `shift` besides."""
SAMPLE_SCHEMA = {
    **_texts("dataset", "site", "position", "group"),
    "layer": pl.Int64(),
    "delta_p": pl.List(pl.Float32()),
}
"""curve_samples.parquet: `delta_p` runs over the draws, first the sample itself, then every resample."""
SCORE_SCHEMA = {
    **_texts("model", "dataset", "intervention", "kind", "site", "position"),
    "layer": pl.Int64(),
    **_numbers("auc", "ci_low", "ci_high", "log_loss", "brier"),
    **_counts("n", "n_groups"),
}
"""probe_scores.csv."""
PART_SCHEMA = {
    **_texts("model", "dataset", "intervention", "site", "position", "layer", "part"),
    **_numbers("share", "ci_low", "ci_high"),
    **_counts("n", "n_groups"),
    "method": pl.String(),
}
"""evidence_parts.csv: `together`, `question`, `answer` and `either` sum to 1; `layer` is a number or `BAND`."""
BAND = "band"
"""In the place of a layer: the mean over all layers whose AUC is within one standard error of the best."""
EVIDENCE_ITEM_SCHEMA = {
    **_texts("dataset", "item_id", "intervention", "view", "site", "position"),
    **dict.fromkeys(("lost", "label_left", "had", "label"), pl.List(pl.Float32())),
}
"""evidence_items.parquet: lists over layers; need of a set of items is (Σ lost / Σ label_left) / (Σ had / Σ label)."""
EVIDENCE_TEST_SCHEMA = {
    **_texts(
        "model",
        "dataset",
        "site",
        "position",
        "layers",
        "quantity",
        "intervention",
        "group",
    ),
    **_numbers("value", "ci_low", "ci_high", "p_value"),
    "n": pl.Int64(),
    "method": pl.String(),
}
"""evidence_tests.csv: numbers beside the parts at the headline place, over the band's `layers`."""
SUMMARY_SCHEMA = {
    **_texts("dataset", "site", "position", "intervention", "group", "quantity"),
    **_numbers("value", "ci_low", "ci_high"),
    "n": pl.Int64(),
    "method": pl.String(),
}
"""summary.csv: one quantity per row."""
PATHWAY_SCHEMA = {
    **_texts("dataset", "item_id", "site", "position"),
    "reference_layer": pl.Int64(),
    "pathway": pl.String(),
}
"""pathways.parquet."""
EXPERIMENT_SCHEMA = {
    **_texts(
        "model",
        "dataset",
        "site",
        "position",
        "experiment",
        "variant",
        "against",
        "group",
        "truth",
    ),
    **_counts("layer", "probe_layer"),
    "quantity": pl.String(),
    **_numbers("value", "ci_low", "ci_high"),
    "n": pl.Int64(),
    **_numbers("p_value", "q_value"),
    "method": pl.String(),
}
"""experiments.csv: one statistic per row."""
EXPERIMENT_ITEM_SCHEMA = {
    **_texts("dataset", "item_id", "experiment", "variant", "quantity"),
    "value": pl.Float64(),
}
"""experiment_items.parquet: one number of one item per row."""
FEATURE_SCHEMA = {
    "item_id": pl.String(),
    **_numbers(
        "answer_tokens",
        "log_prob_mean",
        "log_prob_min",
        "log_prob_first",
        "margin_first",
        "entropy_mean",
        "rauq",
    ),
    "p_true": pl.Float64(),
    **_numbers(
        *(
            f"{name}_{n}"
            for n in SAMPLES
            for name in ("self_consistency", "semantic_entropy")
        )
    ),
    "eigen_score_10": pl.Float64(),
}
"""states/DATASET/features.parquet (`--keep detection`): what detectors read of the used items beside their states."""
UNAVAILABLE_SCHEMA = _texts("dataset", "experiment", "reason")
"""What can't be done, with the reason; in the manifest."""

DETECTOR_SCHEMA = {
    **_texts("detector", "train", "test", "metric", "prevalence"),
    **_numbers("value", "ci_low", "ci_high"),
    **_counts("n", "passes"),
}
"""detectors.csv: one number per row. `train` and `test` are datasets; `train` may be `all but X`, `test` may be `X
(prompt NAME)`. The metric `auroc-spread` is the standard deviation of the AUROC over the seeds of the folds."""
DETECTOR_DIFFERENCE_SCHEMA = {
    **_texts("detector", "against", "train", "test", "metric", "prevalence"),
    **_numbers("difference", "ci_low", "ci_high"),
    "n": pl.Int64(),
}
"""differences.csv: the metric of `detector` minus that of `against`, both on the same items in the same resamples."""
DETECTOR_CURVE_SCHEMA = {
    **_texts("detector", "dataset"),
    **_numbers("coverage", "risk"),
}
"""detector_curves.csv: share of answers that are accepted, best first, and share of false ones among them, at the
natural share of true answers, tested on the dataset learned from."""
DETECTOR_CONTROL_SCHEMA = {
    **_texts("control", "detector", "train"),
    **_numbers("value", "low", "high"),
    "n": pl.Int64(),
}
"""controls.csv: `permuted-labels`, the mean AUROC with permuted labels and its interval, for all detectors together
(Bonferroni)."""


def layer_ranges(layers: Sequence[int]) -> list[str]:
    """Layers in order, runs of neighbours as a range: "4", "20–29"."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
