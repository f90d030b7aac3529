"""A page of HTML as a tree of elements, by the parser of the standard library."""

import html.parser
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOID = {"meta", "link", "img", "input", "br", "hr"}


@dataclass
class Element:
    """An element with its attributes, children and text."""

    tag: str
    attributes: dict[str, str | None]
    children: list["Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def every(self, tag: str, **attributes: str) -> list["Element"]:
        """The elements inside with this tag and these attributes."""
        return [
            each
            for each in self._inside()
            if each.tag == tag
            and all(each.attributes.get(k) == x for k, x in attributes.items())
        ]

    def one(self, tag: str, **attributes: str) -> "Element":
        (found,) = self.every(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        return " ".join("".join(self.pieces).split())

    def _inside(self) -> Iterator["Element"]:
        for child in self.children:
            yield child
            yield from child._inside()


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(self.open[-1].children[-1])

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag):
        found = self.open.pop()
        assert found.tag == tag, f"<{found.tag}> ends by </{tag}>"

    def handle_data(self, data):
        for each in self.open:
            each.pieces.append(data)


def parse(text: str) -> Element:
    """The tree of a page, whose elements must end in the order of their nesting."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [each.tag for each in reader.open] == [""], "an element has no end"
    return reader.open[0]


def read(path: str | Path = "run/report.html") -> Element:
    """The tree of a page in a file."""
    return parse(Path(path).read_text(encoding="utf-8"))


def table(page: Element, caption: str) -> dict[str, list[str]]:
    """The rows of the table with a caption that starts so, by their first cell."""
    (found,) = (
        each
        for each in page.every("table")
        if each.every("caption") and each.one("caption").text.startswith(caption)
    )
    cells = [[cell.text for cell in row.children] for row in found.every("tr")]
    return {first: others for first, *others in cells}


def data(page: Element, id: str) -> Any:
    """The JSON in an element."""
    return json.loads("".join(page.one("script", id=id).pieces))
