"""What `anchorscope detect` tells: which detector to use, what it costs, and where it fails."""
