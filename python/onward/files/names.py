"""Whether the system can have a file under the name that a caller gave."""

from __future__ import annotations

import os


def is_file_name(text: str) -> bool:
    """False for a blank name and for one with a null character or a lone surrogate."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return bool(text.strip()) and "\0" not in text
