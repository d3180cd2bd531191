"""Patterns with `*`, `?` and `[...]` as regular expressions that Python and Java read alike.

Spark gets the pattern too, so `fnmatch.translate` will not do: it does not escape a `[` inside a set, as in
`[a[]`, which begins a nested set in Java, and its `\\Z` means something else there.
"""

import re

_WILDCARD = re.compile(r"[*?\[]")


def glob_pattern(glob: str) -> str:
    """A regular expression that matches whole names.

    Its groups are atomic (`(?>`), which bounds the matching time however many stars there are.
    """
    first, *others = _between_stars(glob)
    if not others:
        return f"(?s:{first})"
    middle = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return f"(?s:{first}{middle}.*{others[-1]})"


def literal_prefix(glob: str) -> str:
    """The prefix that all matching names have."""
    return _WILDCARD.split(glob, maxsplit=1)[0]


def _between_stars(glob: str) -> list[str]:
    """The parts between the stars of a glob, as regular expressions."""
    parts = [""]
    place = 0
    while place < len(glob):
        end = _set_end(glob, place)
        if end is not None:
            parts[-1] += _set_pattern(glob[place + 1 : end])
            place = end
        elif glob[place] == "*":
            parts.append("")
        else:
            parts[-1] += "." if glob[place] == "?" else _literal(glob[place])
        place += 1
    return parts


def _set_end(glob: str, place: int) -> int | None:
    """Where the set that begins here ends; None if no set begins here or it is not closed."""
    if glob[place] != "[":
        return None
    begin = place + 2 if glob[place + 1 : place + 2] == "!" else place + 1
    end = glob.find("]", begin + 1)
    return end if end >= 0 else None


def _set_pattern(members: str) -> str:
    """A regular expression for a set, given the text between its brackets."""
    negated = members.startswith("!")
    members = members.removeprefix("!")
    parts = []
    place = 0
    while place < len(members):
        first, dash, last = members[place], members[place + 1 : place + 2], members[place + 2 : place + 3]
        if dash != "-" or not last:
            parts.append(_literal(first))
            place += 1
            continue
        if first <= last:
            parts.append(f"{_literal(first)}-{_literal(last)}")
        place += 3
    if not parts:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _literal(character: str) -> str:
    return f"\\{character}" if character.isascii() and not character.isalnum() else character
