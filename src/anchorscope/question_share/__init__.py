"""The question share Λ: how much of a probe's evidence for the truth needs the question's key words."""
