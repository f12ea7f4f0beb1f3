"""Doses: nested cuts, the full one is the knockout, and an effect that grows with the dose is found to do so."""

from itertools import pairwise

import numpy as np
import pytest

from anchorscope.catalogue import KNOCKOUT
from anchorscope.experiments.dose import DOSES, analyse, n_tokens, plan_doses
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.partial_cuts import Scored
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs, only, rows
from partial_cuts_synthetic import tiny_inputs


def test_a_dose_is_a_share_of_the_exact_tokens_rounded_up_and_never_nothing() -> None:
    assert [n_tokens(dose, 1) for dose in DOSES] == [1] * 5
    assert [n_tokens(dose, 4) for dose in DOSES] == [1, 1, 2, 3, 4]
    assert [n_tokens(dose, 9) for dose in DOSES] == [1, 3, 5, 7, 9]


def test_doses_are_nested_and_the_full_one_cuts_the_exact_tokens(tiny_llama: LanguageModel) -> None:
    inputs = tiny_inputs(tiny_llama)
    planned = plan_doses(inputs)
    for index, item in enumerate(inputs.used_items):
        for kind in ("exact", "random"):
            cuts = [planned[f"{kind} {dose}"].get(index) for dose in DOSES]
            keys = [set(cut.keys) for cut in cuts if cut is not None]
            assert all(small <= large for small, large in pairwise(keys))
            exact = set(item.located.question_tokens)
            assert all((one <= exact) if kind == "exact" else not (one & exact) for one in keys)
            wanted = [n_tokens(dose, len(exact)) for dose in DOSES]
            assert [len(one) for one in keys] == wanted[: len(keys)]
        assert set(planned["exact 100 %"][index].keys) == exact
    # A question with too few other tokens is not run: it would change fewer tokens than the key words' dose.
    assert 0 < len(planned["random 100 %"]) < len(planned["random 1 token"]) == inputs.n
    firsts = {planned["exact 1 token"][index].keys for index in range(inputs.n)}
    assert len(firsts) > 3  # the order is drawn


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    return make_inputs(n=200, after_cut=-0.8)


def outcomes(inputs: ExperimentInputs) -> dict[str, Scored]:
    """Every dose takes its share of the knockout's change in log-odds, and random tokens take nothing but noise."""
    rng, items = np.random.default_rng(0), np.arange(inputs.n)
    before, after = inputs.measured.before[0], inputs.measured.after[KNOCKOUT][0]
    ran = {f"exact {dose}": Scored(items, before + share * (after - before)) for dose, share in DOSES.items()}
    noise = {f"random {dose}": rng.normal(0, 0.02, before.shape) for dose in DOSES}
    return ran | {name: Scored(items, before + one) for name, one in noise.items()}


def test_an_effect_that_grows_with_the_dose_is_found_so(inputs: ExperimentInputs) -> None:
    ran = outcomes(inputs)
    found = analyse(inputs, ran, {name: dict.fromkeys(range(inputs.n), 2) for name in ran})
    means = {row.variant: row.estimate for row in rows(found, "delta_p_reference")}
    exact = [means[f"exact {dose}"].value for dose in DOSES]
    assert exact[0] == pytest.approx(0, abs=1e-6)
    assert exact == sorted(exact, reverse=True)
    assert means["exact 100 %"].ci_high < -10
    whole = Scored(np.arange(inputs.n), inputs.measured.after[KNOCKOUT][0]).at_reference(inputs)
    assert exact[-1] == pytest.approx(whole.mean())
    assert all(abs(means[f"random {dose}"].value) < 1 for dose in DOSES)
    gap = only(found, "delta_p_reference_difference", variant="exact 100 %", against="random 100 %")
    assert gap.estimate.value == pytest.approx(exact[-1] - means["random 100 %"].value)
    assert gap.p_value is not None
    assert gap.p_value < 1e-3
    shares = {row.variant: row.estimate.value for row in rows(found, "share_of_full")}
    assert 0 < shares["exact 25 %"] < shares["exact 50 %"] < shares["exact 75 %"] < 1
    areas = {row.variant: row.estimate.value for row in rows(found, "auc_reference")}
    assert areas["exact 1 token"] == pytest.approx(areas["nothing cut"])  # this dose was planted to do nothing
    assert areas["exact 100 %"] < areas["exact 50 %"] <= areas["exact 1 token"] + 1e-9
