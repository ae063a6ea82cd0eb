"""`doctor`: one line for each thing that exitd needs on this machine, with the cure if it is missing."""

import errno
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from shim import programs
from shim.frozen import frozen
from supervisor.cli import containerd, table
from supervisor.cli.app import connect
from supervisor.cli.spelling import Spelled
from supervisor.config.settings import NetworkSettings
from supervisor.model.errors import BadRequest, ExitdError
from supervisor.model.values import Source
from supervisor.monitor import probe
from supervisor.monitor.probe import Capability
from supervisor.network import files
from supervisor.runtime.oci import delegation
from supervisor.runtime.oci import machine as ocimachine

DEFAULT_STATE = "/run/exitd"
PROGRAMS = ("exitd-shim", "exitd-keeper", "exitd-launch", "exitd-pause", "exitd-journald")
RUNTIMES = ("runc", "crun")
WANTED_FDS = 65536  # three or four for each container, and one for each client
NEEDED_FDS = 1024
OLDEST_KERNEL = (5, 3)  # pidfd_open
CGROUP_ROOT = "/sys/fs/cgroup"
SECCOMP = "/proc/sys/kernel/seccomp/actions_avail"
LIMIT_SECONDS = 20.0


@frozen
class Finding:
    """`level` is ok, warn (works with less) or FAIL (exitd cannot work)."""

    level: str
    what: str
    detail: str
    cure: str = ""


@click.command(cls=Spelled)
@click.option("--state", default=None, metavar="DIR", help="The state directory; default $EXITD_STATE, /run/exitd.")
@click.option("-f", "--format", "format_", default="table", metavar="FORMAT", help="table or json; default table.")
@click.pass_context
def doctor(ctx: click.Context, state: str | None, format_: str) -> int:
    """Check this machine: one line each, with the cure for what is wrong. Exits 0 if nothing is fatal, else 1."""
    if format_ not in ("table", "json", "jsonl"):
        raise BadRequest(f"--format {format_!r} is not known here: table, json or jsonl")
    directory = state or os.environ.get("EXITD_STATE") or DEFAULT_STATE
    findings = [*machine(), *tools(), *evidence(directory), *places(directory), daemon(ctx), *storage(ctx)]
    findings += [network(ctx), *stuck_networks(ctx), *adapter(directory)]
    if format_ == "json":
        print(json.dumps([asdict(finding) for finding in findings], indent=4))
    elif format_ == "jsonl":
        print("".join(f"{json.dumps(asdict(finding))}\n" for finding in findings), end="")
    else:
        print(report(findings), end="")
    return 1 if any(finding.level == "FAIL" for finding in findings) else 0


def report(findings: list[Finding]) -> str:
    """Return the lines for people."""
    return table.columns(
        [one.level, one.what, one.detail + (f" -> {one.cure}" if one.cure else "")] for one in findings
    )


def machine() -> Iterator[Finding]:
    """Yield whether this user and this kernel have what exitd needs."""
    root = os.geteuid() == 0
    yield _finding("root", Capability(root, f"uid {os.geteuid()}", "" if root else "run exitd as root"), fatal=True)
    new = probe.kernel() >= OLDEST_KERNEL
    yield _finding(
        "kernel", Capability(new, f"Linux {os.uname().release}", "" if new else "Linux 5.10 or newer"), fatal=True
    )
    yield _finding("cgroup", made := cgroup(), fatal=True)
    if made.works:
        yield _finding("controllers", controllers(), fatal=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = Capability(hard >= WANTED_FDS, f"{soft} open files, at most {hard} (exitd raises it to that)")
    cure = "" if enough.works else f"for thousands of containers: ulimit -Hn {WANTED_FDS}, or LimitNOFILE= in the unit"
    yield _finding("fd limit", Capability(enough.works, enough.detail, cure), fatal=hard < NEEDED_FDS)


def cgroup(root: str = CGROUP_ROOT) -> Capability:
    """Find the version, and whether cgroups can be made. Tries it but with version 2, whose tree is systemd's."""
    version = probe.cgroup_version(root)
    if refusal := delegation.unusable(root):
        return Capability(False, f"{version}, not writable: {refusal.why}" if version else refusal.why, refusal.cure)
    try:
        if version != "v2":
            group = Path(root, "memory", f"exitd-doctor-{os.getpid()}")
            group.mkdir()
            group.rmdir()
        elif not os.access(root, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), root)
    except OSError as error:
        cure = "run as root, outside of a container or in a privileged one"
        return Capability(False, f"{version}, not writable: {error.filename}: {error.strerror}", cure)
    return Capability(True, f"{version}, writable")


def controllers(root: str = CGROUP_ROOT) -> Capability:
    """Find by which controllers containers can be limited."""
    lacking = delegation.lacking(root)
    if not lacking:
        return Capability(True, ", ".join(delegation.LIMITED))
    why, cure = (dict.fromkeys(getattr(each, name) for each in lacking.values()) for name in ("why", "cure"))
    return Capability(False, "; ".join(why), "; ".join(cure))


def tools() -> Iterator[Finding]:
    """Yield which runtimes, programs and features of the kernel there are, and what they can do."""
    found = [path for name in RUNTIMES if (path := shutil.which(name))]
    cure = "" if found else "apt-get install --no-install-recommends runc (or crun)"
    yield _finding(
        "runtime", Capability(bool(found), ", ".join(found) or "neither runc nor crun on PATH", cure), fatal=True
    )
    for path in found:
        yield _finding(f"seccomp, {os.path.basename(path)}", seccomp(path), fatal=False)
    yield _finding("AppArmor", apparmor(), fatal=False)
    for name in PROGRAMS:
        yield _finding(name, _program(name), fatal=name != "exitd-keeper")
    file_systems = Path("/proc/filesystems").read_text().split()
    overlay = Capability("overlay" in file_systems, "overlay mounts are there")
    if not overlay.works:
        cure = "modprobe overlay (images and --rootfs need it)"
        overlay = Capability(False, "the kernel lists no overlay file system", cure)
    yield _finding("overlay", overlay, fatal=False)
    skopeo = shutil.which("skopeo") or ""
    cure = "" if skopeo else "apt-get install --no-install-recommends skopeo (docker://NAME needs it)"
    yield _finding("skopeo", Capability(bool(skopeo), skopeo or "not found", cure), fatal=False)


def seccomp(path: str, kernel: str = SECCOMP) -> Capability:
    """Check whether the kernel and that runtime support seccomp. Without it a create fails with an error."""
    if not os.path.exists(kernel):
        cure = "a kernel with CONFIG_SECCOMP_FILTER, or run containers with --security-opt seccomp=unconfined"
        return Capability(False, "the kernel has no seccomp filters", cure)
    try:
        words = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=LIMIT_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Capability(False, f"{path} --version: {error}", "install it anew")
    if "libseccomp" not in words and "+SECCOMP" not in words:  # as runc names it, and as crun does
        cure = "install one that was built with seccomp, or run containers with --security-opt seccomp=unconfined"
        return Capability(False, f"{path} was built without seccomp", cure)
    return Capability(True, f"{path} sets filters")


def apparmor() -> Capability:
    """Check whether exitd's own profile confines containers, where the kernel has AppArmor."""
    if not ocimachine.has_apparmor():
        return Capability(True, "the kernel has none, or it is off")
    if ocimachine.own_profile():
        return Capability(True, f"containers have the profile {ocimachine.OWN_PROFILE}, unless they ask for another")
    cure = f"apparmor_parser --replace /etc/apparmor.d/{ocimachine.OWN_PROFILE}, as root"
    return Capability(False, f"the profile {ocimachine.OWN_PROFILE} is not loaded: containers have none", cure)


def _program(name: str) -> Capability:
    try:
        return Capability(True, str(programs.find(name)))
    except FileNotFoundError as error:
        return Capability(False, "not found", str(error))


def evidence(state: str) -> Iterator[Finding]:
    """Yield each source. Without record and fifo there are no reports; the others are for when those are lost."""
    found = probe.evidence(state)
    for source, result in found.items():
        yield _finding(f"source {source}", result, fatal=source in ("record", "fifo"))
    yield _finding("watch", watching(found[Source.PIDFD], found[Source.PROCEVENTS]), fatal=False)


def watching(pidfd: Capability, procevents: Capability) -> Capability:
    """Find by which of the two ways `exitctl watch` and `live` learn how others' processes end here."""
    if pidfd.works:
        return Capability(True, "by pidfd: the kernel keeps how a process has ended (Linux 6.15 and newer)")
    if procevents.works:
        less = "what ends while exitd is away is unknown"
        return Capability(True, f"by the kernel's process events (Linux 5.10 and newer, CONFIG_PROC_EVENTS): {less}")
    cure = "Linux 6.15; or 5.10 with CONFIG_PROC_EVENTS, CAP_NET_ADMIN, and the host's pid and network namespaces"
    return Capability(False, f"others' processes cannot be watched: {pidfd.detail}; {procevents.detail}", cure)


def places(state: str) -> Iterator[Finding]:
    """Yield on which file system the state directory is, and how much is free there."""
    place = probe.existing_parent(state)
    kind = probe.file_system(place)
    free = shutil.disk_usage(place).free // 2**20
    local = kind == "tmpfs"
    detail = f"{state} on {kind}, {free} MiB free"
    cure = "" if local else "works; on tmpfs (/run) records cost no disk writes"
    yield Finding(
        "ok" if local or kind in ("ext4", "xfs", "btrfs", "overlay") else "warn", "state directory", detail, cure
    )


def daemon(ctx: click.Context) -> Finding:
    """A daemon that does not run is no fault: doctor is also for the time before it is started."""
    try:
        client = connect(ctx)
        return Finding("ok", "daemon", f"exitd {client.version().version} answers on {client.path}")
    except ExitdError as error:
        return Finding("warn", "daemon", str(error))


def storage(ctx: click.Context) -> Iterator[Finding]:
    """Yield where containers write, as the daemon has found out at its start; nothing without a daemon."""
    try:
        info = connect(ctx).info()
    except ExitdError:
        return
    if refusal := info.settings.get("storage_refusal"):
        yield Finding("warn", "storage", f"containers write to memory: {refusal}")
    elif "storage" in info.settings:
        yield Finding("ok", "storage", f"{info.settings['storage']}; {info.root} can hold writable layers")


def network(ctx: click.Context) -> Finding:
    """Look for a network of CNI, where the daemon looks, or without one where it would. None is no fault."""
    settings = NetworkSettings()
    try:
        found = {each.name: each.value for each in connect(ctx).info().configuration}
        settings = replace(settings, conf_dir=found.get("network.conf_dir", settings.conf_dir))
        if directories := found.get("network.plugin_dirs"):
            settings = replace(settings, plugin_dirs=tuple(json.loads(directories)))
    except ExitdError:
        pass
    return networks(settings.conf_dir, settings.plugin_dirs)


def stuck_networks(ctx: click.Context) -> Iterator[Finding]:
    """Find what plugins could not take down: it keeps ports from other containers."""
    from supervisor.cli import network as words

    try:
        stuck = connect(ctx).networks().stuck
    except ExitdError:
        return
    for each in stuck:
        yield Finding("warn", "network", words.stuck_words(each), words.CURE)


def networks(conf_dir: str, plugin_dirs: tuple[str, ...]) -> Finding:
    """Return the first network that is configured, or what is missing."""
    places = " or ".join(plugin_dirs)
    found = files.configurations(conf_dir)
    if not found:
        detail = f"none in {conf_dir}: containers have a loopback interface, or the machine's network"
        install = "" if files.program("bridge", plugin_dirs) else "apt-get install containernetworking-plugins, and "
        return Finding("ok", "network", detail, f"for others: {install}a file of CNI there (docs/networks.md)")
    for file, each in found:
        if isinstance(each, str):
            return Finding("warn", "network", f"{file}: {each}", "mend the file, or remove it")
        if kind := files.missing(each, plugin_dirs):
            cure = "apt-get install containernetworking-plugins, or network.plugin_dirs of exitd's configuration"
            return Finding("warn", "network", f"{each.name}: its plugin {kind} is not in {places}", cure)
    names = ", ".join(each.name for _, each in found if not isinstance(each, str))
    return Finding("ok", "network", f"{names}, configured in {conf_dir}")


def adapter(state: str) -> Iterator[Finding]:
    """exitd works without containerd, so nothing here is fatal."""
    return (_finding(what, result, fatal=False) for what, result in containerd.chain(state))


def _finding(what: str, result: Capability, *, fatal: bool) -> Finding:
    level = "ok" if result.works else "FAIL" if fatal else "warn"
    return Finding(level, what, result.detail, result.cure)
