"""The rules that sort items by their flips, run on a world's states by the code that a run uses.

Replicas are solved together, as the layers of a model are; then each is a model of one layer.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.corrected import cell_sums, correct_shift
from anchorscope.evidence.curves import knockout_samples
from anchorscope.evidence.draws import Draws, resampling
from anchorscope.evidence.measured import Measured
from anchorscope.evidence.pathways import ASSIGNMENTS, GROUPS, Calls, plain_calls
from anchorscope.probes.crossfit import Scorer, fit_probes
from anchorscope.stats.estimate import percentile_interval
from anchorscope.validation.worlds.quantities import Quantities, auc_by_truth
from anchorscope.validation.worlds.setting import Setting
from anchorscope.validation.worlds.states import Made
from anchorscope.validation.worlds.world import World

_RESAMPLES = 200  # enough to tell on which side of zero an interval lies


def sorting_rules(world: World, made: Made, setting: Setting) -> dict[str, list[Quantities]]:
    """What each rule says of every replica."""
    found: dict[str, list[Quantities]] = {rule: [] for rule in ASSIGNMENTS}
    draws = Draws.of(setting.weights[:_RESAMPLES])
    with resampling(draws.device):
        for replica, measured in enumerate(_measured(made, setting)):
            kind = made.planted.kind[replica]
            for rule, quantities in _rate(world, measured, kind, draws).items():
                found[rule].append(quantities)
    return found


def _measured(made: Made, setting: Setting) -> Iterator[Measured]:
    """Log-odds of each replica's items, before and after the cut."""
    splits, device = setting.splits, setting.device
    (probes,) = fit_probes(made.clean[None], splits, ["world"], device)
    scorer = Scorer([[probes]], splits.folds, device)
    everyone = range(len(splits.labels))
    before, after = (
        scorer.score(everyone, states.to(device).transpose(0, 1)[:, None, None])[:, 0, 0].cpu().numpy()
        for states in (made.clean, made.cut)
    )  # [item, probe, replica]
    everyone_ran = np.arange(len(splits.labels))
    for replica in range(len(made.clean)):
        yield Measured(
            labels=splits.labels,
            groups=setting.groups,
            folds=splits.folds,
            probes=splits.probes,
            before=before[:, :, replica].T[:, None],
            after={KNOCKOUT: after[:, :, replica].T[:, None]},
            ran={KNOCKOUT: everyone_ran},
            n_cut={KNOCKOUT: np.ones_like(everyone_ran)},
            reference=np.zeros((len(splits.probes), int(splits.folds.max()) + 1), dtype=np.int64),
        )


def _rate(world: World, measured: Measured, kind: Float[np.ndarray, " item"], draws: Draws) -> dict[str, Quantities]:
    corrected = correct_shift(measured, draws)
    curves = knockout_samples(corrected, cell_sums(corrected, KNOCKOUT), draws)
    found = {}
    for rule in ASSIGNMENTS:
        apart = (curves[rule, GROUPS[0]] - curves[rule, GROUPS[1]])[0]
        _, high = percentile_interval(apart[1:])
        calls = {
            "plain": lambda: [(plain_calls(measured), "full")],
            "cross-fitted": lambda: [(plain_calls(measured, probe), probe) for probe in ("a", "b")],
            "corrected": lambda: [(corrected.sample(), "full")],
        }[rule]()
        shift = corrected.knockout[0, :, 0].cpu().numpy()[measured.folds] if rule == "corrected" else 0.0
        ways = [_way(world, measured, kind, one, probe, shift) for one, probe in calls]
        both = {name: float(np.mean([way[name] for way in ways])) for name in ways[0]}
        found[rule] = both | {"claims": float(high < 0)}
    return found


def _way(
    world: World,
    measured: Measured,
    kind: Float[np.ndarray, " item"],
    calls: Calls,
    probe: str,
    shift: Float[np.ndarray, " item"] | float,
) -> Quantities:
    """One probe's calls: only items that it calls right are sorted, by how far they went to the other side."""
    index = measured.probe(probe)
    right: Bool[np.ndarray, " item"] = calls.correct
    before, after = measured.before[index, 0], measured.after[KNOCKOUT][index, 0]
    score = np.where(before > 0, shift - after, after - shift).astype(np.float64)
    share = float(calls.members(GROUPS[0])[right].mean())
    planted = float(world.shares(kind)[right].mean())
    aucs = auc_by_truth(score, kind, measured.labels, right, measured.folds) if world.has_kinds else {}
    return aucs | {"share_bias": share - planted, "share": share, "sorted_items": float(right.sum())}
