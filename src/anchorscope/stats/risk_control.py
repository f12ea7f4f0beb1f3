"""A threshold on the probability above which at most so many of the accepted answers are wrong."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """From which probability on answers are accepted."""

    risk: float
    """The share of wrong answers among the accepted ones that it is meant for."""
    delta: float
    """The chance that the true risk is higher after all."""
    probability: float | None
    """The least probability that is accepted; None where the risk cannot be reached."""
    coverage: float
    """The share of the answers that it accepts."""
    n: int
    """The answers that it was found on."""
