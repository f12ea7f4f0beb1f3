from serve_fixtures import *  # noqa: F403
