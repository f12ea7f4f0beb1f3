from report_fixtures import *  # noqa: F403
