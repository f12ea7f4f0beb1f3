from engine_fixtures import *  # noqa: F403
