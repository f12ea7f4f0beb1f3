from adapters_fixtures import *  # noqa: F403
