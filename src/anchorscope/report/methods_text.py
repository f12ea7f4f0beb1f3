"""What a paper can say of a run: a methods paragraph from the run's own facts, and what to cite."""

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.wording import listing

BIBTEX = """@inproceedings{luo2026two,
  title     = {Two Pathways to Truthfulness: On the Intrinsic Encoding of LLM Hallucinations},
  author    = {Luo and others},
  booktitle = {Proceedings of ACL 2026},
  note      = {arXiv:2601.07422},
  year      = {2026}
}
@software{anchorscope,
  title   = {anchorscope: where a language model's sense of truth comes from},
  version = {VERSION},
  year    = {2026},
  license = {Apache-2.0}
}"""
"""The paper whose method this follows, and this program."""
_TOLD = ("prompt", "answers", "balance", "exact tokens")


def methods_paragraph(findings: Findings) -> str:
    """The run in the words of a methods section."""
    facts = findings.facts
    names = listing([display_name(dataset) for dataset in findings.datasets])
    told = [
        f"Answers of {facts.get('model', findings.model)} on {names}.",
        *(f"{name.capitalize()}: {facts[name]}." for name in _TOLD if name in facts),
        f"Linear probes (L2-regularised logistic regression) read the {findings.site} output of each of "
        f"{findings.n_layers} layers at the position “{findings.position}”; reference layers were chosen on the other "
        "folds.",
        "Attention from the question's key words to all later tokens was cut in every layer up to the one that is "
        "read. The probe's evidence is divided into four parts by the direct effect of a partially linear model: what "
        "the state with the key words cut, the state before the answer, and both side by side leave of it, estimated "
        "by half-splits with ridge regressions out of fold; controls are cuts of random words of equal attention, "
        "another site of the clean run, and permuted labels.",
        f"Statistics: {facts['statistics']}; intervals are 95 % bootstrap intervals over groups, and p-values of the "
        "tested questions are corrected by Holm's method."
        if "statistics" in facts
        else "",
        f"anchorscope {_version(facts.get('versions', ''))}." if facts.get("versions") else "",
    ]
    return " ".join(part for part in told if part)


def bibtex(findings: Findings) -> str:
    """What to cite."""
    return BIBTEX.replace("VERSION", _version(findings.facts.get("versions", "")) or "0.1.0")


def _version(versions: str) -> str:
    """Of anchorscope, out of the list of versions."""
    found = [one.split(" ", 1)[1] for one in versions.split(", ") if one.startswith("anchorscope ")]
    return found[0] if found else ""
