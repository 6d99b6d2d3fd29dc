"""Every option that a caller may give: its table, its legal values, and how it reaches the core."""
