"""The checks of a run. `share_statements.py`, `control_statements.py`, `number_statements.py` and
`curve_statements.py` list them; `all_statements.py` applies all of them. Thresholds are in `report/verdicts.py`.
"""

from anchorscope.report.reading import Reading as Reading
from anchorscope.report.statements.all_statements import STATEMENTS as STATEMENTS
from anchorscope.report.statements.all_statements import read as read

__all__ = ["STATEMENTS", "Reading", "read"]
