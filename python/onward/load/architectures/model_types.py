"""The values of ``model_type`` that share the file of a family with another one."""

from __future__ import annotations

# model_type -> the file of its family.
FAMILIES: dict[str, str] = {}
