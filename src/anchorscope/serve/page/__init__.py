"""The page at `/`: ask the model or check an answer, and see what the verdict rests on."""
