"""Attributes with user ids in them, as a container with users of its own has them and as the machine does: access
lists, and the capabilities of a file, which count in the namespace of one user. Pure.

Linux, include/uapi/linux/posix_acl_xattr.h (a version, then entries of tag, rights and id) and capability.h (version 2
of vfs_cap_data, and version 3, which has the id of that user).
"""

import struct
from collections.abc import Callable

from supervisor.model.idranges import IdRange

CAPABILITY = "security.capability"
ACLS = ("system.posix_acl_access", "system.posix_acl_default")
NAMES = frozenset({CAPABILITY, *ACLS})
OF_ALL, OF_ONE = 0x02000000, 0x03000000  # of capabilities; the lowest bit says whether they are effective at once
VERSION = 0xFF000000
SIZE_OF_ALL, SIZE_OF_ONE = 20, 24
ACL_HEADER, ACL_ENTRY = 4, struct.Struct("<HHI")
OF_A_USER, OF_A_GROUP = 0x02, 0x08  # the tags of entries whose id counts


def inside(name: str, value: bytes, ids: IdRange) -> bytes:
    """Return the attribute's value in the container, where an image has it, too."""
    if name in ACLS:
        return _with_ids(value, ids.inside)
    if name != CAPABILITY or len(value) != SIZE_OF_ONE or _magic(value) & VERSION != OF_ONE:
        return value
    (user,) = struct.unpack_from("<I", value, SIZE_OF_ALL)
    if user != ids.first:
        return value
    return struct.pack("<I", _magic(value) & ~VERSION | OF_ALL) + value[4:SIZE_OF_ALL]


def outside(name: str, value: bytes, ids: IdRange) -> bytes:
    """Return the machine's value for one of the container."""
    if name in ACLS:
        return _with_ids(value, ids.outside)
    if name != CAPABILITY or len(value) != SIZE_OF_ALL or _magic(value) & VERSION != OF_ALL:
        return value
    return struct.pack("<I", _magic(value) & ~VERSION | OF_ONE) + value[4:] + struct.pack("<I", ids.first)


def _with_ids(acl: bytes, change: Callable[[int], int]) -> bytes:
    if len(acl) < ACL_HEADER or (len(acl) - ACL_HEADER) % ACL_ENTRY.size:
        return acl
    changed = (
        ACL_ENTRY.pack(tag, rights, change(id) if tag in (OF_A_USER, OF_A_GROUP) else id)
        for tag, rights, id in ACL_ENTRY.iter_unpack(acl[ACL_HEADER:])
    )
    return acl[:ACL_HEADER] + b"".join(changed)


def _magic(value: bytes) -> int:
    (magic,) = struct.unpack_from("<I", value)
    return int(magic)
