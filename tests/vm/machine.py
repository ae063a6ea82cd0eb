"""A machine that QEMU runs: booted, given commands over a virtio port, and cut off from its power.

In software, its clock counts instructions while it works (`-icount`), so that a host with little time for it makes it
take longer, and not look slow to itself: no limit in it passes because the host is busy. Its limits here are of QEMU's
processor time for the same reason.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.vm import image

BOOT_SECONDS = 240.0  # of QEMU's processor time; some 40 are needed
COMMAND_SECONDS = 1800.0  # likewise
IDLE_SECONDS = 7200.0  # by the clock, for anything: a machine that stands still uses no processor time
OFF_SECONDS = 300.0
STEP_SECONDS = 0.2
PROBE_SECONDS = 4.0  # of QEMU's processor time, to see a kernel panic; with KVM it needs one
ANSWERED = "answered"  # a file of its directory: what a load in the machine has been answered since it was booted
SERIAL_BYTES = 4000  # of the machine's last words

NO_APPARMOR = "apparmor=0"
# What is not needed and costs much in software (docs/vm.md has the figures). The units' own limits are raised beyond
# any that a check could come to.
KERNEL_WORDS = (
    *("console=ttyS0", "root=/dev/nvme0n1", "rw", "quiet", "panic=-1"),
    *("mitigations=off", "init_on_alloc=0", "norandmaps", "nowatchdog", "audit=0", NO_APPARMOR),
    *("systemd.firstboot=no", "systemd.default_timeout_start_sec=1800", "systemd.default_device_timeout_sec=1800"),
)


class By(StrEnum):
    """What runs the machine's instructions."""

    SOFTWARE = "software emulation"
    KVM = "KVM"


WORDS_OF = {
    By.SOFTWARE: ("-accel", "tcg,thread=single,tb-size=1024", "-icount", "shift=0,sleep=on", "-cpu", "qemu64"),
    By.KVM: ("-accel", "kvm", "-cpu", "host"),
}
NICELY = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "10")  # it ends with these checks, however they end
ALONE = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")


class HasEnded(Exception):
    """QEMU has ended, or the machine's kernel panicked, or it used up its time; with its last words."""


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    status: int
    out: str
    err: str


@dataclass
class Machine:
    """One disk, its kernel, and QEMU while it runs."""

    directory: pathlib.Path
    kernel: pathlib.Path
    by: By = By.SOFTWARE
    words: tuple[str, ...] = KERNEL_WORDS  # for its next boot
    qemu: "subprocess.Popen[bytes] | None" = None
    port: socket.socket | None = None
    kept: bytes = b""
    asked: int = 0
    booted: list[tuple[float, float]] = field(default_factory=list)

    def boot(self) -> "Machine":
        """Return when the machine is up, all its services are, and it answers. Raises HasEnded."""
        began = time.monotonic()
        path = self.directory / "port.sock"
        path.unlink(missing_ok=True)
        self.kept = b""
        with (self.directory / "qemu.log").open("ab") as log:
            self.qemu = subprocess.Popen(self._words(path), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.port = self._connected(path)
        self.run("systemctl", "is-system-running", "--wait", seconds=BOOT_SECONDS)
        self.booted.append((time.monotonic() - began, self._used()))
        return self

    def _words(self, port: pathlib.Path) -> list[str]:
        return [
            *(*NICELY, "qemu-system-x86_64", "-M", "q35", *WORDS_OF[self.by], "-m", "1536", "-smp", "1", *ALONE),
            *("-serial", f"file:{self.directory}/serial.log", "-kernel", str(self.kernel)),
            *("-append", " ".join(self.words)),
            # writeback: what the guest has flushed is with the host, and what it has not is lost with QEMU.
            *("-drive", f"file={self.directory}/disk.img,if=none,id=disk,format=raw,cache=writeback"),
            *("-device", "nvme,drive=disk,serial=exitd", "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=port,path={port},server=on,wait=off"),
            *("-device", "virtserialport,chardev=port,name=exitd.runner.0"),
            # What has left the machine by it is in the file, also when the power fails.
            *("-chardev", f"file,id=answered,path={self.directory}/{ANSWERED}"),
            *("-device", "virtserialport,chardev=answered,name=exitd.answered.0"),
        ]

    def _connected(self, path: pathlib.Path) -> socket.socket:
        """QEMU opens the port before the machine's first instruction."""
        until = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < until:
            port = socket.socket(socket.AF_UNIX)
            try:
                port.connect(str(path))
                return port
            except (FileNotFoundError, ConnectionRefusedError):
                port.close()
            assert self.qemu is not None
            if self.qemu.poll() is not None:
                break
            time.sleep(STEP_SECONDS)
        raise self._ended("QEMU opened no port")

    def _used(self) -> float:
        """Seconds of processor time that QEMU has used so far."""
        assert self.qemu is not None
        return used_by(self.qemu.pid)

    def _ended(self, why: str) -> HasEnded:
        """Its directory is removed, so its last words are in the error."""
        logs = [self.directory / name for name in ("qemu.log", "serial.log")]
        words = [log.read_text(errors="replace")[-SERIAL_BYTES:] for log in logs if log.exists()]
        return HasEnded("\n".join([why, *words]))

    def run(self, *words: str, seconds: float = COMMAND_SECONDS) -> Done:
        """A command in the machine, with a limit of QEMU's processor time. Raises HasEnded."""
        assert self.port is not None
        self.asked += 1
        order = {"id": self.asked, "argv": words, "seconds": seconds}
        self.port.settimeout(IDLE_SECONDS)
        self.port.sendall(json.dumps(order).encode() + b"\n")
        until, used_until = time.monotonic() + IDLE_SECONDS, self._used() + seconds
        while True:
            line, newline, rest = self.kept.partition(b"\n")
            if newline:
                self.kept = rest
                answer = json.loads(line)
                if answer["id"] == self.asked:
                    return Done(answer["status"], answer["out"], answer["err"])
                continue
            if self._used() > used_until or time.monotonic() > until:
                raise self._ended(f"no answer in time: {words}")
            self._read()

    def _read(self) -> None:
        assert self.port is not None
        self.port.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            got = self.port.recv(65536)
            if not got:
                raise self._ended("the machine has ended")
            self.kept += got

    def say(self, *words: str, seconds: float = COMMAND_SECONDS) -> str:
        """The output of a command that must succeed."""
        done = self.run(*words, seconds=seconds)
        assert done.status == 0, f"{words}: {done}"
        return done.out

    def kernels_source(self) -> str:
        """Which word of this kernel's an end without shim and keeper has."""
        major, minor = self.say("uname", "-r").split(".")[:2]
        return "pidfd" if (int(major), int(minor)) >= (6, 15) else "procevents"

    def python(self, script: str, *words: str) -> list[dict[str, object]]:
        """What a script of tests/vm/guest prints: a line of JSON each."""
        out = self.say("/opt/exitd/bin/python", f"/opt/tree/tests/vm/guest/{script}", *words)
        return [json.loads(line) for line in out.splitlines()]

    def answered(self) -> list[dict[str, object]]:
        """What a load in the machine has written to the port for answers, a line of JSON each, since the last boot."""
        lines = (self.directory / ANSWERED).read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]  # behind the last newline: nothing, or half a line

    def console(self) -> str:
        """What the machine has written to its console since it was booted."""
        return (self.directory / "serial.log").read_text(errors="replace").replace("\r", "")

    def go_down(self, *words: str) -> float:
        """Return when the machine has gone down by a command of its own, with QEMU's processor time for it. Raises
        HasEnded when it does not."""
        assert self.port is not None and self.qemu is not None
        began, until = self._used(), time.monotonic() + IDLE_SECONDS
        self.port.sendall(json.dumps({"id": 0, "argv": words, "seconds": COMMAND_SECONDS}).encode() + b"\n")
        while time.monotonic() < until and (used := self._used() - began) < COMMAND_SECONDS:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.qemu.wait(STEP_SECONDS)
                self._closed()
                return used
        raise self._ended(f"still up after {words}")

    def cut(self) -> None:
        """The power fails."""
        assert self.qemu is not None
        self.qemu.send_signal(signal.SIGKILL)
        self.qemu.wait(OFF_SECONDS)
        self._closed()

    def _closed(self) -> None:
        if self.port is not None:
            self.port.close()
        self.qemu = self.port = None

    def end(self) -> None:
        if self.qemu is not None:
            self.cut()


def used_by(pid: int) -> float:
    """Return the seconds of processor time that the process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kvm_works(kernel: pathlib.Path) -> bool:
    """Whether KVM runs this kernel: it has no root file system, panics, and QEMU ends by that. /dev/kvm alone proves
    nothing: one that is for paravirtualized kernels only opens as well, and this kernel gets nowhere on it."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with tempfile.TemporaryDirectory(prefix="exitd-vm-kvm-") as directory:
        serial = pathlib.Path(directory, "serial.log")
        words = (*NICELY, "qemu-system-x86_64", "-M", "q35", *WORDS_OF[By.KVM], "-m", "256", "-smp", "1", *ALONE)
        boot = ("-serial", f"file:{serial}", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1")
        none = subprocess.DEVNULL
        with subprocess.Popen([*words, *boot], stdin=none, stdout=none, stderr=none) as qemu:
            try:
                until = time.monotonic() + OFF_SECONDS
                while qemu.poll() is None and used_by(qemu.pid) < PROBE_SECONDS and time.monotonic() < until:
                    time.sleep(STEP_SECONDS)
            finally:
                qemu.kill()
        return serial.exists() and "Kernel panic" in serial.read_text(errors="replace")


@contextlib.contextmanager
def machine(kind: image.Kind = image.Kind.PLAIN, kvm: bool = False) -> Iterator[Machine]:
    """A machine that runs, with a copy of the disk of this kind, gone after the block; by KVM, if asked for and where
    that works."""
    disk, kernel = image.disk(kind)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="exitd-vm-", dir=image.cache()))
    try:
        subprocess.run(["cp", "--sparse=always", disk, directory / "disk.img"], check=True, timeout=600)
        # A name of its own, for its next boots: checks of another tree that begin meanwhile remove this tree's disk.
        (own := directory / "vmlinuz").hardlink_to(kernel)
        made = Machine(directory, own, By.KVM if kvm and kvm_works(own) else By.SOFTWARE)
        try:
            yield made.boot()
        finally:
            made.end()
    finally:
        shutil.rmtree(directory)
