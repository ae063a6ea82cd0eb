"""Another's shim, as far as its fifos go: opens them in containerd's order and does what it is told, line by line.

Called with the run directory and which of `in`, `err` there are.
"""

import os
import sys
import threading

LINE_BYTES = 200


class Side:
    """`keep`: the other end of each fifo, as containerd-shim-runc-v2 keeps it: no EPIPE, and no end of the input."""

    def __init__(self, directory: str, has: list[str]) -> None:
        self.directory = directory
        self.has = has
        self.fds: dict[str, int] = {}
        self.keep: dict[str, int] = {}

    def open(self) -> None:
        for name in ("out", *(["err"] if "err" in self.has else [])):
            self.fds[name] = os.open(f"{self.directory}/std{name}", os.O_WRONLY)
            self.keep[name] = os.open(f"{self.directory}/std{name}", os.O_RDONLY)
        if "in" in self.has:
            self.fds["in"] = os.open(f"{self.directory}/stdin", os.O_RDONLY | os.O_NONBLOCK)
            self.keep["in"] = os.open(f"{self.directory}/stdin", os.O_WRONLY)
            os.set_blocking(self.fds["in"], True)

    def say(self, name: str, text: str) -> None:
        self.write(name, bytes.fromhex(text))

    def count(self, name: str, first: str, last: str) -> None:
        for number in range(int(first), int(last) + 1):
            self.write(name, b"%0*d\n" % (LINE_BYTES - 1, number))

    def write(self, name: str, data: bytes) -> None:
        while data:
            data = data[os.write(self.fds[name], data) :]

    def echo(self) -> None:
        """All input, and with its end everything is over."""
        threading.Thread(target=self._echo, daemon=True).start()

    def _echo(self) -> None:
        while data := os.read(self.fds["in"], 65536):
            self.write("out", data)
        os._exit(0)

    def release(self) -> None:
        """CloseIO."""
        os.close(self.keep.pop("in"))

    def close(self, *names: str) -> None:
        for name in names:
            for ends in (self.fds, self.keep):
                if name in ends:
                    os.close(ends.pop(name))


def main() -> None:
    side = Side(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        verb, *words = line.split()
        getattr(side, verb)(*words)
        print("done", flush=True)


if __name__ == "__main__":
    main()
