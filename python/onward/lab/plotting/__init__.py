"""Lines on logarithmic axes as a file: ``onward kv --plot`` and ``onward bench --plot`` draw them.

``charts`` turns numbers into marks in a frame, ``pictures`` writes marks as SVG or PNG. Neither
knows where the numbers come from.
"""

from __future__ import annotations

from onward.lab.plotting.charts import Chart, Curve, marks
from onward.lab.plotting.pictures import check_path, dark_style, svg, write

__all__ = ["Chart", "Curve", "check_path", "dark_style", "marks", "svg", "write"]
