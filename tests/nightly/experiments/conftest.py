from engine_fixtures import short_sighted as short_sighted
from report_experiments_fixtures import *  # noqa: F403
