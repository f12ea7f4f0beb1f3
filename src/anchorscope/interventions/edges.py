"""The knockout with fewer edges cut: only those that lead straight from the exact tokens to the answer.

Under `all`, nothing after the question's exact tokens sees them, so that no other token can carry them on. Under
`direct`, the answer's own tokens lose them and the rest of the question keeps what it has read: what is left of the
effect went straight to the answer, what is gone took a way through other tokens. (The third kind, `outside`, differs
from `all` only among the exact tokens themselves, whom no answer token sees under either.)
"""

from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.knockout import question_tokens

DIRECT = Intervention(
    name="direct",
    about="only the answer's own tokens lose the exact tokens",
    keys=question_tokens,
    evidence="edges",
    edges="direct",
)
