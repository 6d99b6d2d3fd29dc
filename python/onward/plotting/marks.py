"""What a picture is made of: strokes, dots and words, placed in a frame of WIDTH x HEIGHT.

Knows neither numbers nor files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

WIDTH, HEIGHT = 860, 520
FONT, TITLE_FONT = 11, 13
TEXT = "#222222"


@dataclass(frozen=True)
class Stroke:
    """A line through points; x to the right and y down, as everything that is drawn."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    colour: str
    radius: float = 3.0


@dataclass(frozen=True)
class Words:
    x: float
    y: float
    """Of the line that the letters stand on."""
    text: str
    colour: str = TEXT
    anchor: Literal["start", "middle", "end"] = "start"
    title: bool = False


Mark: TypeAlias = Stroke | Dot | Words
