"""What a run leaves on disk: sealed folders, hashed steps, and the columns of every table."""
