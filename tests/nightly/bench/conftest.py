from bench_fixtures import *  # noqa: F403
