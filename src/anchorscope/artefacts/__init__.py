"""What a run leaves on disk: hashed steps, result files, kept states, and a finished run read back."""
