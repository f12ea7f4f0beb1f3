"""Sources: named spans of a prompt, and how much of the evidence needs each of them (docs/sources.md).

Where a prompt has passages (`context`, `context[1]` …) or `thinking`, each source's tokens are hidden from all that
follows: the state at the answer's end is then the view of need(source). Of the answer itself it is the state before it
begins. As a control a random span of the template, as long as the source, is cut; and the same answer is read after
another item's passages, or thinking, which leave no hole. Numbers of single items (how far the cut moves state and
log-odds, `context_used`, attention, word overlap) use no label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.template import CONTEXT, THINKING
from anchorscope.artefacts.schema import PART_SCHEMA
from anchorscope.datasets.text import words
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import CLEAN, Cut, TokenSequence, Variant
from anchorscope.evidence.further_runs import (
    ItemPasses,
    given,
    per_answer,
    rewritten_states,
)
from anchorscope.evidence.part_tables import PartsOfDataset, Record, layer_rows
from anchorscope.evidence.source_use import context_used
from anchorscope.evidence_parts.need import Share, Terms
from anchorscope.evidence_parts.parts import (
    EvidenceItems,
    EvidenceSolver,
    four_parts,
    needs_by_name,
    side_by_side,
    terms_by_name,
)
from anchorscope.evidence_parts.principal import default_directions
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_states
from anchorscope.execute.worker import VariantPart
from anchorscope.interventions.intervention import Setting
from anchorscope.interventions.rewrites import Donors
from anchorscope.items import Item
from anchorscope.plan.passes import OutOfFoldProbes, Planner, before_answers
from anchorscope.progress import Progress
from anchorscope.stats.streams import stream

Arrays = dict[str, NDArray[np.floating]]
Column = Float[np.ndarray, " item"]
SOURCE, SPAN, EXCHANGED, PAIR, KIND = (
    "source",
    "random-span",
    "source-resample",
    "pair",
    "kind",
)
"""The tokens of a source cut; as many others cut; another item's in its place; two views side by side; items of one
kind."""
ANSWER = "answer"


def source_names(items: Sequence[Item]) -> list[str]:
    """The sources that can be cut, where some item has more than a question; several passages also together."""
    names = dict.fromkeys(
        name for item in items for name, _, _ in item.located.sources if name != ANSWER
    )
    if not any(name.startswith((CONTEXT, THINKING)) for name in names):
        return []
    several = (
        any(name.startswith(f"{CONTEXT}[") for name in names) and CONTEXT not in names
    )
    return [*([CONTEXT] if several else []), *names]


def choose_pair(wanted: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
    """The two sources of the four parts: those asked for, or the first beside the question, and the answer."""
    if wanted:
        return wanted[0], wanted[1]
    return (CONTEXT if CONTEXT in names else THINKING), ANSWER


def cut_source(item: Item, name: str) -> Cut:
    """The cut that hides a source from all that comes after it; empty where the item has none."""
    return Cut(item.located.source_tokens(name), "outside")


def cut_random_span(item: Item, name: str, rng: np.random.Generator) -> Cut:
    """As many neighbouring tokens of the template, of no source; all of them where there are fewer."""
    located = item.located
    taken = {token for _, start, end in located.sources for token in range(start, end)}
    free = [
        token for token in range(1, located.answer_start) if token not in taken
    ]  # the first is a sink
    length = min(len(located.source_tokens(name)), len(free))
    start = int(rng.integers(len(free) - length + 1))
    return Cut(tuple(free[start : start + length]))


def _cuts(items: Sequence[Item], name: str, how: str, seed: int) -> dict[int, Cut]:
    """The cuts of a source, or of random spans in its place, by item; none where an item does not have it."""
    having = {
        index: item
        for index, item in enumerate(items)
        if cut_source(item, name).changes
    }
    if how == SOURCE:
        return {index: cut_source(item, name) for index, item in having.items()}
    return {
        index: cut_random_span(item, name, stream(seed, f"{SPAN} {name}", item.item_id))
        for index, item in having.items()
    }


@dataclass(frozen=True)
class SourceRun:
    """The items with a source cut, or with a random span in its place."""

    states: Float[Tensor, "layer item d_model"]
    """At the headline place; those of items without the source are clean."""
    log_odds: Float[np.ndarray, "layer item"]
    log_prob: Column
    """Mean over the answer's tokens."""


def run_sources(
    passes: ItemPasses,
    clean: Float[Tensor, "layer item d_model"],
    clean_log_odds: Float[np.ndarray, "layer item"],
    probes: OutOfFoldProbes,
) -> tuple[dict[tuple[str, str], SourceRun], Column]:
    """Every source cut, and its control, by (`SOURCE` or `SPAN`, name); and the clean log-probabilities.

    Sources stand behind the prefix that all items share; random spans are drawn from it too, and run without it.
    """
    items, sequences, names = passes.items, passes.sequences, source_names(passes.items)
    shared = before_answers(passes.prefix, sequences)
    runs: dict[tuple[str, str], SourceRun] = {}
    log_probs = np.zeros(len(items))
    for how, prefix in ((SOURCE, shared), (SPAN, shared[:1])):
        variants = [
            CLEAN,
            *(Variant(_cuts(items, name, how, passes.setting.seed)) for name in names),
        ]
        work = passes.planner.states(
            f"sources: {how}", sequences, prefix, variants, compiled=passes.compiled
        )
        work = replace(
            work,
            keep=((), *(((passes.place,),) * len(names))),
            probes=probes,
            answer_stats=True,
        )
        first, *parts = passes.run(work)
        if how == SOURCE:
            log_probs = _mean_log_probs(first)
        for name, part in zip(names, parts, strict=True):
            states, log_odds, cut_log_probs = (
                clean.clone(),
                clean_log_odds.copy(),
                log_probs.copy(),
            )
            states[:, part.items] = given(part.states)[0].to(clean.dtype)
            log_odds[:, part.items] = given(part.logits)[:, 0, 0].T
            cut_log_probs[part.items] = _mean_log_probs(part)
            runs[how, name] = SourceRun(states, log_odds, cut_log_probs)
    return runs, log_probs


def exchanged_sources(
    items: Sequence[Item], name: str, setting: Setting
) -> dict[int, TokenSequence]:
    """Answers after another item's passages (`context`) or `thinking`, by item; without those that have no donor.

    The donor is about another subject, of the same relation where there is one, and its text does not give the answer.
    """
    sources = [getattr(item.question, name) for item in items]
    vocabularies = [
        set(words(text if isinstance(text, str) else " ".join(text or ())))
        for text in sources
    ]
    orders = [
        Donors(items, setting, f"{EXCHANGED} {name}", same_relation)
        for same_relation in (True, False)
    ]
    chosen: dict[int, int] = {}
    for index, item in enumerate(items):
        own, subject = set(words(item.answer.text)), item.question.subject
        for donor in (
            (donor for donors in orders for donor in donors.of(index))
            if sources[index]
            else ()
        ):
            is_other = sources[donor] != sources[index] and (
                subject is None or items[donor].question.subject != subject
            )
            if sources[donor] and is_other and not own <= vocabularies[donor]:
                chosen[index] = donor
                break
    changed = [
        replace(
            items[index],
            question=replace(items[index].question, **{name: sources[donor]}),
        )
        for index, donor in chosen.items()
    ]
    written = setting.writer().sequences(
        changed, [item.question.question for item in changed], setting.positions
    )
    texts = dict(zip(chosen, written, strict=True))
    return {
        index: text
        for index, text in texts.items()
        if setting.context is None or len(text.ids) <= setting.context
    }


def run_exchanged(
    passes: ItemPasses, clean: Float[Tensor, "layer item d_model"]
) -> dict[tuple[str, str], Float[Tensor, "layer item d_model"]]:
    """States at the place after another item's passages, and thinking; clean ones of items without a donor."""
    views: dict[tuple[str, str], Tensor] = {}
    for name in [
        name for name in source_names(passes.items) if name in (CONTEXT, THINKING)
    ]:
        texts = exchanged_sources(passes.items, name, passes.setting)
        if texts:
            views[EXCHANGED, name] = states = clean.clone()
            read = rewritten_states(
                passes, list(texts.values()), f"sources: another {name}"
            )
            states[:, list(texts)] = read.to(clean.dtype)
    return views


def _mean_log_probs(part: VariantPart) -> Column:
    answers = given(part.answers)
    return per_answer(answers.log_prob, answers, np.mean)


def answers_use(
    executor: Executor, planner: Planner, items: Sequence[Item], progress: Progress
) -> list[tuple[float, list[float]]]:
    """`context_used` of items that are scored, in one pass: of all passages, and of each where there are several.

    NaN where an item has no passage.
    """
    having = [
        index
        for index, item in enumerate(items)
        if item.tokens is not None and cut_source(item, CONTEXT).changes
    ]
    uses: list[tuple[float, list[float]]] = [(np.nan, [])] * len(items)
    if not having:
        return uses
    sequences = [items[index].sequence(("final",)) for index in having]
    several = max(len(items[index].question.context) for index in having)
    names = [
        CONTEXT,
        *(f"{CONTEXT}[{number}]" for number in range(1, several + 1) if several > 1),
    ]
    variants = [
        Variant(
            {
                number: cut
                for number, index in enumerate(having)
                if (cut := cut_source(items[index], name)).changes
            }
        )
        for name in names
    ]
    work = planner.states("without the passages", sequences, (), [CLEAN, *variants])
    clean, *parts = run_states(
        executor, replace(work, answer_stats=True), progress
    ).variants
    log_probs = _mean_log_probs(clean)
    for name, part in zip(names, parts, strict=True):
        shares = context_used(log_probs[part.items], _mean_log_probs(part))
        for number, share in zip(part.items.tolist(), shares.tolist(), strict=True):
            total, each = uses[having[number]]
            uses[having[number]] = (
                (share, []) if name == CONTEXT else (total, [*each, share])
            )
    return uses


def item_numbers(
    items: Sequence[Item],
    ran: Mapping[tuple[str, str], SourceRun],
    clean: Float[Tensor, "layer item d_model"],
    clean_log_odds: Float[np.ndarray, "layer item"],
    log_probs: Column,
    attention: Sequence[AttentionMass],
    band: Sequence[int],
) -> Arrays:
    """What is measured of every item, by source (`context-used/thinking` …); NaN of items without the source."""
    numbers: Arrays = {}
    for (how, name), run in ran.items():
        if how != SOURCE:
            continue
        tokens = [item.located.source_tokens(name) for item in items]
        # Of all attention to an item's own tokens.
        shares = [
            mass.of(keys) / max(sum(mass.received), 1e-12)
            for mass, keys in zip(attention, tokens, strict=True)
        ]
        columns = {
            "evidence-moved": np.abs(run.log_odds - clean_log_odds)[list(band)].mean(
                axis=0
            ),
            "state-moved": _moved(clean, run.states, band),
            "context-used": context_used(log_probs, run.log_prob),
            "attention": np.array(shares),
            "overlap": np.array([word_overlap(item, name) for item in items]),
        }
        there = np.array([bool(keys) for keys in tokens])
        numbers |= {
            f"{kind}/{name}": np.where(there, column, np.nan)
            for kind, column in columns.items()
        }
    return numbers


def _moved(clean: Tensor, cut: Tensor, band: Sequence[int]) -> Column:
    """|cut − clean| / |clean − mean| of every item, mean over the band."""
    by_layer = []
    for layer in band:
        before, after = clean[layer].float(), cut[layer].float()
        by_layer.append(
            (after - before).norm(dim=-1) / (before - before.mean(0)).norm(dim=-1)
        )
    return torch.stack(by_layer).mean(0).double().numpy()


def word_overlap(item: Item, name: str) -> float:
    """The share of the answer's words that stand in a source."""
    question = item.question
    texts = {
        CONTEXT: " ".join(question.context),
        THINKING: question.thinking or "",
        "question": question.question,
    }
    texts |= {
        f"{CONTEXT}[{number}]": text for number, text in enumerate(question.context, 1)
    }
    own, there = words(item.answer.text), set(words(texts.get(name, "")))
    return sum(word in there for word in own) / max(1, len(own))


def solve_sources(
    clean: Float[Tensor, "layer item direction"],
    views: Mapping[tuple[str, str], Tensor],
    pair: tuple[str, str],
    items: EvidenceItems,
    kinds: Shaped[np.ndarray, " item"],
    device: str | torch.device,
    progress: Progress,
) -> Arrays:
    """The terms of every view (how it was cut, name of the source), and of a pair's two views side by side.

    Items of each of `kinds` are also solved by themselves, with the main source cut. Together they would not do:
    a state without its source does not show whether the item goes by it, so that all kinds seem to need it.
    """
    solver = EvidenceSolver(clean, items, device, progress, "sources")
    needs: dict[str, dict[str, Terms]] = {}
    for (how, name), view in views.items():
        needs.setdefault(how, {})[name] = solver.terms(view, name)
    both = side_by_side(views[SOURCE, pair[0]], views[SOURCE, pair[1]], device)
    needs[",".join(pair)] = {PAIR: solver.terms(both, ", ".join(pair))}
    main = choose_pair((), [name for _, name in views])[0]
    every = {
        kind: np.flatnonzero(kinds == kind) for kind in sorted({*kinds.tolist()} - {""})
    }
    for kind, some in every.items():
        if not items.take(some).are_enough:
            continue
        within = (
            slice(None),
            torch.from_numpy(some),
            slice(default_directions(len(some), clean.shape[-1])),
        )
        alone = EvidenceSolver(
            clean[within], items.take(some), device, progress, f"sources, {kind}"
        )
        needs.setdefault(KIND, {})[kind] = alone.terms(
            views[SOURCE, main][within], main
        )
    return terms_by_name(needs)


def pair_parts(needs: Mapping[str, Mapping[str, Terms]], pair: str) -> dict[str, Share]:
    """Four parts of the evidence that sum to one, of two sources."""
    first, second = pair.split(",")
    alone = needs[SOURCE]
    return four_parts(
        alone[first].need(),
        alone[second].need(),
        needs[pair][PAIR].need(),
        (first, second),
    )


def source_frame(
    parts: PartsOfDataset, stored: Mapping[str, NDArray[np.floating]]
) -> pl.DataFrame:
    """Rows of evidence_parts.csv: what needs each source (`source`), its control, and the four parts of the pair."""
    needs, rows = needs_by_name(stored), list[Record]()
    for how, by_name in needs.items():
        if how == KIND:  # of other items; experiments.csv has them
            continue
        shares = {
            f"needs-{name}": terms.need()
            for name, terms in by_name.items()
            if name != PAIR
        }
        for part, share in (shares or pair_parts(needs, how)).items():
            rows += layer_rows(parts, how, part, share)
    return pl.DataFrame(rows, schema=PART_SCHEMA)
