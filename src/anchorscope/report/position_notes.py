"""What each probe position can show, and what it cannot: one sentence each for the page."""

POSITION_NOTES = {
    "final": (
        "The probe reads the last token of the whole answer. It has seen question and answer, so both pathways can "
        "reach it; but after a sentence it may be a full stop, whose state sums up more than the entity that is true "
        "or false."
    ),
    "answer_end": (
        "The probe reads the last token of the entity in the answer. It has seen the question and the entity, and "
        "nothing that was said after it; where the answer is the entity alone, it is the same token as the final one. "
        "Which token that is, is decided by a rule that does not look at the label."
    ),
    "answer_before": (
        "The probe reads the token just before the entity, which has not seen the answer. What it knows of the truth "
        "can only come from the question and from what the model is about to say, so A-Anchored means something else "
        "here: a verdict that needs neither the cut words nor the answer."
    ),
}
