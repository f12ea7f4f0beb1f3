"""What to change in a run: edges to cut (the knockout, its controls and kin), questions to write anew."""
