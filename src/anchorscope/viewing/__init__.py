"""`anchorscope view`: what was made below a folder, listed in the browser, and opened from there."""
