from execute_fixtures import *  # noqa: F403
