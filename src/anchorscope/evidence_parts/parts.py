"""Four parts of a probe's evidence that sum to one, from three views of the same run (docs/evidence-parts.md).

Views: `cut`, the state at the answer's end with the question's key words cut; `before-answer`, the clean state before
the answer begins; `both` side by side. `together` is need(both), `question` need(cut) − need(both), `answer`
need(before-answer) − need(both), `either` the rest. Parts are estimates and may come out slightly negative. A control
has a `cut` view of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence_parts.half_splits import (
    CleanEvidence,
    Halves,
    clean_evidence,
    make_halves,
)
from anchorscope.evidence_parts.need import Share, Terms, view_terms
from anchorscope.evidence_parts.principal import default_directions
from anchorscope.probes.folds import truth_strata
from anchorscope.progress import Progress
from anchorscope.stats.streams import stream

T = TypeVar("T", float, Share)
CLEAN, PERMUTED, OTHER_SITE = "clean", "permuted", "other-site"
"""Names beside those of interventions: nothing cut; labels permuted within relations; nothing cut at another site."""
CUT, BEFORE, BOTH = "cut", "before-answer", "both"
"""The views."""
TOGETHER, QUESTION, ANSWER, EITHER = PARTS = (
    "together",
    "question",
    "answer",
    "either",
)
NEEDS_QUESTION, NEEDS_ANSWER = "needs-question", "needs-answer"
FEWEST_ANSWERS, FEWEST_GROUPS = 300, 20
"""Used answers and groups below which no share is reported: estimates are biased below the first, intervals too narrow
below the second."""
FEWEST_RELATIONS = 8
"""Relations from which on intervals also count them as clusters."""


@dataclass(frozen=True)
class EvidenceItems:
    """The used items of a dataset."""

    labels: NDArray[np.bool_]
    groups: NDArray[np.int64]
    relations: Sequence[str | None]
    item_ids: Sequence[str]
    seed: int

    @property
    def are_enough(self) -> bool:
        return (
            len(self.labels) >= FEWEST_ANSWERS
            and len(np.unique(self.groups)) >= FEWEST_GROUPS
        )

    def take(self, some: NDArray[np.integer]) -> "EvidenceItems":
        relations, ids = (
            [names[index] for index in some]
            for names in (self.relations, self.item_ids)
        )
        return EvidenceItems(
            self.labels[some], self.groups[some], relations, ids, self.seed
        )

    @cached_property
    def halves(self) -> Halves:
        """Their half splits, the same for every view and control."""
        return make_halves(
            self.groups,
            truth_strata(self.labels, self.relations),
            self.seed,
            self.item_ids,
        )

    @cached_property
    def levels(self) -> tuple[NDArray[np.int64], ...]:
        """What is resampled: groups, and relations where there are enough."""
        names, relation = np.unique(
            [name or "" for name in self.relations], return_inverse=True
        )
        return (
            (self.groups, relation)
            if len(names) >= FEWEST_RELATIONS
            else (self.groups,)
        )

    @cached_property
    def permuted(self) -> "EvidenceItems":
        """The same items with labels permuted within each relation."""
        rng = stream(self.seed, "permuted labels of the evidence")
        labels, names = (
            self.labels.copy(),
            np.array([name or "" for name in self.relations]),
        )
        for name in np.unique(names):
            inside = np.flatnonzero(names == name)
            labels[inside] = labels[rng.permutation(inside)]
        return replace(self, labels=labels)


Needs = Mapping[str, Terms]
"""The terms of each view."""


def evidence_parts(needs: Needs) -> dict[str, Share]:
    """The parts of every problem and the two needs; without a state before the answer, what needs the question."""
    cut = needs[CUT].need()
    if BEFORE not in needs:
        return {NEEDS_QUESTION: cut}
    before = needs[BEFORE].need()
    return four_parts(cut, before, needs[BOTH].need()) | {
        NEEDS_QUESTION: cut,
        NEEDS_ANSWER: before,
    }


def four_parts(
    first: T, second: T, both: T, names: tuple[str, str] = (QUESTION, ANSWER)
) -> dict[str, T]:
    """Parts that sum to one, from need() of two views and of both side by side."""
    return {
        TOGETHER: both,
        names[0]: first - both,
        names[1]: second - both,
        EITHER: 1 - first - second + both,
    }


def side_by_side(
    first: Float[Tensor, "problem item first"],
    second: Float[Tensor, "problem item second"],
    device: str | torch.device = "cpu",
) -> Float[Tensor, "problem item direction"]:
    """Two views as one, along as many principal directions as the number of items allows, in host memory."""
    widths = first.shape[-1], second.shape[-1]
    number = max(*widths, default_directions(first.shape[1], sum(widths)))
    reduced = []
    for pair in zip(first, second, strict=True):
        both = torch.cat(pair, dim=-1).to(device).double()
        both = both - both.mean(0)
        vectors = torch.linalg.eigh(both.T @ both).eigenvectors
        reduced.append((both @ vectors[:, -number:].flip(-1)).float().cpu())
    return torch.stack(reduced)


def layer_band(areas: NDArray[np.floating], standard_error: float) -> list[int]:
    """The layers whose AUC is within one standard error of the best."""
    return np.flatnonzero(areas >= areas.max() - standard_error).tolist()


class EvidenceSolver:
    """The terms of any view, by probes of the clean states that are fitted once, [problem, item, direction]."""

    def __init__(
        self,
        clean: Float[Tensor, "problem item direction"],
        items: EvidenceItems,
        device: str | torch.device,
        progress: Progress,
        name: str = "",
    ) -> None:
        self.items, self.device, self.progress, self.name = (
            items,
            device,
            progress,
            f", {name}" if name else "",
        )
        title = f"evidence: probes{self.name}"
        self.evidence: CleanEvidence = clean_evidence(
            clean, items.halves, items.labels, device, progress, title
        )

    def terms(
        self,
        view: Float[Tensor, "problem item direction"],
        name: str,
        problems: slice = slice(None),
    ) -> Terms:
        items, title = self.items, f"evidence: {name}{self.name}"
        evidence = self.evidence.take(problems)
        return view_terms(
            evidence,
            view,
            items.halves,
            items.labels,
            self.device,
            self.progress,
            title,
        )

    def needs(self, cut: Tensor, before: Tensor) -> dict[str, Terms]:
        views = {CUT: cut, BEFORE: before, BOTH: side_by_side(before, cut, self.device)}
        return {name: self.terms(view, name) for name, view in views.items()}

    def scores(self, problems: slice = slice(None)) -> NDArray[np.float32]:
        """Held-out log-odds, mean over the splits, [problem, item]."""
        return (
            self.evidence.take(problems)
            .held_out(self.items.halves)
            .mean(1)
            .float()
            .numpy()
        )


Arrays = dict[str, NDArray[np.floating]]
"""Terms by `intervention/view/term`, and held-out scores by `scores/intervention`."""


def solve_parts(
    principal: Mapping[str, Tensor],
    items: EvidenceItems,
    headline: int,
    floor: int,
    device: str | torch.device,
    progress: Progress,
) -> Arrays:
    """The terms of all views and controls of a dataset, from states along principal directions.

    States are [place, layer, item, direction]: `clean` and `knockout` at every place, the state before the answer and
    random cuts at the `headline` only. `floor` is a place whose clean state is the view of the floor. Too few
    answers give only scores.
    """
    if not items.are_enough:
        return {
            "scores/clean": held_out_scores(
                principal[CLEAN][headline], items, "", device, progress
            )
        }
    n_layers = principal[CLEAN].shape[1]
    at_headline = slice(headline * n_layers, (headline + 1) * n_layers)
    clean, before = principal[CLEAN].flatten(0, 1), principal[BEFORE][0]
    solver = EvidenceSolver(clean, items, device, progress)
    knockout = principal[KNOCKOUT]
    needs = {
        KNOCKOUT: {CUT: solver.terms(knockout.flatten(0, 1), KNOCKOUT)},
        OTHER_SITE: {
            CUT: solver.terms(principal[CLEAN][floor], OTHER_SITE, at_headline)
        },
    }
    needs[KNOCKOUT][BEFORE] = solver.terms(before, BEFORE, at_headline)
    for name, states in principal.items():
        if name in (CLEAN, BEFORE):
            continue
        cut = states[headline if len(states) > 1 else 0]
        if name != KNOCKOUT:
            needs[name] = {CUT: solver.terms(cut, name, at_headline)}
        needs[name][BOTH] = solver.terms(
            side_by_side(before, cut, device), f"{name}, {BOTH}", at_headline
        )
    permuted = EvidenceSolver(
        clean[at_headline], items.permuted, device, progress, PERMUTED
    )
    real = needs[KNOCKOUT][BEFORE]
    needs[PERMUTED] = {
        view: _of_real_evidence(terms, real)
        for view, terms in permuted.needs(knockout[headline], before).items()
    }
    scores = {
        "scores/clean": solver.scores(at_headline),
        f"scores/{PERMUTED}": permuted.scores(),
    }
    return scores | terms_by_name(needs)


def _of_real_evidence(permuted: Terms, real: Terms) -> Terms:
    """Terms of labels that mean nothing, as a share of the evidence that is really there.

    Probes learn nothing from such labels: their sums vary with the measured items alone.
    """
    idle = {
        "taught": np.zeros_like(permuted.taught),
        "by_split": np.zeros_like(permuted.by_split),
    }
    return permuted._replace(had=real.had.copy(), label=real.label.copy(), **idle)


def solve_control(
    states: Mapping[str, Tensor],
    items: EvidenceItems,
    name: str,
    device: str | torch.device,
    progress: Progress,
) -> Arrays:
    """The same of a control with probes of its own, from states [layer, item, direction] by `clean` and view.

    Without a state before the answer only what needs the question is known; of too few answers, only scores.
    """
    if not items.are_enough:
        return {
            f"scores/{name}": held_out_scores(
                states[CLEAN], items, name, device, progress
            )
        }
    solver = EvidenceSolver(states[CLEAN], items, device, progress, name)
    needs = (
        solver.needs(states[CUT], states[BEFORE])
        if BEFORE in states
        else {CUT: solver.terms(states[CUT], CUT)}
    )
    return {f"scores/{name}": solver.scores()} | terms_by_name({name: needs})


def held_out_scores(
    states: Float[Tensor, "layer item direction"],
    items: EvidenceItems,
    name: str,
    device: str | torch.device,
    progress: Progress,
) -> NDArray[np.float32]:
    """Log-odds [layer, item] by probes of the other half, mean over the splits."""
    return EvidenceSolver(states, items, device, progress, name).scores()


def terms_by_name(needs: Mapping[str, Needs]) -> Arrays:
    """Terms as they are stored."""
    return {
        f"{intervention}/{view}/{term}": array
        for intervention, views in needs.items()
        for view, terms in views.items()
        for term, array in terms._asdict().items()
    }


def needs_by_name(
    stored: Mapping[str, NDArray[np.floating]],
) -> dict[str, dict[str, Terms]]:
    """The reverse, sorted; `before-answer` is the same view under every cut."""
    terms: dict[tuple[str, str], dict[str, NDArray[np.floating]]] = {}
    for name in sorted(stored):
        intervention, view, *term = name.split("/")
        if term:
            terms.setdefault((intervention, view), {})[term[0]] = stored[name]
    needs: dict[str, dict[str, Terms]] = {}
    for (intervention, view), arrays in terms.items():
        needs.setdefault(intervention, {})[view] = Terms(**arrays)
    for views in needs.values():
        if BOTH in views:
            views.setdefault(BEFORE, needs[KNOCKOUT][BEFORE])
    return needs
