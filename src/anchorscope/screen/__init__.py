"""What a person sees in letters: messages, progress in a terminal, a log or a notebook, and the answer card."""
