"""What to do after a run: at most three steps, with their commands, chosen by what the readings leave open."""

import shlex
from collections.abc import Sequence
from functools import partial

from anchorscope.report.findings import Findings
from anchorscope.report.shares import FEWEST_ANSWERS, why_silent
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.statement import Reading

MOST = 3
"""Steps on a card; a longer list is not read."""


def next_steps(findings: Findings, observations: Sequence[Reading]) -> tuple[str, ...]:
    """The steps, the most useful one first."""
    if findings.random_weights:
        return ("Run it with the trained weights.",)
    folder = findings.folder or "RUN"
    again = partial(_again, findings, folder)
    verdicts = {
        claim: {
            one["verdict"]
            for one in observations
            if one["claim"] == claim and one["dataset"] and one["value"] is not None
        }
        for claim in ("adds_to_confidence",)
    }
    made = set(findings.experiments["experiment"].to_list()) if findings.experiments.height else set()
    steps = _layers_to_leave_out(observations, len(findings.datasets) > 1)
    if any("answers" in (why_silent(findings, dataset) or "") for dataset in findings.datasets):
        steps.append(f"Ask more questions: shares need {FEWEST_ANSWERS} used answers.")
    if "matched" not in made:
        steps.append(f"Rule out that words alone tell: {again(evidence='matched,wordings')}")
    if "holds" in verdicts["adds_to_confidence"]:
        steps.append(
            f"Catch hallucinations: {again(keep='states,states-cut,detection')} && anchorscope detect "
            f"{shlex.quote(folder)} --out {shlex.quote(f'{folder}-detectors')}"
        )
    return tuple(steps[:MOST])


def _again(findings: Findings, folder: str, **options: str) -> str:
    """What adds something to the run: a command, or where no command line can name the model, a call in Python."""
    if findings.options is not None:
        named = "".join(f", {name}={value!r}" for name, value in {**findings.options, **options}.items())
        return f"anchorscope.run(model, tokenizer=tokenizer, out={folder!r}{named})"
    words = ["anchorscope", "run", f"{folder}/recipe.toml", "--out", folder]
    return shlex.join([*words, *(word for name, value in options.items() for word in (f"--{name}", value))])


def _layers_to_leave_out(observations: Sequence[Reading], several: bool) -> list[str]:
    """Where random words do more than a quarter of what the key words do, a line says little about the key words."""
    lines = {"random_small": "ΔP"}
    failing: dict[str, set[int]] = {}
    datasets = set()
    for one in observations:
        if one["claim"] in lines and one["key"] and one["failing_layers"]:
            failing.setdefault(lines[one["claim"]], set()).update(one["failing_layers"])
            datasets.add(one["dataset"])
    if datasets and several:
        return ["Leave out the layers where random words do more than a quarter: “Can I trust it?” names them."]
    return [
        f"Read nothing into {line} at {layer_names(tuple(layers))}: random words do over a quarter of it there."
        for line, layers in failing.items()
    ]
