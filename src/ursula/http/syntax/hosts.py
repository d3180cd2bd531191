"""The `Host` header, checked before any of it goes into a URL that the server sends."""

import re
from functools import lru_cache
from ipaddress import IPv6Address

HOST_BYTES_MAX = 255
PORT_MAX = 65535

_HOST = re.compile(
    r"""
    (?: \[ (?P<ipv6> [0-9A-Fa-f:.]+ ) \] | (?: [A-Za-z0-9._~!$&'()*+,;=-] | %[0-9A-Fa-f]{2} )+ )
    (?: : (?P<port> [0-9]{1,5} ) )?
    """,
    re.VERBOSE,
)
"""A name or an address as in RFC 3986, section 3.2.2, but never empty; an IPv4 address matches as a name."""


@lru_cache(maxsize=256)
def is_valid_host(text: str) -> bool:
    """Whether this may follow `http://` in a URL: a name or an address, optionally with a port."""
    found = _HOST.fullmatch(text) if len(text) <= HOST_BYTES_MAX else None
    if found is None or int(found["port"] or 0) > PORT_MAX:
        return False
    try:
        return found["ipv6"] is None or bool(IPv6Address(found["ipv6"]))
    except ValueError:
        return False
