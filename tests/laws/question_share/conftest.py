from question_share_fixtures import *  # noqa: F403
