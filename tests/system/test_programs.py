"""Ordinary programs work under what a container has by default: capabilities, seccomp profile, no new privileges."""

import pathlib
import shutil
import sys

import pytest

from tests.system import runtimes
from tests.system.exitctl import Cli

PACKAGE = r"""
cd /tmp && mkdir -p p/DEBIAN p/usr/share/exitd-try
cat >p/DEBIAN/control <<END
Package: exitd-try
Version: 1
Architecture: all
Maintainer: x <x@example.org>
Description: x
END
printf '#!/bin/sh\nchown 33:34 /usr/share/exitd-try\n' >p/DEBIAN/postinst && chmod 755 p/DEBIAN/postinst
dpkg-deb --root-owner-group --build p x.deb && apt-get install --yes --no-install-recommends ./x.deb || exit 1
dpkg-query --show --showformat '${Version} ${db:Status-Status} ' exitd-try && stat -c %u:%g /usr/share/exitd-try
"""
PYTHON = """
import asyncio, multiprocessing, os, signal, socket, sqlite3, subprocess, tempfile, threading

def square(number):
    return number * number

async def served():
    async def answer(reader, writer):
        writer.write(await reader.read(5))
        writer.close()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello")
        return await reader.read()

if __name__ == "__main__":
    threads = [threading.Thread(target=square, args=(n,)) for n in range(50)]
    [thread.start() for thread in threads] and [thread.join() for thread in threads]
    with multiprocessing.Pool(2) as pool:
        print(sum(pool.map(square, range(10))))
    with tempfile.TemporaryDirectory() as directory, sqlite3.connect(f"{directory}/db") as database:
        database.execute("pragma journal_mode=wal")
        print(database.execute("select sqlite_version() > '3'").fetchone()[0])
    print(asyncio.run(served()).decode())
    print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode, os.getrandom(3, os.GRND_NONBLOCK) != b"")
    pidfd = os.pidfd_open(os.fork() or os._exit(4))
    print(os.waitid(os.P_PIDFD, pidfd, os.WEXITED).si_status)
"""
# Without its capability, which a copy of the program does not have, ping(8) sends from a socket of its own.
PING = """
import os, shutil, socket, subprocess
shutil.copy(shutil.which("ping"), "/tmp/ping")
os.setgid(1000); os.setuid(1000)
subprocess.run(["/tmp/ping", "-4", "-n", "-c", "2", "-i", "0.2", "-W", "10", "127.0.0.1"], check=True)
with socket.create_server(("127.0.0.1", 80)):
    print("port 80")
"""
JAVA = """
import java.util.*;
import java.util.concurrent.*;

public class Try {
    public static void main(String[] words) throws Exception {
        var pool = Executors.newFixedThreadPool(8);
        var sums = new ArrayList<Future<Integer>>();
        for (int i = 0; i < 64; i++) {
            int number = i;
            sums.add(pool.submit(() -> number + new byte[1 << 18].length % 2));
        }
        int sum = 0;
        for (var each : sums) sum += each.get();
        pool.shutdown();
        System.gc();
        System.out.println(sum + " " + new ProcessBuilder("sh", "-c", "exit 7").start().waitFor());
    }
}
"""
BY_RUNTIME = pytest.mark.parametrize("runtime", ["runc", "crun"])


def run(cli: Cli, directory: pathlib.Path, *words: str, runtime: str = "runc") -> list[str]:
    """What it prints on the host's own files, `directory` at /in."""
    program = runtimes.program(runtime, directory)
    said = cli.run("--rm", "--runtime", program, "-v", f"{directory}:/in:ro", *words)
    assert said.code == 0, said
    return said.out.splitlines()


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this machine has another package manager")
def test_a_package_manager_installs_a_package(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "install").write_text(PACKAGE)
    assert run(cli, tmp_path, "sh", "/in/install")[-1] == "1 installed 33:34"


@BY_RUNTIME
def test_python_with_threads_processes_sockets_and_a_database(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    (tmp_path / "try.py").write_text(PYTHON)
    printed = run(cli, tmp_path, sys.executable, "/in/try.py", runtime=runtime)
    assert printed == ["285", "1", "hello", "-9 True", "4"]


def test_go_programs(cli: Cli, tmp_path: pathlib.Path) -> None:
    """runc and containerd: two that every machine of these tests has."""
    words = "cd /tmp && runc spec && grep -c ociVersion config.json && containerd config default | grep -c ^version"
    assert run(cli, tmp_path, "sh", "-c", words) == ["1", "1"]


def test_a_java_program(cli: Cli, tmp_path: pathlib.Path) -> None:
    (tmp_path / "Try.java").write_text(JAVA)
    assert run(cli, tmp_path, "java", "-Xmx64m", "/in/Try.java") == ["2016 7"]


@BY_RUNTIME
def test_strace_of_an_own_child(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    words = (
        "strace -f -qq -e trace=execve -o /tmp/calls sh -c '/bin/true; exit 3'; echo $? $(grep -c execve /tmp/calls)"
    )
    assert run(cli, tmp_path, "sh", "-c", words, runtime=runtime) == ["3 2"]


@BY_RUNTIME
def test_ping_and_a_low_port_without_a_capability(cli: Cli, tmp_path: pathlib.Path, runtime: str) -> None:
    """As with docker, in a network of its own."""
    (tmp_path / "ping.py").write_text(PING)
    words = ("--cap-drop", "ALL", "--cap-add", "SETUID,SETGID", sys.executable, "/in/ping.py")
    printed = run(cli, tmp_path, *words, runtime=runtime)
    assert any(line.startswith("2 packets transmitted, 2 received, 0% packet loss") for line in printed), printed
    assert "port 80" in printed
