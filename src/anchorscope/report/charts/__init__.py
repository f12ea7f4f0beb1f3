"""The static figures of a run: paper quality, each with the CSV of what is drawn."""
