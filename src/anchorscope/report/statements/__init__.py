"""What may be said of a run: one table of statements, each with measure, threshold, sentences and verdict.

`statement.py` is one of them; `share_statements.py`, `control_statements.py`, `number_statements.py` and
`curve_statements.py` list them; `all_statements.py` puts all of them to a run. Thresholds, and the rules from an
interval to a verdict, stand in `report/verdicts.py`.
"""

from anchorscope.report.statements.all_statements import STATEMENTS as STATEMENTS
from anchorscope.report.statements.all_statements import read as read
from anchorscope.report.statements.statement import Reading as Reading
from anchorscope.report.statements.statement import Statement as Statement

__all__ = ["STATEMENTS", "Reading", "Statement", "read"]
