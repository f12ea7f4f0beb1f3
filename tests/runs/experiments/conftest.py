from report_experiments_fixtures import *  # noqa: F403
