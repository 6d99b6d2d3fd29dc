"""Reports of the lab: tables as text, markdown, CSV or JSON, and charts as SVG or PNG.

``tables`` writes sections of text and tables. ``charts`` turns numbers into marks in a frame, and
``pictures`` writes marks as files. ``numbers`` formats single numbers.
"""

from __future__ import annotations

from onward.lab.report.charts import Chart, Curve, marks
from onward.lab.report.pictures import check_path, dark_style, svg, write

__all__ = ["Chart", "Curve", "check_path", "dark_style", "marks", "svg", "write"]
