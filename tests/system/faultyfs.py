"""A file system that fails on command: a directory shown through FUSE, by the kernel's own protocol (fuse(4),
include/uapi/linux/fuse.h), without a library.

    python -m tests.system.faultyfs MOUNTPOINT DIRECTORY RULES

RULES is a file, read at each request: a line `OPERATION NAMES ERRNO` makes that operation (read, write, fsync,
fallocate, create; `*`: every one, of whatever name) fail for files whose name fits NAMES (fnmatch); with `stall` in
ERRNO's place it waits until the line is gone, with a number of seconds (`5s`) for so long. With a number behind it the
line is for what that thread asks.
"""

import contextlib
import errno
import fnmatch
import os
import pathlib
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shim import native

IN, OUT = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
ENTRY, ATTR_OUT, OPEN_OUT = struct.Struct("<4Q2I"), struct.Struct("<QII"), struct.Struct("<QII")
MOST_BYTES, DIRECT_IO = 131072, 1
ROOT, INIT = 1, 26


class Failed(OSError):
    """What the rules want."""


@dataclass
class Server:
    directory: str
    rules: pathlib.Path
    fd: int
    paths: dict[int, str] = field(default_factory=lambda: {ROOT: ""})
    ids: dict[str, int] = field(default_factory=lambda: {"": ROOT})
    last: int = ROOT
    names: dict[int, str] = field(default_factory=dict)  # of open files
    lists: dict[int, list[bytes]] = field(default_factory=dict)  # of open directories

    def forever(self) -> None:
        while True:
            try:
                request = os.read(self.fd, MOST_BYTES + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                raise
            _, opcode, unique, node, _, _, thread, *_ = IN.unpack_from(request)
            body = request[IN.size :]
            if opcode in (2, 42, 36):  # forget, batch forget, interrupt: no answer
                continue
            name = self._named(opcode, node, body)
            if (rule := self._rule(opcode, name, thread)) == "stall" or delay(rule):
                args = (opcode, unique, node, body, name, thread)
                threading.Thread(target=self._answer, args=args, daemon=True).start()
            else:
                self._answer(opcode, unique, node, body, name, thread)

    def _answer(self, opcode: int, unique: int, node: int, body: bytes, name: str, thread: int) -> None:
        call = CALLS.get(opcode)
        try:
            while (rule := self._rule(opcode, name, thread)) == "stall":
                time.sleep(0.01)
            if seconds := delay(rule):
                time.sleep(seconds)
            elif rule:
                raise Failed(getattr(errno, rule), rule)
            if call is None:
                raise Failed(errno.ENOSYS, "unknown")
            data, error = call(self, node, body), 0
        except OSError as refused:
            data, error = b"", refused.errno or errno.EIO
        with contextlib.suppress(FileNotFoundError):  # whoever asked was killed
            os.write(self.fd, OUT.pack(OUT.size + len(data), -error, unique) + data)

    def _named(self, opcode: int, node: int, body: bytes) -> str:
        if opcode in (15, 16, 20, 43):
            return self.names.get(struct.unpack_from("<Q", body)[0], "")
        if opcode == 35:
            return body[16:].split(b"\0")[0].decode(errors="replace")
        return ""

    def _rule(self, opcode: int, name: str, thread: int) -> str:
        operation = {15: "read", 16: "write", 20: "fsync", 43: "fallocate", 35: "create"}.get(opcode)
        if opcode == INIT:
            return ""
        try:
            lines = self.rules.read_text().splitlines()
        except FileNotFoundError:
            return ""
        for line in lines:
            wanted, names, what, *threads = line.split()
            fits = wanted == "*" or (wanted == operation and fnmatch.fnmatchcase(name, names))
            if fits and (not threads or str(thread) in threads):
                return what
        return ""

    # -- names

    def path(self, node: int) -> str:
        return f"{self.directory}/{self.paths[node]}"

    def below(self, node: int, name: bytes) -> str:
        """The path below the directory."""
        return f"{self.paths[node]}/{os.fsdecode(name)}".lstrip("/")

    def entry(self, relative: str) -> bytes:
        found = os.lstat(f"{self.directory}/{relative}")
        if relative not in self.ids:
            self.last += 1
            self.ids[relative], self.paths[self.last] = self.last, relative
        node = self.ids[relative]
        return ENTRY.pack(node, 0, 0, 0, 0, 0) + attributes(found, node)

    def gone(self, relative: str) -> None:
        self.ids.pop(relative, None)

    # -- requests, by the names of fuse.h

    def init(self, _: int, body: bytes) -> bytes:
        _, minor, ahead, _ = struct.unpack_from("<4I", body)
        return struct.pack("<4I2H4I", 7, min(minor, 31), ahead, 0, 16, 12, MOST_BYTES, 1, 0, 0) + bytes(28)

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(self.below(node, body.rstrip(b"\0")))

    def getattr(self, node: int, body: bytes) -> bytes:
        flags, _, fh = struct.unpack_from("<IIQ", body)
        found = os.fstat(fh) if flags & 1 else os.lstat(self.path(node))
        return ATTR_OUT.pack(0, 0, 0) + attributes(found, node)

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, fh, size, _, atime, mtime, _, *rest = struct.unpack_from("<IIQQQQQQ8I", body)
        mode, uid, gid = rest[3], rest[5], rest[6]
        path = self.path(node)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1, follow_symlinks=False)
        if valid & 8:
            os.truncate(fh if valid & 64 else path, size)
        if valid & 48:
            found, now = os.lstat(path), time.time()
            access = now if valid & 128 else atime if valid & 16 else found.st_atime
            os.utime(path, (access, now if valid & 256 else mtime if valid & 32 else found.st_mtime))
        found = os.fstat(fh) if valid & 64 else os.lstat(path)
        return ATTR_OUT.pack(0, 0, 0) + attributes(found, node)

    def readlink(self, node: int, _: bytes) -> bytes:
        return os.fsencode(os.readlink(self.path(node)))

    def symlink(self, node: int, body: bytes) -> bytes:
        name, target, _ = body.split(b"\0", 2)
        relative = self.below(node, name)
        os.symlink(target, f"{self.directory}/{relative}")
        return self.entry(relative)

    def mknod(self, node: int, body: bytes) -> bytes:
        mode, device, _, _ = struct.unpack_from("<4I", body)
        relative = self.below(node, body[16:].rstrip(b"\0"))
        os.mknod(f"{self.directory}/{relative}", mode, device)
        return self.entry(relative)

    def mkdir(self, node: int, body: bytes) -> bytes:
        relative = self.below(node, body[8:].rstrip(b"\0"))
        os.mkdir(f"{self.directory}/{relative}", struct.unpack_from("<I", body)[0])
        return self.entry(relative)

    def unlink(self, node: int, body: bytes) -> bytes:
        relative = self.below(node, body.rstrip(b"\0"))
        os.unlink(f"{self.directory}/{relative}")
        self.gone(relative)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        relative = self.below(node, body.rstrip(b"\0"))
        os.rmdir(f"{self.directory}/{relative}")
        self.gone(relative)
        return b""

    def rename(self, node: int, body: bytes, skip: int = 8) -> bytes:
        old, new, _ = body[skip:].split(b"\0", 2)
        source, target = self.below(node, old), self.below(struct.unpack_from("<Q", body)[0], new)
        os.rename(f"{self.directory}/{source}", f"{self.directory}/{target}")
        self.gone(target)
        for path in [path for path in self.ids if path == source or path.startswith(f"{source}/")]:
            moved = target + path[len(source) :]
            self.ids[moved] = self.ids.pop(path)
            self.paths[self.ids[moved]] = moved
        return b""

    def rename2(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:
            raise Failed(errno.EINVAL, "flags")
        return self.rename(node, body, 16)

    def open(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOCTTY)
        fh = os.open(self.path(node), flags)
        return self._opened(fh, self.paths[node])

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode, _, _ = struct.unpack_from("<4I", body)
        relative = self.below(node, body[16:].rstrip(b"\0"))
        fh = os.open(f"{self.directory}/{relative}", flags | os.O_CREAT, mode)
        return self.entry(relative) + self._opened(fh, relative)

    def _opened(self, fh: int, relative: str) -> bytes:
        """SQLite maps its files; nothing else is in the kernel's cache, so that each read comes here."""
        self.names[fh] = os.path.basename(relative)
        return OPEN_OUT.pack(fh, 0 if ".db" in relative else DIRECT_IO, 0)

    def read(self, _: int, body: bytes) -> bytes:
        fh, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(fh, size, offset)

    def write(self, _: int, body: bytes) -> bytes:
        fh, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(fh, body[40 : 40 + size], offset), 0)

    def statfs(self, _: int, __: bytes) -> bytes:
        f = os.statvfs(self.directory)
        sizes = (f.f_blocks, f.f_bfree, f.f_bavail, f.f_files, f.f_ffree)
        return struct.pack("<5Q4I", *sizes, f.f_bsize, f.f_namemax, f.f_frsize, 0) + bytes(24)

    def release(self, _: int, body: bytes) -> bytes:
        fh = struct.unpack_from("<Q", body)[0]
        self.names.pop(fh, None)
        os.close(fh)
        return b""

    def nothing(self, _: int, __: bytes) -> bytes:
        return b""

    def fsync(self, _: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def fallocate(self, _: int, body: bytes) -> bytes:
        fh, offset, length, mode = struct.unpack_from("<QQQI", body)
        if mode:
            raise Failed(errno.EOPNOTSUPP, "mode")
        os.posix_fallocate(fh, offset, length)
        return b""

    def opendir(self, node: int, _: bytes) -> bytes:
        self.last += 1
        self.lists[self.last] = [
            struct.pack("<QQII", at + 2, at + 1, len(raw), 0) + raw + bytes(-len(raw) % 8)
            for at, raw in enumerate([b".", b"..", *map(os.fsencode, os.listdir(self.path(node)))])
        ]
        return OPEN_OUT.pack(self.last, 0, 0)

    def readdir(self, _: int, body: bytes) -> bytes:
        fh, offset, size = struct.unpack_from("<QQI", body)
        data = b""
        for each in self.lists[fh][offset:]:
            if len(data) + len(each) > size:
                break
            data += each
        return data

    def releasedir(self, _: int, body: bytes) -> bytes:
        del self.lists[struct.unpack_from("<Q", body)[0]]
        return b""


CALLS: dict[int, Callable[[Server, int, bytes], bytes]] = {
    1: Server.lookup,
    3: Server.getattr,
    4: Server.setattr,
    5: Server.readlink,
    6: Server.symlink,
    8: Server.mknod,
    9: Server.mkdir,
    10: Server.unlink,
    11: Server.rmdir,
    12: Server.rename,
    14: Server.open,
    15: Server.read,
    16: Server.write,
    17: Server.statfs,
    18: Server.release,
    20: Server.fsync,
    25: Server.nothing,  # flush
    INIT: Server.init,
    27: Server.opendir,
    28: Server.readdir,
    29: Server.releasedir,
    30: Server.nothing,  # fsyncdir
    35: Server.create,
    43: Server.fallocate,
    45: Server.rename2,
}


def delay(rule: str) -> float:
    """Seconds; 0 for a rule that is no delay."""
    return float(rule[:-1]) if rule.endswith("s") and rule[:-1].replace(".", "").isdigit() else 0.0


def attributes(found: os.stat_result, node: int) -> bytes:
    times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
    whole, parts = [ns // 10**9 for ns in times], [ns % 10**9 for ns in times]
    who = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, 4096, 0)
    return ATTR.pack(node, found.st_size, found.st_blocks, *whole, *parts, *who)


@dataclass
class Faulty:
    """One that is mounted."""

    path: pathlib.Path
    rules: pathlib.Path

    @contextlib.contextmanager
    def failing(self, *lines: str) -> Iterator[None]:
        """For the length of the block these rules are in force."""
        new = self.rules.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.rules)
        try:
            yield
        finally:
            self.rules.unlink()


@contextlib.contextmanager
def mounted(base: pathlib.Path) -> Iterator[Faulty]:
    """In `base`, which holds its content, too."""
    path, directory, rules = base / "m", base / "content", base / "rules"
    path.mkdir()
    directory.mkdir()
    words = [sys.executable, "-m", "tests.system.faultyfs", str(path), str(directory), str(rules)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=pathlib.Path(__file__).resolve().parents[2])
    try:
        assert server.stdout is not None and server.stdout.readline() == b"mounted\n"
        yield Faulty(path, rules)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], timeout=30)
        server.kill()
        server.communicate(timeout=30)


def main(mountpoint: str, directory: str, rules: str) -> None:
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    os.umask(0)
    native.mount("faulty", mountpoint, "fuse", 0, f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other")
    print("mounted", flush=True)
    Server(directory, pathlib.Path(rules), fd).forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
