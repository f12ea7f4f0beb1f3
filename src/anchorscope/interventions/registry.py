"""All interventions, by name, in the order in which they run."""

from anchorscope.interventions.controls import NONE, RANDOM
from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.knockout import KNOCKOUT

INTERVENTIONS: dict[str, Intervention] = {one.name: one for one in (KNOCKOUT, RANDOM, NONE)}
