from evidence_parts_fixtures import *  # noqa: F403
