"""Owns the public-content check: what must not leave this machine is taken out of a text before it is printed.

Taken out are home paths, user and host names, IP and MAC addresses, and the values of environment variables. What the
run itself calls things (`keep`) is public: a variable FIX=pad-clear does not blot `pad-clear` out of a report.
"""

import getpass
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_address

SHORTEST_VALUE = 8
"""Values of environment variables are looked for from this length on; those of secret-looking ones from half of it."""

_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|APIKEY|CREDENTIAL|COOKIE|(?:^|_)(?:KEY|AUTH|PASS)(?:_|$)", re.IGNORECASE
)
_COMMON_NAMES = {"root", "user", "users", "runner", "ubuntu", "nobody", "localhost", "home", "admin"}
_HOME = re.compile(r"(?<![\w.-])(?:/(?:\w+/)*(?:home|Users)/(?P<user>\w(?:[\w.-]*\w)?)|/root(?![\w.-]))")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(?:%\w+)?(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])")
_IN_USE = [IPv6Network(text) for text in ("2000::/3", "fc00::/7", "fe80::/10", "ff00::/8", "::1/128")]
"""Others are not given to machines; `c10d::add` is an operator."""


@dataclass(frozen=True)
class Machine:
    """What a text could give away about where it was made. `values` maps environment variables to their values."""

    home: str
    users: frozenset[str]
    hosts: frozenset[str]
    values: Mapping[str, str]


@dataclass
class Cleaned:
    """A text without what is private, and how much of each kind was taken out."""

    text: str
    removed: Counter[str] = field(default_factory=Counter)


def this_machine() -> Machine:
    """The machine and the user that this process runs as."""
    # Neither raises nor finds anything for a user without an entry in the user database, as in many containers.
    home, users = os.path.expanduser("~"), set[str]()
    with suppress(KeyError, OSError):
        users.add(getpass.getuser())
    return Machine(home, frozenset(users), frozenset({platform.node()}), dict(os.environ))


def make_public(text: str, machine: Machine, keep: Collection[str] = ()) -> Cleaned:
    """`text` with everything private replaced by a word for its kind; names in `keep` stay."""
    cleaned = Cleaned(text)
    users = set(machine.users) | {found["user"] or "" for found in _HOME.finditer(text)}

    def take_out(pattern: re.Pattern[str], kind: str, replacement: str, is_private: Callable[[str], bool]) -> None:
        def replace(found: re.Match[str]) -> str:
            if found[0] in keep or not is_private(found[0]):
                return found[0]
            cleaned.removed[kind] += 1
            return replacement

        cleaned.text = pattern.sub(replace, cleaned.text)

    for name, value in _telling(machine, keep):
        take_out(re.compile(re.escape(value)), "environment value", f"${name}", lambda found: True)
    if len(machine.home) > 1:
        take_out(re.compile(re.escape(machine.home) + r"(?![\w.-])"), "home path", "~", lambda found: True)
    take_out(_HOME, "home path", "~", lambda found: True)
    for host in _names(machine.hosts, keep):
        take_out(_word(host, r"(?:\.[A-Za-z][\w-]*)*"), "host name", "<host>", lambda found: True)
    for user in _names(users, keep):
        take_out(_word(user), "user name", "<user>", lambda found: True)
    take_out(_MAC, "address", "<address>", lambda found: True)
    take_out(_IPV4, "address", "<address>", _is_address)
    take_out(_IPV6, "address", "<address>", _is_address)
    return cleaned


def _telling(machine: Machine, keep: Collection[str]) -> Iterator[tuple[str, str]]:
    """The values to look for, longest first, so that a path is not cut short by the home that it lies in.

    A plain word or number tells nothing, unless its variable's name says that it is a secret.
    """
    named = {machine.home, *machine.users, *machine.hosts, *keep}
    for name, value in sorted(machine.values.items(), key=lambda item: (-len(item[1]), item[0])):
        is_secret = _SECRET.search(name) is not None
        if value in named or len(value) < (SHORTEST_VALUE // 2 if is_secret else SHORTEST_VALUE):
            continue
        if is_secret or not re.fullmatch(r"[A-Za-z]+|[\d.,]+", value):
            yield name, value


def _names(names: Collection[str], keep: Collection[str]) -> Iterator[str]:
    """Names that point to somebody; of a host its first label too."""
    every = {part for name in names for part in (name, name.partition(".")[0])}
    yield from sorted(every - _COMMON_NAMES - set(keep) - {""}, key=lambda name: (-len(name), name))


def _word(name: str, tail: str = "") -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}{tail}(?![A-Za-z0-9])")


def _is_address(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not isinstance(address, IPv6Address) or any(address in network for network in _IN_USE)
