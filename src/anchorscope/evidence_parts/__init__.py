"""What a probe's evidence rests on: question, answer, either, or only the two together."""
