"""All figures of a report, in the order in which the page shows them; those of the further experiments come last."""

from anchorscope.report.charts.auc_charts import ProbeAucChart, SurvivingSignalChart
from anchorscope.report.charts.delta_p import DeltaPChart
from anchorscope.report.charts.display import Display
from anchorscope.report.charts.reference_layer import ReferenceLayerChart
from anchorscope.report.charts.truth_split import TruthSplitChart
from anchorscope.report.experiments.contents import further_displays
from anchorscope.report.experiments.exact_tokens import ExactTokensChart
from anchorscope.report.findings import Findings


def displays(findings: Findings) -> list[Display]:
    """Every figure of the run, computed and not yet drawn."""
    words = [ExactTokensChart.from_findings(findings)] if ExactTokensChart.was_made(findings) else []
    return [
        DeltaPChart.from_findings(findings),
        ProbeAucChart.from_findings(findings),
        SurvivingSignalChart.from_findings(findings),
        TruthSplitChart.from_findings(findings),
        ReferenceLayerChart.from_findings(findings),
        *words,
        *further_displays(findings),
    ]
