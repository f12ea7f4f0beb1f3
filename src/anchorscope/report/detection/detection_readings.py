"""All readings of a folder of detectors, in the order of the page."""

from collections.abc import Mapping
from dataclasses import dataclass

from anchorscope.report.detection.control_readings import control_readings
from anchorscope.report.detection.detection_reading import DetectionReading
from anchorscope.report.detection.recommendation import Recommendation, recommend, recommendation_reading
from anchorscope.report.detection.results import DetectionResults
from anchorscope.report.detection.tested_readings import tested_readings
from anchorscope.report.detection.transfer_readings import other_transfer_readings, transfer_readings


@dataclass(frozen=True)
class DetectionReadings:
    """What may be said, by kind."""

    recommendation: Recommendation | None
    choice: tuple[DetectionReading, ...]
    """Which detector to use: one reading, or none."""
    tested: tuple[DetectionReading, ...]
    transfer: tuple[DetectionReading, ...]
    other_transfer: tuple[DetectionReading, ...]
    """The same of detectors that are not the first choice."""
    controls: tuple[DetectionReading, ...]
    """Calibration, controls and descriptions."""

    @property
    def all(self) -> tuple[DetectionReading, ...]:
        """Every reading, in the order of the page."""
        return (*self.choice, *self.tested, *self.transfer, *self.other_transfer, *self.controls)

    def one(self, claim: str) -> DetectionReading | None:
        """The reading of this name."""
        return next((reading for reading in self.all if reading.claim == claim), None)


def read_detection(results: DetectionResults, left_out: Mapping[str, str]) -> DetectionReadings:
    """Ask everything."""
    found = recommend(results)
    choice = (recommendation_reading(results, found),) if found else ()
    chosen = found.detector if found else ""
    return DetectionReadings(
        found,
        choice,
        tuple(tested_readings(results, left_out)),
        tuple(transfer_readings(results, chosen)),
        tuple(other_transfer_readings(results)),
        tuple(control_readings(results, chosen)),
    )
