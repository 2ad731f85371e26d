"""Owns where each key stands in a TOML text, for error messages; values are tomllib's."""

import re
from collections.abc import Iterator

KeyPath = tuple[str | int, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*$")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line number, counted from 1, of every table header and `key =` line of a valid TOML text.

    Keys inside an inline table have no entry of their own; `line_of` then answers with the line of the key that
    holds the table.
    """
    lines: dict[KeyPath, int] = {}
    num_tables: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in _logical_lines(text):
        if header := _HEADER.match(_without_comment(line)):
            table = _inside_arrays(_split(header[2]), num_tables)
            if header[1] == "[[":
                lines.setdefault(table, number)
                num_tables[table] = num_tables.get(table, 0) + 1
                table = (*table, num_tables[table] - 1)
            lines[table] = number
        elif key := _KEY.match(line):
            lines.setdefault((*table, *_split(key[1])), number)
    return lines


def line_of(text: str, place: KeyPath) -> int | None:
    """Line of the key at `place`, or of the innermost table or key around it that has a line; None at the top."""
    lines = key_lines(text)
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), None)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines on which a key or a header can start: not inside a multi-line string or array."""
    closing, depth = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if closing:
            if closing not in line:
                continue
            line, closing = line.split(closing, 1)[1], ""
        elif depth == 0:
            yield number, line
        # A triple quote inside a one-line string would be taken for an opening one: a line number may then be missing.
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2:
                closing, line = quotes, line.split(quotes, 1)[0]
        bare = _without_comment(_STRING.sub("", line))
        depth += bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}")


def _without_comment(line: str) -> str:
    masked = _STRING.sub(lambda string: "_" * len(string[0]), line)
    return line[: masked.index("#")] if "#" in masked else line


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


def _inside_arrays(parts: tuple[str, ...], num_tables: dict[KeyPath, int]) -> KeyPath:
    """`prompts.extra` under `[[prompts]]` means the extra table of the last prompt so far."""
    place: KeyPath = ()
    for part in parts[:-1]:
        place = (*place, part)
        if place in num_tables:
            place = (*place, num_tables[place] - 1)
    return (*place, parts[-1])
