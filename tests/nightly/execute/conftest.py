from engine_fixtures import short_sighted as short_sighted
from pass_cases import sensitive as sensitive
