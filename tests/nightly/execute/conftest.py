from engine_fixtures import short_sighted as short_sighted
from execute_fixtures import *  # noqa: F403
