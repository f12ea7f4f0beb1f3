"""The dry run: what the model would see, token by token, and what would be run. No weights are loaded.

Prompts, exact tokens and probe positions come from the functions that a run uses. Answers are shown only if supplied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, NamedTuple

from anchorscope.answers.choose import LabelCounter, QuestionSample
from anchorscope.answers.generate import TOO_LONG, Answer, do_not_fit, known_answers
from anchorscope.answers.template import Prompt, Template, build_prompts, decode_exactly, make_template, prefix_length
from anchorscope.catalogue import POSITIONS
from anchorscope.cost import Cost, ModelSize, choose_random_cuts, dataset_size, run_cost
from anchorscope.datasets.catalog import parse_spec
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import SITES
from anchorscope.experiments.experiment import chosen_experiments
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.loading import ModelFacts, read_facts
from anchorscope.prepare import ask, resolve, with_sources
from anchorscope.probes.crossfit import PROBES
from anchorscope.recipe import Recipe
from anchorscope.spans.locate import locate, offsets_by_decoding, prompt_sources, question_tokens
from anchorscope.spans.question_spans import locate_question_words
from anchorscope.stats.streams import drawn, priorities


def preview_recipe(recipe: Recipe, shown: int = 3) -> "Preview":
    """The dry run of a recipe: reads its questions and loads its tokenizer."""
    written, recipe = recipe, resolve(recipe)
    asked = [(spec.name, ask(recipe, spec)) for spec in map(parse_spec, recipe.datasets)]
    recipe = with_sources(recipe, [sample for _, sample in asked])
    facts = read_facts(recipe.model, recipe.trust_remote_code)
    sizes = [dataset_size(sample.questions, recipe) for _, sample in asked]
    model = ModelSize(facts.parameters, facts.n_layers, facts.d_model)
    recipe = choose_random_cuts(recipe, model, sizes)
    return build_preview(recipe, facts, asked, shown, run_cost(recipe, model, sizes, written))


class ShownToken(NamedTuple):
    id: int
    text: str
    """The characters that it adds to the text."""
    exact: str
    """`question` for a token of E_Q, `answer` for one of E_A, else empty."""
    reads: tuple[str, ...]
    """The probe positions at this token."""


@dataclass(frozen=True)
class ShownItem:
    item_id: str
    rule: str
    own: int
    """Tokens after the shared ones, up to the answer."""
    tokens: tuple[ShownToken, ...]
    """With a supplied answer's."""
    sources: tuple[tuple[str, int, int], ...] = ()
    """Name, first token and the token after the last of every source."""


@dataclass(frozen=True)
class ShownDataset:
    name: str
    questions: int
    counts: Mapping[str, int]
    """Rows read and left out, by reason."""
    given_answers: int
    given_labels: int
    shared: int
    """Leading tokens shared by all prompts: their keys and values are computed once."""
    own: tuple[int, float, int]
    """Shortest, median and longest prompt after them, in tokens."""
    too_long: str
    """How many questions don't fit the model's context; empty if all fit."""
    enough: bool
    """Whether a run is possible with these questions and labels."""
    outlook: str
    """A warning, or empty."""
    items: tuple[ShownItem, ...]


@dataclass(frozen=True)
class Preview:
    recipe: Recipe
    model: ModelFacts
    prompt: str
    datasets: tuple[ShownDataset, ...]
    passes: Mapping[str, str]
    """Every pass over the used items, and what it does."""
    cost: Cost | None = None

    def record(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "model": {name: value for name, value in vars(self.model).items() if name != "tokenizer"},
            "prompt": self.prompt,
            "datasets": [asdict(dataset) for dataset in self.datasets],
            "passes": self.passes,
            "cost": None if self.cost is None else self.cost.record(),
        }


def build_preview(
    recipe: Recipe,
    facts: ModelFacts,
    asked: Sequence[tuple[str, QuestionSample]],
    shown: int = 3,
    cost: Cost | None = None,
) -> Preview:
    """The dry run of a recipe; `shown` items of each dataset."""
    template = make_template(recipe.prompt, facts.tokenizer, facts.needs_bos)
    datasets = tuple(_show_dataset(name, sample, template, facts, recipe, shown) for name, sample in asked)
    return Preview(recipe, facts, template.kind, datasets, _describe_passes(recipe), cost)


def _describe_passes(recipe: Recipe) -> dict[str, str]:
    passes = {"clean": "states at every site and position are kept, to train the probes"}
    for intervention in of_experiments(recipe.evidence):
        if intervention.edges == recipe.edges:
            continue  # the knockout does the same
        many = intervention.many_passes or intervention.rewrite is not None
        most = intervention.max_items or (recipe.evidence_items if many else None)
        fewer = f" (at most {most} items)" if most is not None else ""
        draws = f", {recipe.random_cuts} times" if intervention.repeats and (recipe.random_cuts or 1) > 1 else ""
        refit = "; probes are also fitted on its states" if intervention.keeps_states else ""
        passes[intervention.name] = intervention.entry.label + draws + fewer + refit
    return passes | {experiment.name: experiment.about for experiment in chosen_experiments(recipe.evidence)}


def _show_dataset(
    name: str, asked: QuestionSample, template: Template, facts: ModelFacts, recipe: Recipe, shown: int
) -> ShownDataset:
    questions, tokenizer, context = asked.questions, facts.tokenizer, facts.context
    prompts = build_prompts(tokenizer, questions, template, context)
    answers = known_answers(tokenizer, template, questions, prompts, recipe.max_new_tokens, context)
    fitting = [index for index in range(len(questions)) if index not in answers or answers[index].status != TOO_LONG]
    shared = prefix_length([prompts[index] for index in fitting]) if fitting else 0
    own = [len(prompts[index].ids) - shared for index in fitting] or [0]
    chosen = drawn(priorities(recipe.seed, "preview", [questions[index].item_id for index in fitting]), shown)
    nothing = Answer("", (), None, "")  # not known yet
    outlook = LabelCounter(questions[index] for index in fitting).outlook(recipe.balance)
    counts = {field.name: value for field in fields(asked) if isinstance(value := getattr(asked, field.name), int)}
    return ShownDataset(
        name=name,
        questions=len(questions),
        counts=counts,
        given_answers=sum(question.model_answer is not None for question in questions),
        given_labels=sum(question.truthful is not None for question in questions),
        shared=shared,
        own=(min(own), float(median(own)), max(own)),
        too_long=do_not_fit((answers.get(index, nothing) for index in range(len(questions))), context),
        enough=outlook.is_enough,
        outlook=outlook.sentence,
        items=tuple(
            _item(questions[i], prompts[i], answers.get(i, nothing), tokenizer, shared, recipe.exact_tokens)
            for i in (fitting[row] for row in chosen)
        ),
    )


def _item(
    question: Question, prompt: Prompt, answer: Answer, tokenizer: Any, shared: int, exact_tokens: str
) -> ShownItem:
    words = locate_question_words(question, use_metadata=exact_tokens != "rules")
    marks = dict.fromkeys(question_tokens(words.spans, prompt), "question")
    reads: dict[int, tuple[str, ...]] = {}
    sources = tuple(prompt_sources(prompt))
    ids = prompt.ids
    if answer.status == "answered":
        located = locate(tokenizer, question, words, prompt, answer)
        ids, sources = located.input_ids, located.sources
        marks |= dict.fromkeys(located.answer_tokens, "answer")
        for name, at in zip(POSITIONS, located.positions, strict=True):
            reads[at] = (*reads.get(at, ()), name)
    tokens = (
        ShownToken(token, text, marks.get(at, ""), reads.get(at, ()))
        for at, (token, text) in enumerate(zip(ids, _token_texts(tokenizer, ids), strict=True))
    )
    # No weights are loaded here: where the model itself is to choose the words, others stand in for it.
    stands_in = exact_tokens == "model" and words.rule != "own"
    rule = f"{words.rule}, until the model is asked" if stands_in else words.rule
    return ShownItem(question.item_id, rule, len(prompt.ids) - shared, tuple(tokens), sources)


def _token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The characters that each token adds to the text."""
    text, offsets = offsets_by_decoding(partial(decode_exactly, tokenizer), ids)
    ends = accumulate((end for _, end in offsets), max, initial=0)
    return [text[start:end] for start, end in pairwise(ends)]


def render_preview(preview: Preview) -> str:
    """A dry run as plain text: what would be run, then what the model would see."""
    recipe, model = preview.recipe, preview.model
    positions = list(dict.fromkeys(("final", recipe.position)))
    n_probes = len(SITES) * len(positions) * model.n_layers * recipe.folds * len(PROBES)
    size = f"{model.parameters:,} parameters" + (", RANDOM WEIGHTS" if model.random_weights else "")
    places = f"{len(SITES)} sites × {len(positions)} position{'s' * (len(positions) > 1)} × {model.n_layers} layers"
    lines = [
        "What would be run",
        f"  model      {model.name}: {model.n_layers} layers of width {model.d_model}, {size}",
        f"  prompt     {preview.prompt}; greedy answers of at most {recipe.max_new_tokens} tokens",
        *(f"  dataset    {_describe_counts(dataset)}" for dataset in preview.datasets),
        *(f"  enough?    {dataset.name}: {dataset.outlook}" for dataset in preview.datasets if dataset.outlook),
        *(f"  too long   {dataset.name}: {dataset.too_long}" for dataset in preview.datasets if dataset.too_long),
        f"  items      at most {2 * recipe.max_per_class:,} of each dataset, once answered; balance: {recipe.balance}",
        *(f"  pass       {name}: {about}" for name, about in preview.passes.items()),
        f"  cut        in every layer; edges: {recipe.edges}",
        f"  read at    sites {', '.join(SITES)}; positions {', '.join(positions)}",
        f"  chart      site {recipe.site}, position {recipe.position}",
        f"  probes     {places} × {recipe.folds} folds × {len(PROBES)} kinds = {n_probes:,} for each dataset",
        *(f"  {line}" for line in (preview.cost.sentence.splitlines() if preview.cost is not None else ())),
        "",
        "What the model would see: ⟦…⟧ is an exact token of the question (E_Q), ⟪…⟫ one of a given answer (E_A)",
    ]
    brackets = {"": ("", ""), "question": ("⟦", "⟧"), "answer": ("⟪", "⟫")}
    is_first = True  # the shared beginning is shown once
    for dataset in preview.datasets:
        for item in dataset.items:
            about = f"E_Q by {item.rule}; {dataset.shared} shared and {item.own} own tokens"
            tokens = item.tokens if is_first else item.tokens[dataset.shared :]
            text = "".join(token.text.join(brackets[token.exact]) for token in tokens)
            read = {name: (at, token.text) for at, token in enumerate(item.tokens) for name in token.reads}
            lines += [
                "",
                f"{dataset.name}, item {item.item_id} ({about})",
                *(f"  | {line}" for line in text.split("\n")),
            ]
            lines += [
                f"  reads {name} at token {read[name][0]} {read[name][1]!r}" for name in POSITIONS if name in read
            ]
            if any(name not in ("question", "answer") for name, _, _ in item.sources):
                spans = (f"{name} tokens {start}–{end - 1}" for name, start, end in item.sources)
                lines.append(f"  sources: {', '.join(spans)}")
            is_first = False
    return "\n".join([*lines, "", "Nothing was run: no weights were loaded and no file was written."])


def _describe_counts(dataset: ShownDataset) -> str:
    left_out = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in dataset.counts.items() if count)
    given = f"; {dataset.given_answers:,} answers and {dataset.given_labels:,} labels are given"
    low, middle, high = dataset.own
    return (
        f"{dataset.name}: {dataset.questions:,} questions ({left_out})"
        f"{given if dataset.given_answers or dataset.given_labels else ''}; "
        f"{dataset.shared} shared tokens, then {low} to {high} own ones (median {middle:g})"
    )
