"""The further evidence on the page: one file per experiment, each with its table, its figure and its words."""
