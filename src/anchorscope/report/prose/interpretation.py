"""What the readings mean together, and what they do not show; each sentence is chosen by a verdict."""

from anchorscope.report.findings import Findings
from anchorscope.report.prose.components import NOISE
from anchorscope.report.prose.observations import KEY_PHRASES
from anchorscope.report.prose.phrases import Phrases, Told
from anchorscope.report.prose.section import Section
from anchorscope.report.readings.rules import rules_of

PLAIN = Phrases(
    "The groups of the plain chart are mostly the true and the false answers under another name, so what separates "
    "them is no evidence of two pathways.",
    "The groups of the plain chart are not mostly the true and the false answers under another name.",
    "How far the groups of the plain chart are the true and the false answers under another name is undecided, so what "
    "separates them should not be read as two pathways.",
    "the groups of the plain chart are mostly the true and the false answers under another name",
)
CORRECTED = Phrases(
    "With the common shift taken out the groups still stay apart to the end, so that shift alone does not make the two "
    "curves.",
    "With the common shift taken out the groups do not stay apart to the end.",
    "Whether the groups stay apart to the end once the common shift is taken out is undecided.",
    "the groups stay apart to the end once the common shift is taken out",
)
RETAINED = Phrases(
    "By the retained rule, which asks a probe that was trained on the cut states, the groups stay apart as well.",
    "By the retained rule, which asks a probe that was trained on the cut states, the groups do not stay apart.",
    "By the retained rule, which asks a probe that was trained on the cut states, it is undecided whether the groups "
    "stay apart.",
    "the groups stay apart by the retained rule as well",
)
CONTROL = Phrases(
    "Random cuts do less than a quarter of what the knockout does, so most of its effect belongs to the words that "
    "were cut, not to cutting as such.",
    "Random cuts do much of the same, so a large part of the effect belongs to cutting as such.",
    "Whether random cuts do much of the same is undecided, so the effect may belong to cutting as such.",
    "most of the knockout's effect belongs to the words that were cut, not to cutting as such",
)
SURVIVES = Phrases(
    "Some evidence of truth remains without the question's key words.",
    "Without the question's key words, a probe trained anew does no better than guessing.",
    "Whether any evidence of truth remains without the question's key words is undecided.",
    "some evidence of truth remains without the question's key words",
)

INTERPRETED: dict[tuple[str | None, str], Phrases] = {
    ("plain", "sorts_by_label"): PLAIN,
    ("corrected", "separation"): CORRECTED,
    ("retained", "separation"): RETAINED,
    ("plain", "random_small"): CONTROL,
    (None, "signal_survives"): SURVIVES,
}

LIMITS = (
    "Groups are chosen by what the cut does to them at the reference layer, so a distance there is built into the "
    "rule; the controls, the label shares and the retained rule say more than the distance does. A linear probe that "
    "reads truth out of a state does not show that the model uses it. The intervals take the fitted probes as given, "
    "and one run speaks for one model, one site and one position."
)


def interpretation(findings: Findings, told: Told) -> Section:
    """The last section."""
    if findings.random_weights:
        return Section("Interpretation", "words-interpretation", (NOISE,))
    asked = [key for key in INTERPRETED if key[0] is None or key[0] in rules_of(findings)]
    sentences = [_closed(told.sentence(rule, claim, INTERPRETED[rule, claim])) for rule, claim in asked]
    apart = ("Two groups, plain rule", "plain", "separation")
    opening = _closed(told.sentence("plain", "separation", KEY_PHRASES[apart]))
    return Section("Interpretation", "words-interpretation", (" ".join([opening, *sentences]), LIMITS))


def _closed(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
