"""What the words are made of: titled sections of paragraphs and lists, as plain text that any template can set."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One bullet."""

    label: str
    """What it is about, to be set apart from the text."""
    text: str


@dataclass(frozen=True)
class Points:
    """A list of bullets, under a heading where there are several lists."""

    heading: str
    """Empty where the section's title is enough."""
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Section:
    """One titled part."""

    title: str
    slug: str
    """Its place in the page, for links."""
    paragraphs: tuple[str, ...] = ()
    lists: tuple[Points, ...] = ()


@dataclass(frozen=True)
class Prose:
    """The chart in words."""

    sections: tuple[Section, ...]
