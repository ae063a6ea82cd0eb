"""docker's and podman's options of `run` and `create`: what to do instead of those that exitd lacks, and what is
different of those that it has.

Loaded when such an option was typed, and for docs/cli.md; what works as there is not listed.
"""

from supervisor.cli import verbs

SHORTS = {"-a": "--attach", "-q": "--quiet"}  # of those below

_NETWORKS = "containers of a network find each other by address; a name for one: --add-host (docs/networks.md)"
_USERS = "exitd chooses the ids: --userns auto gives a container 65,536 that no other has"
_BLOCKS = "exitd limits no block devices; a bundle may: --bundle DIR, linux.resources.blockIO of its config.json"
_WINDOWS = "for Windows; the options of Linux are --cpus and --memory"
_PULLS = "skopeo pulls for exitd; that is set in its configuration, below /etc/containers"
_LOGIN = "skopeo pulls for exitd; log in once, as root: skopeo login REGISTRY"
_RETRIES = "run exitctl image pull before, as often as it takes"
_PLATFORM = "exitd takes of an image what is for this machine's processor and system; leave it out"
_RESULTS = "exitctl inspect shows the last five results, with the first 4 KiB of each; no other log is kept"
_STARTUP = "a container has one health check; --health-start-period gives it time to start"
_REALTIME = "exitd grants no real-time budget; a bundle may: --bundle DIR, linux.resources.cpu of its config.json"
_ENTRIES = "exitd adds nobody to the image's files; --user takes a number without an entry; or -v FILE:/etc/passwd:ro"
_DESCRIPTORS = "exitd starts the container, which gets none of exitctl's descriptors; use -i, or -v with a socket"

OPTIONS = {
    "--arch": _PLATFORM,
    "--attach": "without -d all of its output is shown, and -i sends input; to look later: -d, then exitctl attach",
    "--authfile": _LOGIN,
    "--blkio-weight": _BLOCKS,
    "--blkio-weight-device": _BLOCKS,
    "--cert-dir": _PULLS,
    "--cgroup-conf": "a bundle may have it: --bundle DIR, linux.resources.unified of its config.json",
    "--cgroup-parent": "exitd chooses the place of a container's cgroup; a bundle may name it: linux.cgroupsPath",
    "--cgroupns": "with cgroup v2 a container has a cgroup namespace of its own, with v1 the host's; leave it out",
    "--cgroups": "each container has a cgroup, by which exitd ends all of it; leave it out",
    "--chrootdirs": "bind the files that such a directory needs: -v FILE:DIR/FILE:ro",
    "--conmon-pidfile": "there is no conmon; --pidfile has the pid of the container's first process",
    "--cpu-count": _WINDOWS,
    "--cpu-percent": _WINDOWS,
    "--cpu-rt-period": _REALTIME,
    "--cpu-rt-runtime": _REALTIME,
    "--creds": _LOGIN,
    "--decryption-key": "exitd runs no encrypted images; skopeo copy decrypts one, then exitctl image load",
    "--device-cgroup-rule": "name each device: --device; or a bundle: --bundle DIR, linux.resources.devices",
    "--device-read-bps": _BLOCKS,
    "--device-read-iops": _BLOCKS,
    "--device-write-bps": _BLOCKS,
    "--device-write-iops": _BLOCKS,
    "--disable-content-trust": "leave it out: which signatures are required, /etc/containers/policy.json says",
    "--dns-opt": "write --dns-option",
    "--domainname": "exitd sets no NIS domain; for a host name with a domain: --hostname NAME.DOMAIN",
    "--env-host": "name each variable of this shell that it needs: -e NAME",
    "--env-merge": "write the whole value: -e NAME=VALUE",
    "--gidmap": _USERS,
    "--gpus": "exitd adds no GPUs by itself; choose a runtime that does by --runtime, or a bundle with the devices",
    "--group-entry": "exitd adds nothing to the image's files; --group-add takes a number without an entry",
    "--health-log-destination": _RESULTS,
    "--health-max-log-count": _RESULTS,
    "--health-max-log-size": _RESULTS,
    "--health-start-interval": "probes have one interval, at the start too: --health-interval",
    "--health-startup-cmd": _STARTUP,
    "--health-startup-interval": _STARTUP,
    "--health-startup-retries": _STARTUP,
    "--health-startup-success": _STARTUP,
    "--health-startup-timeout": _STARTUP,
    "--healthcheck-command": "write --health-cmd",
    "--healthcheck-interval": "write --health-interval",
    "--healthcheck-retries": "write --health-retries",
    "--healthcheck-start-period": "write --health-start-period",
    "--healthcheck-timeout": "write --health-timeout",
    "--hosts-file": "bind it: -v FILE:/etc/hosts:ro",
    "--hostuser": "exitd adds no users to the image's files; bind the host's: -v /etc/passwd:/etc/passwd:ro",
    "--http-proxy": "exitd passes no proxy on by itself; name what the container needs: -e http_proxy -e https_proxy",
    "--image-volume": "exitd makes no volumes for an image's VOLUME by itself; mount one there: -v NAME:DST",
    "--init-ctr": "what runs before the others of a pod is in its manifest, initContainers: exitctl play FILE",
    "--init-path": "--init takes exitd's own; another is the first word of the command, or --entrypoint",
    "--io-maxbandwidth": _WINDOWS,
    "--io-maxiops": _WINDOWS,
    "--isolation": "for Windows; another runtime isolates otherwise: --runtime",
    "--kernel-memory": "the kernel has no such limit any more; --memory counts its share, too",
    "--link": "containers of a network reach each other by address, those of a pod (--pod) by localhost",
    "--link-local-ip": _NETWORKS,
    "--memory-swappiness": "cgroup v2 has no such setting; on v1 a bundle may: linux.resources.memory.swappiness",
    "--net-alias": _NETWORKS,
    "--network-alias": _NETWORKS,
    "--no-hostname": "--no-hosts leaves the image's /etc/hostname, hosts and resolv.conf",
    "--oom-kill-disable": "a container would hang at its limit, and cgroup v2 cannot do it; give it more: --memory",
    "--os": _PLATFORM,
    "--override-arch": _PLATFORM,
    "--override-os": _PLATFORM,
    "--override-variant": _PLATFORM,
    "--passwd": "leave it out: exitd adds nothing to the image's /etc/passwd and /etc/group",
    "--passwd-entry": _ENTRIES,
    "--personality": "a bundle may have it: --bundle DIR, linux.personality of its config.json",
    "--platform": _PLATFORM,
    "--pod-id-file": 'name the pod: --pod "$(cat FILE)"',
    "--preserve-fd": _DESCRIPTORS,
    "--preserve-fds": _DESCRIPTORS,
    "--quiet": "leave it out: a pull prints one line, on standard error, and only when it takes long",
    "--rdt-class": "a bundle may have it: --bundle DIR, linux.intelRdt of its config.json",
    "--read-only-tmpfs": "with --read-only nothing is mounted by itself; name what may be written: --tmpfs /tmp",
    "--requires": "wait for the other one first: exitctl wait ID; or start both in a pod: exitctl play",
    "--retry": _RETRIES,
    "--retry-delay": _RETRIES,
    "--rmi": "use --rm, and remove the image afterwards: exitctl image rm NAME",
    "--sdnotify": "exitd listens for no READY=1; a health check shows when it can serve: --health-cmd",
    "--seccomp-policy": "an image names no profile here; name it: --security-opt seccomp=FILE",
    "--secret": "exitd keeps no secrets; bind the file: -v FILE:/run/secrets/NAME:ro",
    "--shm-size-systemd": "exitd prepares nothing for systemd as an init; leave it out",
    "--signature-policy": "skopeo pulls for exitd; which signatures are required, /etc/containers/policy.json says",
    "--storage-opt": "what a container writes has a limit in memory alone, --storage tmpfs:SIZE; on disk none",
    "--subgidname": _USERS,
    "--subuidname": _USERS,
    "--systemd": "exitd prepares nothing for systemd as an init; its signal to stop: --stop-signal RTMIN+3",
    "--timeout": "run it with -d, then: exitctl wait --timeout SECONDS ID || exitctl stop ID",
    "--tls-verify": _PULLS,
    "--tz": "write -e TZ=Europe/Berlin, or take this host's: -v /etc/localtime:/etc/localtime:ro",
    "--uidmap": _USERS,
    "--umask": "it is 0022; the command may set another: sh -c 'umask 077; exec PROGRAM'",
    "--unsetenv": "start the command without it: env -u NAME PROGRAM",
    "--unsetenv-all": "start the command without them: env -i PROGRAM",
    "--use-api-socket": "bind the socket: -v SOCKET:/run/docker.sock; who can write to it is root in effect",
    "--uts": "a container has a host name of its own, or its pod's; for the host's: --hostname \"$(hostname)\"",
    "--variant": _PLATFORM,
    "--volume-driver": "volumes are directories of this machine; mount the other on the host, then -v DIR:DST",
    "--volumes-from": "name the same volumes and directories, as exitctl inspect shows them: -v SRC:DST",
}

DIFFERENT = {
    "--add-host": "docker's host-gateway is not there: write the gateway of exitctl inspect",
    "--annotation": "write KEY=VALUE, or KEY= for an empty one; the runtime sees those that the configuration admits",
    "--cap-add": "added to docker's 14 default capabilities; podman begins with 11 of them",
    "--cap-drop": "what is both dropped and added is added, as with docker; podman refuses that",
    "--cpu-period": "kept as thousandths of a CPU, in a period of 100 ms",
    "--cpu-quota": "kept as thousandths of a CPU, in a period of 100 ms",
    "--dns": "podman's none is --no-hosts",
    "--entrypoint": "one word; podman's JSON list is not read",
    "--env": "podman's * at the end of a name is not read",
    "--group-add": "a number; no names, no keep-groups",
    "--health-interval": "podman's disable, a check that is only run by hand, is not there",
    "--hostname": "without it the beginning of the id, also with the host's network",
    "--init": "exitd's own program; 126 and 127 may be its code, 128 + n says that signal n ended the command",
    "--ipc": "private (default) or host; members of a pod share theirs; no container:ID, no none",
    "--label": "write KEY=VALUE, or KEY= for an empty one",
    "--log-driver": "cri (default), json-file, journald or none; no local, syslog, fluentd, k8s-file, passthrough",
    "--log-opt": "max-size, max-file, path and max-buffer-size; docker's mode is --log-mode",
    "--memory": "at least 4m; no swap on top unless --memory-swap says so, where docker gives as much again",
    "--mount": "type=bind, volume or tmpfs; no image, no glob; of a volume's options volume-nocopy and volume-subpath",
    "--name": "at most 63 characters",
    "--expose": "only -P looks at it; docker's other uses of it are not there",
    "--ip": "of its first network, whose plugin needs the capability ips; for others --network NAME:ip=ADDRESS",
    "--ip6": "of its first network, whose plugin needs the capability ips; for others --network NAME:ip6=ADDRESS",
    "--mac-address": "of its first network, whose plugin needs the capability mac; else --network NAME:mac=ADDRESS",
    "--network": "networks of CNI: bridge and names, several of them, or none, host or pod; no container:ID, no alias",
    "--publish": "by the network's portmap; of a range of the machine's none is chosen for one port",
    "--no-hosts": "/etc/hostname and /etc/resolv.conf are the image's then, too",
    "--pid": "own (default), pod or host; no container:ID: put both into a pod",
    "--pids-limit": "2048 without it, as with podman; docker has no limit then",
    "--pod": "a pod that is there; podman's new:NAME is exitctl runp",
    "--pull": "a plain NAME is a registry's then; without --pull it is an image of exitd's own store; no newer",
    "--read-only": "podman mounts a tmpfs on /run, /tmp and /var/tmp then; exitd mounts none",
    "--restart": "podman's never is no; --restart-rule decides by the code before it",
    "--rootfs": "DIR is its value, and a layer on top of DIR takes what is written; podman writes into DIR",
    "--runtime": "a name of exitd's configuration, a path, or a shim such as io.containerd.runc.v2",
    "--security-opt": "no-new-privileges holds unless =false is given; no mask, unmask, proc-opts, systempaths",
    "--stop-timeout": "0 or more; docker's -1, no limit, is not there",
    "--sysctl": "of its own namespaces alone; in a pod, not those of the pod's",
    "--ulimit": "podman's word host is not read",
    "--userns": "auto, without options, or host; keep is refused, as podman refuses root's keep-id; no ns:, container:",
    "--volume": "names up to 63 characters; labels of SELinux (z, Z), podman's U and idmap are refused",
}


def words_of(verb: str, name: str) -> str | None:
    """Return what to do instead of this option, `--publish` or `-p`; None if neither docker nor podman has it with that
    verb. `verb`: as it was typed, `container run`; empty for an option before it."""
    verb = verbs.SAME.get(verb, verb)
    return OPTIONS.get(SHORTS.get(name, name)) if verb in ("run", "create", "update") else None
