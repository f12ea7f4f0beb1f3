"""What to change in a run: edges to cut (the knockout, its controls and variants), questions to rewrite."""
