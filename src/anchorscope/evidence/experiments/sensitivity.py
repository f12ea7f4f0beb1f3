"""Sensitivity: how far pathways hang on choices that could as well have been made otherwise.

Four choices are varied one at a time, on what was measured already: the layer that assigns, the rule that says what
counts as a flip, the words that are cut, and the seed that deals out folds and probes. Each way is described by the
share of Q-Anchored items, the share of true answers in both groups, and its agreement (kappa) with the run's own
assignment.

The words are those of the `exact-tokens` experiment: the subject alone, the property alone, or every content word is
cut instead of E_Q, and the plain rule is applied to what that does, among the items that have such words. As many
random tokens stand beside them: groups that agree with those made by a random cut do not hang on the choice of words.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.errors import UserError
from anchorscope.evidence.corrected import Corrected, correct_shift
from anchorscope.evidence.draws import resampling
from anchorscope.evidence.experiments.assignment_rows import Assigned, Few, kappa_row, mean_rows, notes, share_rows
from anchorscope.evidence.experiments.compare import q_values
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.evidence.experiments.flip_rules import RULES, Seen, seen_at_reference
from anchorscope.evidence.experiments.method_calls import MethodCalls, correct_before, intervention_calls
from anchorscope.evidence.measured import Measured, true_label_probability
from anchorscope.evidence.pathways import assign, at_reference, noise_at_reference
from anchorscope.probes.crossfit import Scorer, fit_probes, make_splits, refit_logits, score_states
from anchorscope.probes.folds import grouped_folds
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.streams import priorities

SEEDS = 3
"""Other seeds that are tried."""


def no_other_seeds(inputs: ExperimentInputs) -> str | None:
    """Why other probes cannot be put on the cut states, if so."""
    if KNOCKOUT not in inputs.cut_states():
        return f"other seeds: the states under the {KNOCKOUT} were not kept, so no other probe can score them"
    return None


def measured_anew(inputs: ExperimentInputs, seed: int) -> Measured | str:
    """Log-odds before and after the knockout by probes of another seed, or why there are none."""
    place, device = inputs.measured, torch.device(inputs.device)
    clean, cut = inputs.states(), inputs.cut_states()[KNOCKOUT]
    ids = [item.item_id for item in inputs.used_items]
    relations = [item.question.relation for item in inputs.used_items]
    n_folds, order = int(place.folds.max()) + 1, priorities(seed, "folds", ids)
    folds = grouped_folds(place.groups, inputs.splits.strata, n_folds, order)
    try:
        splits = make_splits(place.labels, place.groups, folds, seed, ("full",), ids, relations)
    except UserError:
        return f"seed {seed}: its folds leave only true or only false answers on some side"
    (probes,) = fit_probes(clean[None], splits, [f"seed {seed}"], device, inputs.progress)
    scorer = Scorer([[probes]], folds, device)
    before, after = (
        score_states(scorer, states[None, None])[:, 0, 0].transpose(1, 2, 0)  # [probe, layer, item]
        for states in (clean, cut)
    )
    return Measured(
        labels=place.labels,
        groups=place.groups,
        folds=folds,
        probes=splits.probes,
        before=before,
        after={KNOCKOUT: after},
        ran={KNOCKOUT: place.ran[KNOCKOUT]},
        n_cut={KNOCKOUT: place.n_cut[KNOCKOUT]},
        reference=probes.reference,
        refits={KNOCKOUT: refit_logits(KNOCKOUT, cut, splits, inputs.progress, device)},
    )


UNMOVED = "l*"
CUTS = ("subject", "property", "content", "random")
"""Interventions that cut other words than the knockout does."""

Floats = NDArray[np.floating]
Rows = tuple[list[Statistic], list[Few]]


def run(inputs: ExperimentInputs) -> Found:
    """The reference layer, the rule, the words that are cut, the seed."""
    with resampling(torch.device(inputs.device)):
        corrected = correct_shift(inputs.measured, inputs.draws)
        moved, few_moved = _moved(inputs, corrected)
        ruled, few_ruled, lacking = _ruled(inputs, corrected)
        cut, few_cut, not_cut = _cut(inputs)
    seeded, few_seeded, why_not = _seeded(inputs, corrected)
    missing = [*notes([*few_moved, *few_ruled, *few_cut, *few_seeded]), *lacking, *not_cut, *why_not]
    return Found((*moved, *ruled, *cut, *seeded), _rule_values(seen_at_reference(inputs)), tuple(missing))


def _assigned(
    inputs: ExperimentInputs, measured: Measured, shift: Tensor, variant: str, move: int = 0
) -> dict[str, Assigned]:
    """The assignments by some probes, the reference layer moved by some layers.

    `shift` is the common shift [layer, fold, draw]. The noise floor is that of the run's own probes: the no-op control
    was not scored by others.
    """
    draws, folds, noise = inputs.draws, measured.folds, noise_at_reference(inputs.measured, "full")
    index = measured.probe("full")
    reference = measured.reference[index]
    layers = np.clip(reference[folds] + move, 0, measured.n_layers - 1)
    before = at_reference(measured.before[index], reference, folds, move)
    after = at_reference(measured.after[KNOCKOUT][index], reference, folds, move)
    calls = assign(before, after, measured.labels, noise)
    known = calls.correct & np.isfinite(before) & np.isfinite(after)
    clean = draws.put(before)[:, None]
    less = draws.put(after)[:, None] - shift[draws.put(layers), draws.put(folds)]
    flipped = ((less > 0) != (clean > 0)) & ((less - clean).abs() > noise)
    layer = round(float(layers.mean()))
    found = {
        "plain": Assigned(variant, known, draws.put(calls.flipped)[:, None], "plain", layer),
        "corrected": Assigned(variant, known, flipped, "corrected", layer),
    }
    if KNOCKOUT in measured.refits:
        left = at_reference(measured.refits[KNOCKOUT], reference, folds, move)
        lost = RULES["retained"].flipped(Seen(before, after, left, measured.labels, folds, noise))
        found["retained"] = Assigned(variant, known & np.isfinite(left), draws.put(lost)[:, None], "retained", layer)
    return found


def _moved(inputs: ExperimentInputs, corrected: Corrected) -> Rows:
    """The reference layer moved by every possible number of layers; folds that have no more stay at the last one."""
    place, draws = inputs.measured, inputs.draws
    moves = range(-int(inputs.reference.max()), place.n_layers - int(inputs.reference.min()))
    own = _assigned(inputs, place, corrected.knockout, UNMOVED)
    rows: list[Statistic] = []
    few: list[Few] = []
    inputs.progress.start("sensitivity", len(moves))
    for move in moves:
        variant = UNMOVED if move == 0 else f"{UNMOVED} {'−' if move < 0 else '+'} {abs(move)}"
        for assignment, moved in _assigned(inputs, place, corrected.knockout, variant, move).items():
            parts = [share_rows(moved, place.labels, draws)]
            if move:
                parts.append(kappa_row(moved, own[assignment], UNMOVED, draws))
            rows += [row for part in parts for row in part[0]]
            few += [one for part in parts for one in part[1]]
        inputs.progress.advance(1)
    inputs.progress.finish()
    return _with_q_values(rows), few


def _with_q_values(rows: list[Statistic]) -> list[Statistic]:
    """The false discovery rate is controlled over all layers of a quantity."""
    families = defaultdict(list)
    for number, row in enumerate(rows):
        if row.p_value is not None:
            families[row.quantity, row.assignment, row.truth].append(number)
    found = list(rows)
    for numbers in families.values():
        for number, q in zip(numbers, q_values([rows[one].p_value or 0.0 for one in numbers]), strict=True):
            found[number] = replace(rows[number], q_value=float(q))
    return found


def _ruled(inputs: ExperimentInputs, corrected: Corrected) -> tuple[list[Statistic], list[Few], list[str]]:
    """Other rules on the same log-odds."""
    assigned, lacking = _assigned_by_rules(inputs, corrected)
    rows, few = [], []
    for name, one in assigned.items():
        parts = [share_rows(one, inputs.measured.labels, inputs.draws)]
        if name != "plain":
            parts.append(kappa_row(one, assigned["plain"], "plain", inputs.draws))
        rows += [row for part in parts for row in part[0]]
        few += [one for part in parts for one in part[1]]
    return rows, few, lacking


def _assigned_by_rules(inputs: ExperimentInputs, corrected: Corrected) -> tuple[dict[str, Assigned], list[str]]:
    seen, draws = seen_at_reference(inputs), inputs.draws
    assigned, lacking = {}, []
    for name, rule in RULES.items():
        if rule.needs_refit and seen.refit is None:
            lacking.append(f"rule {name!r}: no probe was trained on states under the {KNOCKOUT}")
            continue
        known = seen.correct & np.isfinite(rule.score(seen))
        # The shift that the corrected rule takes away is an estimate: every draw makes its own.
        flipped = corrected.flipped if name == "corrected" else draws.put(rule.flipped(seen))[:, None]
        assigned[name] = Assigned(f"rule: {name}", known, flipped, name if name in inputs.calls else None)
    for name, calls in inputs.calls.items():
        if name not in RULES:
            assigned[name] = Assigned(f"rule: {name}", calls.correct, draws.put(calls.flipped)[:, None], name)
    return assigned, lacking


def _cut(inputs: ExperimentInputs) -> tuple[list[Statistic], list[Few], list[str]]:
    """The plain assignment made by other cuts."""
    place, draws = inputs.measured, inputs.draws
    own = _assigned_by_cut(inputs, intervention_calls(place, KNOCKOUT, "plain", draws))
    rows: list[Statistic] = []
    few: list[Few] = []
    for name in (one for one in CUTS if one in place.after):
        one = _assigned_by_cut(inputs, intervention_calls(place, name, "plain", draws))
        for found, reasons in (share_rows(one, place.labels, draws), kappa_row(one, own, "plain", draws)):
            rows += found
            few += reasons
    absent = [name for name in CUTS if name not in place.after]
    if not absent:
        return rows, few, []
    return (
        rows,
        few,
        [f"cut: {', '.join(absent)}: not run; --evidence exact-tokens cuts them where the questions have such words"],
    )


def _assigned_by_cut(inputs: ExperimentInputs, calls: MethodCalls) -> Assigned:
    """Only items that the cut was run on, and that have a number after it, have a pathway by it."""
    known = correct_before(inputs.measured) & calls.ran & np.isfinite(calls.score)
    return Assigned(f"cut: {calls.method}", known, calls.flipped, "plain")


def _rule_values(seen: Seen) -> tuple[ItemValues, ...]:
    """What every rule says of every item that is called right: its score, and 1 where it calls it Q-Anchored."""
    found = []
    for name, rule in RULES.items():
        if rule.needs_refit and seen.refit is None:
            continue
        score, flipped = rule.score(seen), rule.flipped(seen)
        items = np.flatnonzero(seen.correct & np.isfinite(score))
        found.append(ItemValues("rule_score", items, score[items], name))
        found.append(ItemValues("rule_call", items, flipped[items].astype(float), name))
    return tuple(found)


def _seeded(inputs: ExperimentInputs, corrected: Corrected) -> tuple[list[Statistic], list[Few], list[str]]:
    """Other folds and other probes."""
    why_not = no_other_seeds(inputs)
    if why_not:
        return [], [], [why_not]
    labels, draws, own_name = inputs.measured.labels, inputs.draws, f"seed {inputs.setting.seed}"
    own = _assigned(inputs, inputs.measured, corrected.knockout, own_name)
    rows: list[Statistic] = []
    few: list[Few] = []
    lacking: list[str] = []
    for seed in (inputs.setting.seed + more for more in range(1, SEEDS + 1)):
        measured = measured_anew(inputs, seed)
        if isinstance(measured, str):
            lacking.append(measured)
            continue
        with resampling(torch.device(inputs.device)):
            assigned = _assigned(inputs, measured, correct_shift(measured, draws).knockout, f"seed {seed}")
            parts = [share_rows(one, labels, draws) for one in assigned.values()]
            parts += [kappa_row(one, own[name], own_name, draws) for name, one in assigned.items() if name in own]
            parts.append(mean_rows(assigned["plain"], "delta_p_reference", _delta_p(measured), labels, draws))
        rows += [row for part in parts for row in part[0]]
        few += [one for part in parts for one in part[1]]
    return [*rows, *_over_seeds(rows)], few, lacking


def _delta_p(measured: Measured) -> Floats:
    """ΔP of every item at its reference layer, in percentage points."""
    index = measured.probe("full")
    before, after = (
        at_reference(logits, measured.reference[index], measured.folds)
        for logits in (measured.before[index], measured.after[KNOCKOUT][index])
    )
    labels = measured.labels
    return 100 * (true_label_probability(after, labels) - true_label_probability(before, labels))


def _over_seeds(rows: Iterable[Statistic]) -> Iterator[Statistic]:
    """Mean and range of every number over the seeds in which it could be had."""
    same = defaultdict(list)
    for row in rows:
        same[row.quantity, row.against, row.assignment, row.group, row.truth].append(row.estimate)
    for (quantity, against, assignment, group, truth), found in same.items():
        values = [one.value for one in found]
        if len(values) > 1:
            method = f"mean and range over {len(values)} other seeds"
            n = round(sum(one.n for one in found) / len(found))
            estimate = Estimate(sum(values) / len(values), min(values), max(values), n, method)
            yield Statistic(quantity, estimate, "seeds", against, assignment, group, truth)


EXPERIMENT = Experiment(
    "sensitivity", "how far pathways hang on the reference layer, on what is a flip, on the words cut, on the seed", run
)
