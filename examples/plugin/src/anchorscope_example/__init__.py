"""A plug-in of anchorscope: a family, a dataset format, an intervention, an experiment, a detector and a grader."""
