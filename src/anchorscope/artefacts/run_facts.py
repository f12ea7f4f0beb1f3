"""What was run, in words, in the order in which the report shows it: what happened, not what was asked for.

A file may bring its own answers and labels, and may have no relations or subjects; then nothing was generated, graded,
balanced by relation or kept together by subject, whatever the options say.
"""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata

from anchorscope.answers.template import FEW_SHOT
from anchorscope.artefacts.results import DatasetResult, RunFacts

_NAMED_VERSIONS = ("anchorscope", "torch", "transformers", "numpy", "polars", "scikit-learn", "safetensors")
_BALANCED = {
    "relation": "true and false answers balanced within each relation",
    "dataset": "true and false answers balanced over the whole dataset",
    "none": "true and false answers not balanced",
}
_GROUPED = {
    "subject": "folds and bootstrap by subject",
    "question": "folds and bootstrap by single questions",
    "answer": "folds and bootstrap by the model's answer",
}


def facts_in_words(run: RunFacts, results: Sequence[DatasetResult]) -> dict[str, str]:
    """One line per fact."""
    recipe, identity, (first, final) = run.recipe, run.identity, run.batch_tokens
    lowered = f", lowered to {final} when memory ran out" if final != first else ""
    return {
        "model": f"{identity.name} ({identity.architecture}, {identity.n_layers} layers, {identity.d_model} wide, "
        f"{identity.parameters / 1e6:,.0f} million parameters)",
        "weights": f"{identity.source}, fingerprint {identity.fingerprint[:16]}",
        "questions": ", ".join(recipe.datasets) + (f", at most {recipe.limit} each" if recipe.limit else ""),
        "prompt": f"{recipe.prompt}, {_examples(recipe.prompt)}",
        "answers": _per_dataset({one.name: _answers(one, recipe.max_new_tokens) for one in results}),
        "labels": _per_dataset({one.name: _labels(one) for one in results}),
        "exact tokens": _exact_tokens(results),
        "headline": f"site {recipe.site}, position {recipe.position}, edges {recipe.edges}",
        "balance": _per_dataset(
            {one.name: f"{_BALANCED[one.balanced_by]}; {_GROUPED[one.grouped_by]}" for one in results}
        ),
        "statistics": f"{recipe.folds} folds, {recipe.bootstrap} bootstrap resamples, seed {recipe.seed}",
        "device": f"{identity.device}, {identity.dtype}, batches of {first} tokens{lowered}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def _examples(prompt: str) -> str:
    if prompt == "zero-shot":
        return "no examples"
    return f"{len(FEW_SHOT)} examples" + (" as earlier turns" if prompt == "chat" else "")


def _answers(one: DatasetResult, longest: int) -> str:
    """How many answers the model wrote, and how many came with the questions."""
    (asked,), (supplied,) = one.counts["asked"], one.counts["supplied"]
    generated = f"{asked - supplied:,} generated (greedy, at most {longest} tokens)" if asked > supplied else ""
    return ", ".join(filter(None, (generated, f"{supplied:,} supplied" if supplied else "")))


def _labels(one: DatasetResult) -> str:
    """How many answers were compared with the accepted ones, and how many labels came with them."""
    counts = one.counts.row(0, named=True)
    graded = counts["true"] + counts["false"] - counts["supplied_labels"]
    told = {"graded against the accepted answers": graded, "supplied": counts["supplied_labels"]}
    return ", ".join(f"{count:,} {how}" for how, count in told.items() if count)


def _exact_tokens(results: Sequence[DatasetResult]) -> str:
    """How many questions' key words were found in which way."""
    names = {"own": "your spans", "metadata": "the dataset's words", "rules": "rules", "model": "the model"}
    totals = {name: sum(int(one.counts[f"words_by_{name}"].sum()) for one in results) for name in names}
    return ", ".join(f"{count:,} questions by {names[name]}" for name, count in totals.items() if count)


def _per_dataset(told: Mapping[str, str]) -> str:
    """What is the same for all datasets once, anything else with its dataset's name."""
    different = set(told.values())
    return different.pop() if len(different) == 1 else "; ".join(f"{name}: {text}" for name, text in told.items())


def versions() -> dict[str, str]:
    """Versions of what computes."""
    found = {"python": platform.python_version()}
    for name in _NAMED_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found
