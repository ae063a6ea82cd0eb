"""As much of HTTP/1.1 as a probe needs: a request, and the status of the answer. Pure.

RFC 9112; what counts as good is Kubernetes' (HTTPGetAction): 200 to 399.
"""

import re

from shim.frozen import frozen, mutable
from shim.patterns import LatePattern
from supervisor.model.values import HttpTarget

MOST_HEAD_BYTES = 16 << 10
_STATUS = LatePattern(r"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?", re.ASCII | re.DOTALL)


def request(target: HttpTarget, address: str) -> bytes:
    """Return the bytes to send. A header of the caller's takes the place of exitd's own of that name."""
    host = f"[{address}]" if ":" in address else address
    own = {"host": f"{host}:{target.port}", "user-agent": "exitd-probe", "accept": "*/*"}
    asked = {name.lower() for name, _ in target.headers}
    lines = [f"GET {target.path} HTTP/1.1"]
    lines += [f"{name.title()}: {value}" for name, value in own.items() if name not in asked]
    lines += [f"{name}: {value}" for name, value in target.headers if name.lower() != "connection"]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("ascii")


@frozen
class StatusFound:
    """The answer's status."""

    code: int

    @property
    def is_good(self) -> bool:
        return 200 <= self.code <= 399


@frozen
class NoHttp:
    """What came is no answer of HTTP; `why` is for people."""

    why: str


@mutable
class StatusReader:
    """Takes the bytes of an answer, in any pieces, until the status is known. Informational answers (1xx) are passed
    over. `kept` has at most MOST_HEAD_BYTES."""

    kept: bytes = b""
    _from: int = 0  # where the head begins that is being read

    def feed(self, data: bytes) -> StatusFound | NoHttp | None:
        """Return what is known now; None: more is needed. No data: the end."""
        self.kept += data[: MOST_HEAD_BYTES - len(self.kept)]
        while True:
            line, end, _ = self.kept[self._from :].partition(b"\r\n")
            if not end:
                return self._incomplete(data)
            match = _STATUS.fullmatch(line.decode("latin-1"))
            if match is None:
                return NoHttp(f"no HTTP/1.1: {line[:80]!r}")
            code = int(match[1])
            if code >= 200 or code == 101:
                return StatusFound(code)
            head, end, _ = self.kept[self._from :].partition(b"\r\n\r\n")
            if not end:
                return self._incomplete(data)
            self._from += len(head) + len(end)

    def _incomplete(self, data: bytes) -> NoHttp | None:
        if len(self.kept) >= MOST_HEAD_BYTES:
            return NoHttp(f"no status in the first {MOST_HEAD_BYTES} bytes")
        return None if data else NoHttp("the connection was closed before there was a status")
