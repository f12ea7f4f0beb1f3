"""How rows are written into a file: JSON lines, a JSON list, CSV, TSV, Parquet, each also gzipped.

A container knows nothing of what columns mean; it is recognised from the file's first bytes, never from its name.
"""
