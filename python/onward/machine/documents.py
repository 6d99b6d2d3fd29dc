"""The documents that come with the package: where they are, and the command that shows one.

An installed package has them in onward/docs; a checkout has them in docs.
"""

from __future__ import annotations

from pathlib import Path

from onward.errors import InvalidArgument, NativeFilesNotFound
from onward.message_text import label, nearest

_PACKAGE = Path(__file__).parent.parent


def folder() -> Path:
    """The folder of the documents.

    Raises:
        NativeFilesNotFound: the installation has none.
    """
    for place in (_PACKAGE / "docs", _PACKAGE.parent.parent / "docs"):
        if (place / "design.md").is_file():
            return place
    raise NativeFilesNotFound(
        f"documents: {_PACKAGE / 'docs'} is not there, expected an installation that pip has "
        "built (pip install .) or a checkout"
    )


def names() -> list[str]:
    """The names of the documents, without ".md"."""
    return sorted(path.stem for path in folder().glob("*.md"))


def title(name: str) -> str:
    """The first heading of a document."""
    return read(name).partition("\n")[0].removeprefix("# ").strip()


def read(name: str) -> str:
    """The text of a document, by its name or the name of its file.

    Raises:
        InvalidArgument: there is no such document.
    """
    stem = name.removeprefix("docs/").removesuffix(".md")
    known = names()
    if stem not in known:
        hint = nearest(stem, known) or f", expected one of {', '.join(known)}"
        raise InvalidArgument(f"docs: {label(name)}: no such document{hint}")
    return (folder() / f"{stem}.md").read_text(encoding="utf-8")
