"""What the paper reports of its detectors: AUC on four datasets of two models, without intervals.

Its probe reads one layer; MoP is Mixture-of-Probes, PR Pathway Reweighting. How they were trained and PR's formula are
not published in full, so that these numbers are a mark to compare with and not a result to repeat.
"""

from collections.abc import Mapping
from statistics import fmean

DATASETS = ("popqa", "triviaqa", "hotpotqa", "nq")
PROBE, MOP, PR = "Probing", "MoP", "PR"
TABLE: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "Llama-3-8B": {
        "P(True)": (55.85, 49.92, 52.14, 53.27),
        "Logits-mean": (74.52, 60.39, 51.94, 52.63),
        "Logits-min": (85.36, 70.89, 61.28, 56.50),
        PROBE: (88.71, 77.58, 82.23, 70.20),
        MOP: (92.11, 81.18, 85.45, 74.64),
        PR: (94.01, 83.13, 87.81, 79.10),
    },
    "Mistral-7B-v0.3": {
        "P(True)": (45.49, 47.61, 57.87, 52.79),
        "Logits-mean": (69.52, 66.76, 55.45, 57.88),
        "Logits-min": (87.05, 77.33, 68.08, 54.40),
        PROBE: (87.39, 81.74, 83.19, 73.60),
        MOP: (91.66, 83.57, 85.82, 76.87),
        PR: (93.09, 84.36, 89.03, 79.09),
    },
}
"""AUC × 100, by model and detector, in the order of the datasets."""

RANDOM_GATE, EQUAL_EXPERTS = 71.9, 81.2
"""Its ablations of MoP, mean of all cells: a gate drawn at random, and both experts counted equally."""


def mean_auc(detector: str) -> float:
    """A detector's AUC in the mean of all cells."""
    return fmean(value for table in TABLE.values() for value in table[detector]) / 100


def mean_gain(detector: str) -> float:
    """What it gains over the probe there."""
    return mean_auc(detector) - mean_auc(PROBE)
