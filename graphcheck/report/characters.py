"""Owns which characters a text for other programs may hold: those that XML can."""

import re

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The complement of `Char`, XML 1.0 section 2.2: most control characters, surrogates, two that are none."""


def legal(text: str) -> str:
    """`text` with every other character as its escape: a colour of a log comes out as `\\x1b[31m`."""
    return _ILLEGAL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
