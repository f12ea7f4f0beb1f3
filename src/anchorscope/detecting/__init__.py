"""`detect` and `score`: detectors trained on finished runs, compared, saved, and used on new questions."""
