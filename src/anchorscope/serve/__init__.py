"""`anchorscope serve`: a detector behind an API, and a page to try it."""
