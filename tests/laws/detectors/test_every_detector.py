"""Every detector that can be fitted is saved, loaded and scores new answers as it scored what it was trained on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.catalogue import KNOCKOUT, OWN_DETECTORS
from anchorscope.datasets.question import Question, question_from_row
from anchorscope.detectors.bundle import pack, unpack
from anchorscope.detectors.detector import Detector, ScoringSession
from anchorscope.detectors.evaluation import Plan, TrainedOn
from anchorscope.detectors.features import MEASURED, Needs
from anchorscope.detectors.training import Dataset
from anchorscope.engine.sequences import SITES
from anchorscope.models.language_model import LanguageModel
from detector_cases import setting_of, trained_on
from small_facts import rows

SITE = "mlp"
SAVED = tuple(
    name
    for name, entry in OWN_DETECTORS.items()
    if entry.saved
    and KNOCKOUT not in entry.runs
    and "semantic_entropy_10" not in entry.columns
)
"""All but those that learn from what a single pass over new answers does not have."""


def questions() -> list[Question]:
    return [
        question_from_row(row, "facts", number)
        for number, row in enumerate(rows()[:80])
    ]


def everything(n_layers: int) -> Needs:
    """All that can be read of a new answer."""
    places = [*(("clean", site) for site in SITES), ("question-only", SITE)]
    states = tuple(
        (run, site, layer) for run, site in places for layer in range(n_layers)
    )
    return Needs(states, MEASURED)


@pytest.fixture(scope="module")
def trained(tiny_llama: LanguageModel) -> TrainedOn:
    """All detectors, fitted on eighty answers."""
    session = ScoringSession(tiny_llama, setting_of(tiny_llama))
    items = session.items(questions())
    labels = np.array([one["truthful"] for one in rows()[:80]])
    relations = [item.question.relation for item in items]
    names = [item.item_id for item in items]
    features = session.features(items, everything(tiny_llama.n_layers))
    keys = [frozenset([name]) for name in names]
    dataset = Dataset(
        "facts", features, labels, np.arange(80), relations, names, np.ones(80), keys
    )
    return TrainedOn(
        dataset, SITE, Plan(folds=3, seeds=1, tosses=0), torch.device("cpu")
    )


@pytest.mark.parametrize("name", SAVED)
def test_saved_and_loaded_it_scores_as_it_was_fitted(
    name: str, trained: TrainedOn, tiny_llama: LanguageModel
) -> None:
    build = trained.fits.fit(name).build
    assert build is not None
    fitted = build(trained.whole)
    files = pack(replace(trained_on(tiny_llama, fitted=fitted), name=name, range=None))
    detector = Detector(unpack(files, name), tiny_llama)
    few = slice(3, 80, 11)
    wanted = 1.5 * fitted.log_odds(trained.dataset.features)[few] - 0.2
    found = detector.score_questions(questions()[few])
    np.testing.assert_allclose(
        [one.log_odds for one in found], wanted, rtol=1e-4, atol=1e-4
    )
    assert len({one.log_odds for one in found}) > 1
