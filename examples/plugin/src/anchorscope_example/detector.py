"""The answer's least likely token: one unlikely word is often the wrong one."""

from anchorscope.catalogue import DetectorEntry
from anchorscope.detectors.data import DetectorFit, TrainingData, fit_stacked
from anchorscope.detectors.fits import DetectorPlugin

COLUMNS = ("log_prob_min",)


def fit(data: TrainingData) -> DetectorFit:
    """A logistic regression on its log-probability."""
    return fit_stacked(data, (), COLUMNS)


LEAST_LIKELY_TOKEN = DetectorPlugin(
    DetectorEntry("least-likely-token", "the lowest log-probability of the answer's tokens", passes=0, columns=COLUMNS),
    fit,
)
