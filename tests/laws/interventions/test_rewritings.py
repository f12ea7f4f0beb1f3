"""Laws of every registered rewriting: the answer is kept token by token, and only the text before it changes."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.answers.label import Label
from anchorscope.answers.template import make_template
from anchorscope.catalogue import POSITIONS
from anchorscope.datasets.question import Question
from anchorscope.engine.capture import capture
from anchorscope.engine.forward import NO_PREFIX
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.effects import Scoring, measure, run_clean
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_answers
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Intervention, ItemRun, Writer
from anchorscope.interventions.rewrites import DONORS, exchanged
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_rewrite
from anchorscope.plan.passes import plan_answers
from anchorscope.probes.crossfit import score_states
from anchorscope.progress import Silent
from anchorscope.spans.locate import locate_all
from anchorscope.spans.question_spans import locate_question_words
from made_items import make_setting, planner_of, random_probes

REWRITINGS = {
    name: one for name, one in INTERVENTIONS.items() if one.rewrite is not None
}
every_rewriting = pytest.mark.parametrize(
    "rewriting", REWRITINGS.values(), ids=REWRITINGS.keys()
)
ANY_DONOR = {"patch-same", "patch-random"}

PLACES = (
    "Arbel",
    "Cordun",
    "Eshfal",
    "New Gorhul",
    "Ivajor",
    "Kellum",
    "Mornia",
    "Oru",
)


def make_questions() -> list[Question]:
    found = []
    for index, place in enumerate(PLACES):
        capital, anthem = (
            f"What is the capital of {place}?",
            f"Which anthem does {place} sing in winter?",
        )
        for relation, text in (("capital", capital), ("anthem", anthem)):
            found.append(
                Question(
                    dataset="facts",
                    item_id=f"{relation}-{index}",
                    question=text,
                    answers=(f"Answer {index}",),
                    subject=place,
                    relation=relation,
                    property_words=(relation,),
                    model_answer=f"Bo{'la' * (index % 3)} x",
                    truthful=index % 2 == 0,
                )
            )
    return found


class World:
    def __init__(self, lm: LanguageModel) -> None:
        self.lm, self.executor, self.planner = (
            lm,
            LocalExecutor(lambda: lm),
            planner_of(lm, 400),
        )
        template, questions = (
            make_template("few-shot", lm.tokenizer, lm.needs_bos),
            make_questions(),
        )
        work = plan_answers(questions, lm.tokenizer, template, 8, 400)
        answers = run_answers(self.executor, work, Silent())
        words = [locate_question_words(question) for question in questions]
        tokens = locate_all(lm.tokenizer, questions, words, work.prompts, answers)
        label = Label(truthful=True, group=0, status="used", weight=1.0)
        self.items = [
            Item(question, answer, label, located)
            for question, answer, located in zip(
                questions, answers, tokens, strict=True
            )
        ]
        self.prompts = work.prompts
        self.setting = make_setting(
            POSITIONS, writer=lambda: Writer(lm.tokenizer, template)
        )

    def runs(
        self, rewriting: Intervention, seed: int = 0, items: list[Item] | None = None
    ) -> list[ItemRun]:
        return list(
            plan_rewrite(
                rewriting, items or self.items, replace(self.setting, seed=seed)
            ).runs
        )


@pytest.fixture(scope="module")
def world(tiny_llama: LanguageModel) -> World:
    return World(tiny_llama)


def named(items: list[Item], item_id: str) -> Item:
    return next(item for item in items if item.question.item_id == item_id)


@every_rewriting
def test_the_answer_is_kept_and_read_at_the_same_places(
    world: World, rewriting: Intervention
) -> None:
    runs = world.runs(rewriting)
    assert {one.item for one in runs} == set(range(len(world.items)))
    for one in runs:
        item, new, old = (
            world.items[one.item],
            one.sequence,
            world.items[one.item].sequence(POSITIONS),
        )
        assert (
            new.ids[new.answer_start :]
            == item.answer.ids
            == old.ids[old.answer_start :]
        )
        assert [at - new.answer_start for at in new.read_at] == [
            at - old.answer_start for at in old.read_at
        ]
        assert all(0 <= at < len(new.ids) for at in new.read_at)
        assert (new.ids != old.ids) == rewriting.changes
        assert (one.n_changed > 0) == rewriting.changes


@pytest.mark.parametrize("name", sorted(ANY_DONOR))
def test_every_item_has_several_different_donors(world: World, name: str) -> None:
    runs = world.runs(REWRITINGS[name])
    for index in range(len(world.items)):
        mine = [one for one in runs if one.item == index]
        assert [one.run for one in mine] == list(range(DONORS))
        assert len({one.sequence.ids for one in mine}) == DONORS
    assert runs != world.runs(REWRITINGS[name], seed=1)


def texts(world: World, name: str, item_id: str) -> list[str]:
    index = next(
        at for at, item in enumerate(world.items) if item.question.item_id == item_id
    )
    found = []
    for one in world.runs(REWRITINGS[name]):
        if one.item == index:
            whole = world.lm.tokenizer.decode(
                one.sequence.ids[: one.sequence.answer_start]
            )
            found.append(whole.rsplit("Question: ", 1)[1].removesuffix("\nAnswer:"))
    return found


def test_a_donor_of_the_same_relation_brings_another_subject_of_any_length(
    world: World,
) -> None:
    for text in texts(world, "patch-same", "capital-0"):
        assert text.startswith("What is the capital of ")
        assert (
            text.removeprefix("What is the capital of ").removesuffix("?") in PLACES[1:]
        )


def test_the_control_leaves_the_exact_words_alone(world: World) -> None:
    for index, item in enumerate(world.items):
        (text,) = texts(world, "patch-control", item.question.item_id)
        assert PLACES[index // 2] in text
        assert item.question.relation in text
        assert text != item.question.question


def test_the_question_is_dropped_and_the_template_stays_or_not(world: World) -> None:
    (kept,) = texts(world, "answer-template", "capital-0")
    assert kept == ""
    bare = world.runs(REWRITINGS["answer-bare"])[0].sequence
    assert bare.ids == (world.prompts[0].ids[0], *world.items[0].answer.ids)


def test_parts_change_places_with_parts(world: World) -> None:
    capital, anthem = named(world.items, "capital-0"), named(world.items, "anthem-3")
    assert exchanged(capital, anthem) == "What is the anthem of New Gorhul?"
    assert exchanged(anthem, capital) == "Which capital does Arbel sing in winter?"
    assert exchanged(capital, capital) == capital.question.question


def test_a_donor_whose_answer_would_be_right_is_not_used(world: World) -> None:
    items = [
        replace(
            item,
            question=replace(
                item.question, answers=("Bo x",) if index > 3 else ("Never",)
            ),
            answer=replace(item.answer, text="Bo x"),
        )
        for index, item in enumerate(world.items)
    ]
    for one in world.runs(REWRITINGS["patch-random"], items=items):
        text = world.lm.tokenizer.decode(one.sequence.ids)
        asked = text.rsplit("Question: ", 1)[1]
        assert any(place in asked for place in PLACES[:2]), asked


def test_a_self_patch_that_changes_the_text_is_refused(world: World) -> None:
    broken = [
        replace(item, tokens=replace(item.located, input_ids=(1, 2, 3)))
        for item in world.items
    ]
    with pytest.raises(
        InterventionNotApplied, match="patch-self: 16 texts are not what they were"
    ):
        world.runs(REWRITINGS["patch-self"], items=broken)


@every_rewriting
def test_scores_are_those_of_a_fresh_pass_over_the_new_text(
    world: World, rewriting: Intervention
) -> None:
    lm = world.lm
    sets = tuple(
        tuple(random_probes(lm, 9 * q + s) for s in range(3)) for q in range(3)
    )
    scoring = Scoring(sets, np.arange(len(world.items)) % 2)
    planned = plan_rewrite(rewriting, world.items, world.setting)
    (work,) = passes_of([planned], world.items, world.setting, world.planner)
    shared = work.work.prefix
    assert all(run.sequence.ids[: len(shared)] == shared for run in planned.runs)
    ((effect,), states) = measure(
        world.executor, [work], scoring, world.setting, lambda one: [(0, 0)], Silent()
    )
    assert not states
    runs = planned.runs
    assert effect.items.tolist() == [one.item for one in runs]
    assert effect.run is not None
    assert effect.run.tolist() == [one.run for one in runs]
    assert effect.n_cut.tolist() == [one.n_changed for one in runs]
    assert (effect.intervention, effect.variant) == (rewriting.name, rewriting.variant)
    scorer = scoring.scorer("cpu")
    for place in range(0, len(runs), 7):  # each alone, from its first token on
        found = []
        alone = [runs[place].sequence]
        capture(
            lm,
            alone,
            NO_PREFIX,
            [[0]],
            lambda _, batch, states, into=found: into.append(states),
        )
        wanted = scorer.score([runs[place].item], found[0])[0].numpy()
        assert np.abs(effect.logits[place] - wanted).max() < 1e-4
    found = run_clean(
        world.executor, world.planner, world.items, POSITIONS, Silent(), False, "all", 0
    )
    clean = score_states(scorer, found.states)
    moved = np.abs(effect.logits - clean[effect.items]).max(axis=(1, 2, 3))
    assert (moved > 1e-3).all() if rewriting.changes else (moved < 1e-4).all()


def test_an_answer_that_is_right_to_every_question_has_donors_all_the_same(
    world: World,
) -> None:
    items = [
        replace(
            item,
            question=replace(item.question, answers=("Bo x",)),
            answer=replace(item.answer, text="Bo x"),
        )
        for item in world.items
    ]
    runs = world.runs(REWRITINGS["patch-random"], items=items)
    assert {one.item for one in runs} == set(range(len(items)))


def test_no_more_items_are_rewritten_than_are_asked_for_and_always_the_same_ones(
    world: World,
) -> None:
    setting = replace(world.setting, most_items=5)
    few = {
        name: {run.item for run in plan_rewrite(one, world.items, setting).runs}
        for name, one in REWRITINGS.items()
    }
    assert {len(items) for items in few.values()} == {5}
    # so that methods are compared on the same items
    assert len({frozenset(items) for items in few.values()}) == 1
    least = replace(REWRITINGS["patch-self"], max_items=3)
    assert {run.item for run in plan_rewrite(least, world.items, setting).runs} < few[
        "patch-self"
    ]
