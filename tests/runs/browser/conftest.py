from browser_fixtures import *  # noqa: F403 - the fixtures of a real browser
from browser_fixtures import _nothing_to_complain_of as _nothing_to_complain_of
