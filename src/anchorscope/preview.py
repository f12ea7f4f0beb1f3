"""The dry run: what the model would see, token by token, and what would be run. No weights are loaded.

Prompts, exact tokens and probe positions come from the functions that a run uses. Answers are shown only if supplied.
A dry run is a plain record, as `--json` prints it.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from anchorscope.answers.choose import LabelCounter, QuestionSample
from anchorscope.answers.generate import TOO_LONG, Answer, do_not_fit, known_answers
from anchorscope.answers.template import (
    Prompt,
    Template,
    build_prompts,
    decode_exactly,
    make_template,
    prefix_length,
)
from anchorscope.catalogue import POSITIONS
from anchorscope.cost import Cost, ModelSize, choose_random_cuts, dataset_size, run_cost
from anchorscope.datasets.catalog import parse_spec
from anchorscope.datasets.question import Question
from anchorscope.experiments.experiment import chosen_experiments
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.loading import ModelFacts, read_facts
from anchorscope.prepare import ask, resolve, with_sources
from anchorscope.recipe import Recipe
from anchorscope.spans.locate import (
    locate,
    offsets_by_decoding,
    prompt_sources,
    question_tokens,
)
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.stats.streams import drawn, priorities

Record = dict[str, Any]


def preview_recipe(recipe: Recipe, shown: int = 3) -> Record:
    """The dry run of a recipe: reads its questions and loads its tokenizer."""
    written, recipe = recipe, resolve(recipe)
    asked = [
        (spec.name, ask(recipe, spec)) for spec in map(parse_spec, recipe.datasets)
    ]
    recipe = with_sources(recipe, [sample for _, sample in asked])
    facts = read_facts(recipe.model, recipe.trust_remote_code)
    sizes = [dataset_size(sample.questions, recipe) for _, sample in asked]
    model = ModelSize(facts.parameters, facts.n_layers, facts.d_model)
    recipe = choose_random_cuts(recipe, model, sizes)
    return build_preview(
        recipe, facts, asked, shown, run_cost(recipe, model, sizes, written)
    )


def build_preview(
    recipe: Recipe,
    facts: ModelFacts,
    asked: Sequence[tuple[str, QuestionSample]],
    shown: int = 3,
    cost: Cost | None = None,
) -> Record:
    """The dry run of a recipe; `shown` items of each dataset."""
    template = make_template(recipe.prompt, facts.tokenizer, facts.needs_bos)
    if recipe.thinking:
        # refused where the template has no place for it
        template.ask_to_think(asked[0][1].questions[0])
    return {
        "model": {
            name: value for name, value in vars(facts).items() if name != "tokenizer"
        },
        "recipe": recipe.model_dump(mode="json"),
        "prompt": template.kind,
        "datasets": [
            _show_dataset(name, sample, template, facts, recipe, shown)
            for name, sample in asked
        ],
        "passes": _describe_passes(recipe),
        "cost": None if cost is None else {**asdict(cost), "sentence": cost.sentence},
    }


def _describe_passes(recipe: Recipe) -> dict[str, str]:
    """Every pass over the used items, and what it does."""
    passes = {
        "clean": "states at every site and position are kept, to train the probes"
    }
    for intervention in of_experiments(recipe.evidence):
        if intervention.edges == recipe.edges:
            continue  # the knockout does the same
        many = intervention.many_passes or intervention.rewrite is not None
        most = intervention.max_items or (recipe.evidence_items if many else None)
        fewer = f" (at most {most} items)" if most is not None else ""
        draws = (
            f", {recipe.random_cuts} times"
            if intervention.repeats and (recipe.random_cuts or 1) > 1
            else ""
        )
        refit = (
            "; probes are also fitted on its states"
            if intervention.keeps_states
            else ""
        )
        passes[intervention.name] = intervention.entry.label + draws + fewer + refit
    return passes | {
        experiment.name: experiment.about
        for experiment in chosen_experiments(recipe.evidence)
    }


def _show_dataset(
    name: str,
    asked: QuestionSample,
    template: Template,
    facts: ModelFacts,
    recipe: Recipe,
    shown: int,
) -> Record:
    questions, tokenizer, context = asked.questions, facts.tokenizer, facts.context
    prompts = build_prompts(tokenizer, questions, template, context)
    answers = known_answers(
        tokenizer, template, questions, prompts, recipe.max_new_tokens, context
    )
    fitting = [
        index
        for index in range(len(questions))
        if index not in answers or answers[index].status != TOO_LONG
    ]
    shared = prefix_length([prompts[index] for index in fitting]) if fitting else 0
    own = [len(prompts[index].ids) - shared for index in fitting] or [0]
    chosen = drawn(
        priorities(
            recipe.seed, "preview", [questions[index].item_id for index in fitting]
        ),
        shown,
    )
    unknown = Answer("", (), None, "")
    outlook = LabelCounter(questions[index] for index in fitting).outlook(
        recipe.balance
    )
    return {
        "name": name,
        "questions": len(questions),
        "counts": {
            field.name: n
            for field in fields(asked)
            if isinstance(n := getattr(asked, field.name), int)
        },
        "given_answers": sum(
            question.model_answer is not None for question in questions
        ),
        "given_labels": sum(question.truthful is not None for question in questions),
        "shared": shared,  # leading tokens that all prompts share: their keys and values are computed once
        "own": [
            min(own),
            float(median(own)),
            max(own),
        ],  # tokens of a prompt after them
        "too_long": do_not_fit(
            (answers.get(index, unknown) for index in range(len(questions))), context
        ),
        "enough": outlook.is_enough,  # whether a run is possible with these questions and labels
        "outlook": outlook.sentence,  # a warning, or empty
        "items": [
            _show_item(
                questions[i],
                prompts[i],
                answers.get(i, unknown),
                tokenizer,
                shared,
                recipe.exact_tokens,
            )
            for i in (fitting[row] for row in chosen)
        ],
    }


def _show_item(
    question: Question,
    prompt: Prompt,
    answer: Answer,
    tokenizer: Any,
    shared: int,
    exact_tokens: str,
) -> Record:
    words = locate_question_words(question, use_metadata=exact_tokens != "rules")
    marks = dict.fromkeys(question_tokens(words.spans, prompt), "question")
    reads: dict[str, int] = {}
    sources, ids = tuple(prompt_sources(prompt)), prompt.ids
    if answer.status == "answered":
        located = locate(tokenizer, question, words, prompt, answer)
        ids, sources = located.input_ids, located.sources
        marks |= dict.fromkeys(located.answer_tokens, "answer")
        reads = dict(zip(POSITIONS, located.positions, strict=True))
    text, offsets = offsets_by_decoding(partial(decode_exactly, tokenizer), ids)
    ends = accumulate((end for _, end in offsets), max, initial=0)
    return {
        "item_id": question.item_id,
        "rule": words.rule,
        "own": len(prompt.ids) - shared,
        "tokens": [  # with a supplied answer's; `exact` is `question` for a token of E_Q, `answer` for one of E_A
            {"id": token, "text": text[start:end], "exact": marks.get(at, "")}
            for at, (token, (start, end)) in enumerate(
                zip(ids, pairwise(ends), strict=True)
            )
        ],
        "reads": reads,  # the token that is read at each probe position
        "sources": [
            list(source) for source in sources
        ],  # name, first token and the token after the last
    }
