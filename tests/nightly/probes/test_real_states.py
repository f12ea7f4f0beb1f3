"""Parity with scikit-learn on real activations, inner folds included: a real model reads right and wrong answers."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler
from transformers import AutoModelForCausalLM, AutoTokenizer

import needs
from anchorscope.datasets.relations import load_atlas
from anchorscope.probes.crossfit import fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import INNER_FOLDS, STRENGTHS
from anchorscope.stats.streams import unnamed

pytestmark = pytest.mark.embedded

ITEMS, LAYERS, BATCH = 120, (6, 14), 30


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.arange(ITEMS) % 2 == 0


@pytest.fixture(scope="module")
def states(labels: np.ndarray) -> torch.Tensor:
    """Residual states at the last token of right and swapped answers, [layer, item, d_model]."""
    folder = needs.embedded_model()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.model.layers = model.model.layers[
        : max(LAYERS) + 1
    ]  # one more than is read: the last passes the final norm
    asked = load_atlas()
    questions = [
        asked[place]
        for place in np.random.default_rng(0).permutation(len(asked))[: ITEMS + 1]
    ]
    answers = [
        questions[place + int(not labels[place])].answers[0] for place in range(ITEMS)
    ]
    texts = [
        f"{question.question} {answer}"
        for question, answer in zip(questions, answers, strict=False)
    ]
    kept = []
    with torch.no_grad():
        for start in range(0, ITEMS, BATCH):
            rows = [tokenizer(text).input_ids for text in texts[start : start + BATCH]]
            longest = max(len(row) for row in rows)
            # causal: padding behind is unseen
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
            found = model.model(ids, output_hidden_states=True).hidden_states
            last = torch.tensor([len(row) - 1 for row in rows])
            kept.append(
                torch.stack(
                    [found[layer][torch.arange(len(rows)), last] for layer in LAYERS]
                )
            )
    return torch.cat(kept, dim=1)


def test_probes_are_those_of_scikit_learn_on_real_states(
    states: torch.Tensor, labels: np.ndarray
) -> None:
    groups = np.arange(ITEMS)
    folds = grouped_folds(
        groups, truth_strata(labels), 3, unnamed(0, "test", len(labels))
    )
    splits = make_splits(labels, groups, folds, seed=0)
    (fitted,) = fit_probes(states[None], splits, ["residual/final"])
    assert fitted.unconverged == ()
    for layer, fold in ((0, 1), (1, 2)):
        x = states[layer].double().numpy()
        rows, inner = (np.flatnonzero(splits.training[fold]), splits.inner[fold])
        scaler = StandardScaler().fit(x[rows])
        scaled = scaler.transform(x)
        losses, areas = [], []
        for strength in STRENGTHS:
            held_out = np.zeros(ITEMS)
            for k in range(INNER_FOLDS):
                learned, held = rows[inner[rows] != k], rows[inner[rows] == k]
                model = LogisticRegression(C=strength, tol=1e-6, max_iter=5_000).fit(
                    scaled[learned], labels[learned]
                )
                held_out[held] = model.decision_function(scaled[held])
            losses.append(log_loss(labels[rows], 1 / (1 + np.exp(-held_out[rows]))))
            folds = [rows[inner[rows] == k] for k in range(INNER_FOLDS)]
            pairs = [labels[held].sum() * (~labels[held]).sum() for held in folds]
            each = [roc_auc_score(labels[held], held_out[held]) for held in folds]
            areas.append(np.average(each, weights=pairs))
        chosen = STRENGTHS.index(fitted.strength[fold, layer])
        assert losses[chosen] <= min(losses) * (1 + 1e-3)
        assert fitted.inner_auc[fold, layer] == pytest.approx(areas[chosen], abs=2e-3)

        wanted = LogisticRegression(C=STRENGTHS[chosen], tol=1e-6, max_iter=5_000).fit(
            scaled[rows], labels[rows]
        )
        raw = fitted.weight[fold, layer].double().numpy()
        intercept = float(fitted.bias[fold, layer]) + raw @ scaler.mean_
        ours, best = (
            STRENGTHS[chosen]
            * log_loss(
                labels[rows], 1 / (1 + np.exp(-(scaled[rows] @ w + b))), normalize=False
            )
            + w @ w / 2
            for w, b in (
                (raw * scaler.scale_, intercept),
                (wanted.coef_[0], wanted.intercept_[0]),
            )
        )
        assert ours == pytest.approx(best, rel=1e-3)
        own = splits.folds == fold
        found = roc_auc_score(labels[own], x[own] @ raw)
        assert found == pytest.approx(
            roc_auc_score(labels[own], wanted.decision_function(scaled[own])), abs=2e-3
        )
