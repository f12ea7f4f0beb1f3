"""How question files look; every dataset becomes a list of `Question`."""
