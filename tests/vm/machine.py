"""A machine that QEMU runs without KVM: booted, given commands over a virtio port, and cut off from its power."""

import contextlib
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.vm import image

BOOT_SECONDS = 900.0  # some 10 on a quiet machine of two cores
COMMAND_SECONDS = 900.0
OFF_SECONDS = 300.0
STEP_SECONDS = 0.2


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    status: int
    out: str
    err: str


@dataclass
class Machine:
    """One disk, and QEMU while it runs. Nothing of it is shared but the kernel's file."""

    directory: pathlib.Path
    kernel: pathlib.Path
    qemu: "subprocess.Popen[bytes] | None" = None
    port: socket.socket | None = None
    kept: bytes = b""
    asked: int = 0
    booted: list[float] = field(default_factory=list)

    def boot(self) -> "Machine":
        """Returns when the machine answers; its services may still be starting."""
        began = time.monotonic()
        path = self.directory / "port.sock"
        path.unlink(missing_ok=True)
        self.kept = b""
        with (self.directory / "qemu.log").open("ab") as log:
            self.qemu = subprocess.Popen(self._words(path), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.port = self._connected(path, began + BOOT_SECONDS)
        self.run("systemctl", "is-system-running", "--wait", seconds=BOOT_SECONDS)
        self.booted.append(time.monotonic() - began)
        return self

    def _words(self, port: pathlib.Path) -> list[str]:
        return [
            # One thread for both processors: with two, the machine's kernel has panicked under QEMU 7.2.
            *("nice", "-n", "10", "qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=single,tb-size=256"),
            *("-cpu", "qemu64", "-m", "1536", "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-no-reboot", "-serial", f"file:{self.directory}/serial.log", "-kernel", str(self.kernel)),
            *("-append", "console=ttyS0 root=/dev/nvme0n1 rw quiet panic=-1 systemd.firstboot=no"),
            # writeback: what the guest has flushed is with the host, and what it has not is lost with QEMU.
            *("-drive", f"file={self.directory}/disk.img,if=none,id=disk,format=raw,cache=writeback"),
            *("-device", "nvme,drive=disk,serial=exitd", "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=port,path={port},server=on,wait=off"),
            *("-device", "virtserialport,chardev=port,name=exitd.runner.0"),
        ]

    def _connected(self, path: pathlib.Path, until: float) -> socket.socket:
        port = socket.socket(socket.AF_UNIX)
        while True:
            assert self.qemu is not None and self.qemu.poll() is None, (self.directory / "qemu.log").read_text()
            assert time.monotonic() < until, "QEMU opened no port"
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                port.connect(str(path))
                return port
            time.sleep(STEP_SECONDS)

    def run(self, *words: str, seconds: float = COMMAND_SECONDS) -> Done:
        """A command in the machine. TimeoutError when there is no answer, ConnectionError when it has ended."""
        assert self.port is not None
        self.asked += 1
        order = {"id": self.asked, "argv": words, "seconds": seconds}
        self.port.settimeout(seconds + BOOT_SECONDS)
        self.port.sendall(json.dumps(order).encode() + b"\n")
        while True:
            line, newline, rest = self.kept.partition(b"\n")
            if newline:
                self.kept = rest
                answer = json.loads(line)
                if answer["id"] == self.asked:
                    return Done(answer["status"], answer["out"], answer["err"])
                continue
            got = self.port.recv(65536)
            if not got:
                raise ConnectionError(f"the machine has ended; see {self.directory}/serial.log")
            self.kept += got

    def say(self, *words: str, seconds: float = COMMAND_SECONDS) -> str:
        """The output of a command that must succeed."""
        done = self.run(*words, seconds=seconds)
        assert done.status == 0, f"{words}: {done}"
        return done.out

    def python(self, script: str, *words: str) -> list[dict[str, object]]:
        """What a script of tests/vm/guest prints: a line of JSON each."""
        out = self.say("/opt/exitd/bin/python", f"/opt/tree/tests/vm/guest/{script}", *words)
        return [json.loads(line) for line in out.splitlines()]

    def cut(self) -> None:
        """The power fails."""
        assert self.qemu is not None and self.port is not None
        self.qemu.send_signal(signal.SIGKILL)
        self.qemu.wait(OFF_SECONDS)
        self.port.close()
        self.qemu = self.port = None

    def end(self) -> None:
        if self.qemu is not None:
            self.cut()


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """A machine that runs, with a copy of the disk, gone after the block."""
    disk, kernel = image.disk()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-vm-", dir=image.cache()))
    try:
        subprocess.run(["cp", "--sparse=always", disk, directory / "disk.img"], check=True, timeout=600)
        made = Machine(directory, kernel)
        try:
            yield made.boot()
        finally:
            made.end()
    finally:
        shutil.rmtree(directory)
