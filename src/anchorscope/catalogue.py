"""Every intervention, experiment, detector and grader, one entry each, and the names of plug-ins.

Free of torch, so that help, recipes, reports and docs can read it. A new experiment is one file, with its section of
the report, and an entry here; or an entry point of another package.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.plugins import WithPlugins, plugins_of

POSITIONS = ("final", "answer_end", "answer_before")
"""Where probes can read: the answer's last token; the last token of its entity; the token just before that."""
BALANCE = ("relation", "dataset", "none")
KEEP = ("states", "states-cut", "detection")
ON_BAD_ROW = ("fail", "skip")
DTYPES = ("auto", "float32", "bfloat16", "float16")
MOST_BATCH_TOKENS = 100_000_000
KNOCKOUT = "knockout"
"""The intervention that assigns pathways."""
LOADED = "an object already loaded"
"""The source of a model object given to `anchorscope.run`."""
RANDOM = "random"
"""Its control: other tokens cut that receive as much attention."""


@dataclass(frozen=True)
class InterventionEntry:
    name: str
    """As in the column `intervention` of the result files."""
    label: str
    """What is done, in a few words."""
    experiment: str
    """The experiment that it belongs to, as in `--evidence`."""
    control: bool = False
    """Whether it should do little; its effect measures how far to trust the rest."""


@dataclass(frozen=True)
class DetectorEntry:
    name: str
    """As in the column `detector` of the result files."""
    about: str
    passes: int
    """Passes through the model per answer, beyond those that wrote it, samples included."""
    baseline: bool = False
    """Whether it needs no probe on the model's states: what every detector has to beat."""
    variant_of: str | None = None
    """The detector of which it is a control."""
    saved: bool = True
    """Whether it can be saved and score new answers; others can only be compared."""
    runs: tuple[str, ...] = ()
    """Runs beside the clean one whose states it reads: without them it can't be fitted."""
    sites: tuple[str, ...] = ()
    """Sites of the clean run that it reads beside the headline's."""
    columns: tuple[str, ...] = ()
    """Plain numbers per answer without which it can't be fitted (log-probabilities, samples, P(True))."""


@dataclass(frozen=True)
class ExperimentEntry:
    name: str
    asks: str
    """The question that it answers."""
    docs: str
    """Its page below docs/, with the heading."""
    home: str | None = None
    """`module:name` of its `Experiment`; None if it consists of interventions alone."""
    section: str | None = None
    """`module:name` of the `SectionSpec` that shows it; several may share one."""
    order: int = 1000
    """Of its section on the page, lowest first."""


_ENTRIES = (
    InterventionEntry("knockout", "key words cut (the chart)", "knockout"),
    InterventionEntry("direct", "key words cut, for the answer's tokens only", "edges"),
    InterventionEntry("zeroing", "key words' weights set to zero", "zeroing"),
    InterventionEntry("subject", "subject cut", "exact-tokens"),
    InterventionEntry("property", "property cut", "exact-tokens"),
    InterventionEntry("content", "every content word cut", "exact-tokens"),
    InterventionEntry(
        "patch-same", "key words of the same relation put in", "patching"
    ),
    InterventionEntry("patch-random", "key words of any other item put in", "patching"),
    InterventionEntry(
        "answer-template", "question dropped, template kept", "answer-only"
    ),
    InterventionEntry("answer-bare", "nothing but the answer", "answer-only"),
    InterventionEntry(
        "random", "as much attention cut elsewhere", "knockout", control=True
    ),
    InterventionEntry("template", "template tokens cut", "template", control=True),
    InterventionEntry(
        "patch-control", "as many other words put in", "patching", control=True
    ),
    InterventionEntry(
        "patch-self", "own key words put in again", "patching", control=True
    ),
    InterventionEntry("none", "nothing cut", "knockout", control=True),
)
INTERVENTIONS = {entry.name: entry for entry in _ENTRIES}
"""In the order of the report: ways to remove the question, controls, plug-ins."""

CONTROLS = tuple(entry.name for entry in _ENTRIES if entry.control)
"""Interventions that should do little."""
_EXPERIMENTS = "anchorscope.experiments"


def _of_cuts(
    name: str, asks: str, order: int, section: str = "SECTION", docs: str | None = None
) -> ExperimentEntry:
    """An experiment that consists of interventions alone."""
    shown = f"{_EXPERIMENTS}.interventions:{section}"
    return ExperimentEntry(
        name,
        asks,
        docs or f"evidence/interventions.md#{name}",
        section=shown,
        order=order,
    )


def _with_file(name: str, asks: str, page: str, order: int) -> ExperimentEntry:
    """An experiment with a file of its own."""
    file = f"{_EXPERIMENTS}.{name.replace('-', '_')}"
    docs = f"evidence/{page}.md#{name}" if page else f"{name}.md"
    return ExperimentEntry(
        name,
        asks,
        docs,
        home=f"{file}:EXPERIMENT",
        section=f"{file}:SECTION",
        order=order,
    )


_OWN_EXPERIMENTS = {
    entry.name: entry
    for entry in (
        _of_cuts(
            "knockout",
            "does the probe need the question's key words?",
            10,
            docs="method.md",
        ),
        _of_cuts(
            "exact-tokens",
            "does it matter which words are cut?",
            15,
            "WORDS",
            "exact-tokens.md",
        ),
        _of_cuts("template", "does it matter that they are the question's?", 10),
        _of_cuts(
            "edges",
            "do the words reach the answer directly, or through other tokens?",
            45,
            "EDGES",
        ),
        _of_cuts("zeroing", "does it matter how an edge is cut?", 60, "ZEROING"),
        _of_cuts(
            "patching", "what if another question's words are put in?", 20, "PATCHING"
        ),
        _of_cuts(
            "answer-only", "what if there is no question at all?", 30, "ANSWER_ONLY"
        ),
        _with_file("layers", "in which layers does the cut matter?", "where", 40),
        _with_file("heads", "in which heads does the cut matter?", "where", 50),
        _with_file(
            "mediation",
            "in which layers do the key words' states carry the truth?",
            "where",
            57,
        ),
        _with_file("saliency", "what flows from question to answer?", "where", 70),
        _with_file("boundary", "what does the model know, per pathway?", "groups", 80),
        _with_file(
            "self-awareness", "can the pathway be read from clean states?", "groups", 90
        ),
        _with_file(
            "matched",
            "does the probe know truth where words cannot tell it?",
            "groups",
            94,
        ),
        _with_file(
            "sources",
            "does the answer rest on the passage, the thinking, or on memory?",
            "",
            5,
        ),
        _with_file(
            "wordings",
            "is an item's share its own, or noise of one wording?",
            "groups",
            96,
        ),
    )
}
OWN_EVIDENCE = frozenset((*_OWN_EXPERIMENTS, *INTERVENTIONS))
"""Names that plug-ins can't use."""
_ADDED = {
    name: f"plug-in of {plugin.package}"
    for name, plugin in plugins_of("interventions", OWN_EVIDENCE).items()
}
INTERVENTIONS |= {name: InterventionEntry(name, name, name) for name in _ADDED}
EXPERIMENTS = {
    **_OWN_EXPERIMENTS,
    **{  # a plug-in's intervention is an experiment of its own, so that it is run where it is asked for by name
        name: ExperimentEntry(
            name,
            about,
            docs="",
            section=f"{_EXPERIMENTS}.interventions:SECTION",
            order=10,
        )
        for name, about in _ADDED.items()
    },
    **{
        name: ExperimentEntry(
            name, f"plug-in of {plugin.package}", docs="", home=plugin.reference
        )
        for name, plugin in plugins_of(
            "experiments", {*OWN_EVIDENCE, *INTERVENTIONS}
        ).items()
    },
}
"""In the order in which they run."""
EVIDENCE = tuple(EXPERIMENTS)
"""What `--evidence` takes; the knockout with its controls is always made."""


def chosen_evidence(wanted: Sequence[str]) -> tuple[str, ...]:
    """The experiments to run for these names (`all` for all), in their order."""
    asked = EVIDENCE if "all" in wanted else ("knockout", *wanted)
    return tuple(name for name in EVIDENCE if name in asked)


def intervention_label(name: str) -> str:
    """An intervention in a few words; without an entry, its name."""
    return INTERVENTIONS[name].label if name in INTERVENTIONS else name


SAMPLES = (5, 10)
"""How many sampled answers self-consistency and semantic entropy use."""
BOOSTS = (1.0, 3.0)
"""α of strengthened attention: scores get + log(1 + α) before the softmax."""


def boost_name(part: str, alpha: float) -> str:
    """The run in which attention to a part (`question` or `answer`) is strengthened: `boost-question-3`."""
    return f"boost-{part}-{alpha:g}"


_LOG_PROBS = ("log_prob_mean",)
_BOOST_RUNS = tuple(
    boost_name(part, alpha) for part in ("question", "answer") for alpha in BOOSTS
)
_BOOSTED = (KNOCKOUT, *_BOOST_RUNS)
_DETECTORS = (
    DetectorEntry(
        "confidence",
        "the answer's log-probabilities, lead and entropy",
        0,
        columns=_LOG_PROBS,
    ),
    DetectorEntry(
        "rauq",
        "RAUQ: log-probabilities weighted by attention to the token before",
        1,
        columns=("rauq",),
    ),
    DetectorEntry("probe", "one linear probe, at the layer that serves best", 1),
    DetectorEntry(
        "residual-probe",
        "one linear probe on the residual stream",
        1,
        sites=("residual",),
    ),
    DetectorEntry(
        "question-orthogonal",
        "a probe on the part of the state that the question lacks",
        1,
        runs=("question-only",),
    ),
    DetectorEntry(
        "semantic-entropy-probe",
        "a probe that reads from the state how far sampled answers would differ; learns without labels",
        1,
        columns=("semantic_entropy_10",),
    ),
    DetectorEntry(
        "mean-token-probe",
        "a probe on the states averaged over the answer",
        1,
        saved=False,
        runs=("answer-mean",),
    ),
    DetectorEntry(
        "saplma", "SAPLMA: a network of three hidden layers on one layer's state", 1
    ),
    DetectorEntry("probe+confidence", "probe and confidence, stacked", 1),
    DetectorEntry(
        "mop",
        "Mixture-of-Probes: an expert per pathway and a gate",
        1,
        runs=(KNOCKOUT,),
    ),
    DetectorEntry(
        "pr-attention",
        "Pathway Reweighting by attention to the question or the answer",
        2,
        saved=False,
        runs=_BOOSTED,
    ),
    DetectorEntry(
        "auto",
        "probes and confidence, stacked; mostly confidence away from the training questions",
        1,
        runs=("question-only",),
    ),
    DetectorEntry(
        "length",
        "the answer's number of tokens",
        0,
        baseline=True,
        columns=("answer_tokens",),
    ),
    DetectorEntry("relation", "the question's relation", 0, baseline=True, saved=False),
    DetectorEntry(
        "text",
        "words and word pairs of question and answer",
        0,
        baseline=True,
        columns=("question_text", "answer_text"),
    ),
    DetectorEntry(
        "question-only",
        "a probe on the state before the answer begins",
        1,
        baseline=True,
        runs=("question-only",),
    ),
    DetectorEntry(
        "random-weights",
        "a probe on a model of the same shape that knows nothing",
        1,
        baseline=True,
        saved=False,
        runs=("random-weights",),
    ),
    DetectorEntry(
        "p-true",
        "the model asked whether its answer is true",
        1,
        baseline=True,
        saved=False,
        columns=("p_true",),
    ),
    *(
        DetectorEntry(
            f"{kind}-{n}",
            about.format(n),
            n,
            baseline=True,
            saved=False,
            columns=(f"{kind.replace('-', '_')}_{n}",),
        )
        for kind, about in (
            ("self-consistency", "how many of {} sampled answers agree"),
            ("semantic-entropy", "entropy over clusters of {} sampled answers"),
        )
        for n in SAMPLES
    ),
    DetectorEntry(
        "eigen-score-10",
        "EigenScore: how far the states of 10 sampled answers spread",
        10,
        baseline=True,
        saved=False,
        columns=("eigen_score_10",),
    ),
    *(
        DetectorEntry(
            f"{name}-{gate}-gate",
            f"control: {about}",
            passes,
            variant_of=name,
            saved=False,
            runs=runs,
        )
        for name, passes, runs in (
            ("mop", 1, (KNOCKOUT,)),
            ("pr-attention", 2, _BOOSTED),
        )
        for gate, about in (
            ("random", "the gate is drawn at random"),
            ("constant", "the gate is the same for all"),
        )
    ),
)
OWN_DETECTORS = {entry.name: entry for entry in _DETECTORS}
DETECTORS = WithPlugins(OWN_DETECTORS, "detectors", lambda plugin: plugin.entry)
"""In the order of tables: detectors, baselines, variants and controls, plug-ins."""
OWN_GRADERS = {"rules": "anchorscope.answers.grade:RULES"}
GRADERS = {
    **OWN_GRADERS,
    **{
        name: plugin.reference
        for name, plugin in plugins_of("graders", OWN_GRADERS).items()
    },
}
"""`module:name` of every `Grader`, by name."""
DETECTION_RUNS = ("answer-only", "answer-mean", "random-weights", *_BOOST_RUNS)
"""The runs whose states `--keep detection` keeps, beside those of `states` and `states-cut`."""
