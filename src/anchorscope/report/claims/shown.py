"""The judged claims as a table of the page and as records of observations.json."""

from collections.abc import Sequence
from typing import Any

from anchorscope.report.claims.claim import Judged
from anchorscope.report.claims.sources import short_sources, source_name
from anchorscope.report.readings import RULES
from anchorscope.report.readings.record import finite
from anchorscope.report.tables import Table


def claims_table(judged: Sequence[Judged]) -> Table:
    """Who says it, who says otherwise, and what the numbers say: by the paper's rule, and the shift taken out."""
    head = ("claim", "says so", "says otherwise", "verdict", "common shift taken out", "what was found")
    rows = tuple(
        (
            one.claim.text,
            short_sources(one.claim.says),
            short_sources(one.claim.against),
            one.plain.verdict,
            one.corrected.verdict,
            one.plain.sentence,
        )
        for one in judged
    )
    return Table(head, rows, len(head))


def claims_records(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Every claim under both rules, with the keys that readings have and the sources."""
    records = []
    for one in judged:
        for assignment, found in (("plain", one.plain), ("corrected", one.corrected)):
            number = found.found
            who = ", ".join(one.models)
            statement, numbers = one.claim.text.rstrip("."), found.told
            datasets = list(dict.fromkeys(part.dataset for part in found.parts if part.dataset))
            records.append(
                {
                    "id": f"claim:{one.claim.id}:{assignment}",
                    "text": f"{who}, {RULES[assignment]}: {statement} ({numbers}): {found.verdict}.",
                    "statement": statement,
                    "numbers": numbers,
                    "value": finite(number.value if number else None),
                    "ci_low": finite(number.ci_low if number else None),
                    "ci_high": finite(number.ci_high if number else None),
                    "verdict": found.verdict,
                    "claim": one.claim.id,
                    "model": who,
                    "dataset": datasets[0] if len(datasets) == 1 else None,
                    "site": one.site,
                    "position": one.position,
                    "assignment": assignment,
                    "group": None,
                    "scope": "claim",
                    "unit": found.unit,
                    "layer": None,
                    "n": number.n if number else 0,
                    "method": number.method if number else "",
                    "reason": found.reason,
                    "needs": one.claim.needs,
                    "source": [source_name(reading) for reading in one.claim.says],
                    "sources_against": [source_name(reading) for reading in one.claim.against],
                    "opposes": list(one.claim.opposes),
                    "key": False,
                }
            )
    return records
