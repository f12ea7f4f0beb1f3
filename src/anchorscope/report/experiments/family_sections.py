"""The words and tables of the interventions that come as curves: patching, answer only, zeroing."""

from anchorscope.report.experiments.families import AnswerOnlyChart, FamilyChart, PatchingChart, ZeroingChart
from anchorscope.report.experiments.interventions import effects_table
from anchorscope.report.experiments.section import Plate, Section, filled
from anchorscope.report.findings import Findings

CURVES_CAPTION = "Solid: Q-Anchored. Dashed: A-Anchored. Black: the knockout, for comparison."


def patching_section(findings: Findings) -> Section | None:
    """Key words replaced by another item's, the answer kept."""
    text = (
        "Is it this question that the verdict needs, or just some question? The key words are replaced by those of "
        "another item, the answer stays, and the model reads the whole text afresh. Donors come from the same relation "
        "(another subject) or from any item.",
        "A verdict that hangs on the question should fall as under the knockout; here nothing is masked, so an "
        "artefact of masking cannot explain it. Own key words put in again must change nothing, and other words put "
        "in should change little. Donors whose question the kept answer does not fit are preferred, so a false answer "
        "stays false whatever is put in, and has nowhere to flip to: read the true ones. Only an answer that fits all "
        "donors looked at is run with those.",
    )
    return _section(findings, PatchingChart, "patching", "Patching: the key words of another item", text)


def answer_only_section(findings: Findings) -> Section | None:
    """The question dropped."""
    text = (
        "What does the answer say on its own? The question is dropped, once with the template around it kept and once "
        "with nothing but the answer, and the model reads what is left.",
        "A-Anchored verdicts should stay, Q-Anchored ones fall. But a text without its question is unlike anything "
        "that the probe was trained on, so all verdicts may move together: read the corrected rule first, and the "
        "difference between the groups before either of them.",
    )
    return _section(findings, AnswerOnlyChart, "answer-only", "Answer only", text)


def zeroing_section(findings: Findings) -> Section | None:
    """Weights zeroed after the softmax."""
    text = (
        "Does the result hang on how an edge is cut? Masking before the softmax hands the lost attention to the other "
        "tokens; zeroing after it takes the weight away and leaves the sum below one.",
        "If both curves agree, the redistribution of attention is not what moves the probe. If only one of them falls, "
        "the effect belongs to the way of cutting as much as to the question.",
    )
    return _section(findings, ZeroingChart, "zeroing", "Zeroing instead of masking", text)


def family_plate(chart: type[FamilyChart]) -> Plate:
    """The figure of a kind of intervention."""
    return Plate(chart.name, f"ΔP per layer of both groups: {chart.title}, a panel per rule", CURVES_CAPTION)


def _section(
    findings: Findings, chart: type[FamilyChart], slug: str, title: str, text: tuple[str, ...]
) -> Section | None:
    table = effects_table(findings, ("knockout", *chart.own), chart.own)
    made = any(findings.summary["intervention"].is_in(list(chart.own)))
    if not made and not chart.was_made(findings):
        return None
    plates = (family_plate(chart),) if chart.was_made(findings) else ()
    return Section(slug, title, text, filled(("", table)), plates)
