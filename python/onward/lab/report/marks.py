"""The marks of a picture: strokes, dots and words, placed in a frame of WIDTH x HEIGHT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

WIDTH, HEIGHT = 860, 520
FONT, TITLE_FONT = 11, 13
TEXT = "#222222"
_CHARACTER_WIDTH = 0.58  # of the font size


@dataclass(frozen=True)
class Stroke:
    """A line through points. As in all marks, x points to the right and y points down."""

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
    """The height of the baseline of the letters."""
    text: str
    colour: str = TEXT
    anchor: Literal["start", "middle", "end"] = "start"
    title: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the letters, estimated for a sans-serif font."""
        size = TITLE_FONT if self.title else FONT
        width = text_width(self.text, size)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 0.8 * size, left + width, self.y + 0.2 * size


def text_width(text: str, size: float = FONT) -> float:
    """Width of a text in the frame, a little more than in common sans-serif fonts."""
    return _CHARACTER_WIDTH * size * len(text)


Mark: TypeAlias = Stroke | Dot | Words
