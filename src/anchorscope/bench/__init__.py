"""Speed on this machine, against other ways to do the same work; see `benchmarks/README.md`."""
