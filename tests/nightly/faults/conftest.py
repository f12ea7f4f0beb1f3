from runs_fixtures import *  # noqa: F403
