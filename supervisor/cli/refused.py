"""docker's and podman's options: what to do instead of those that exitd lacks, and what is different of those that it
has. Those of `run` and `create`, and by verb those of all others.

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
_ENTRIES = "exitd adds no user to the image's files; --user takes a number without an entry; or -v FILE:/etc/passwd:ro"
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
    "--pull": "podman's newer is not there",
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


_SIGNED = OPTIONS["--signature-policy"]
_OF_COMMIT = "import it, and commit a container of it: exitctl commit -c INSTRUCTION -m TEXT ID NAME"
_OWNER = "chown(1) does: chown UID:GID \"$(exitctl volume inspect -f '{{.Mountpoint}}' NAME)\""
_NEWEST_POD = 'name it: "$(exitctl pods -lq)"'
_DESCRIPTORS_OF_EXEC = "exitd starts the command, which gets none of exitctl's descriptors; use -i"
_HEALTH = (
    *("cmd", "interval", "log-destination", "max-log-count", "max-log-size", "on-failure", "retries", "start-period"),
    *("startup-cmd", "startup-interval", "startup-retries", "startup-success", "startup-timeout", "timeout"),
)
_HEADING = "--format '{{.%s}}' prints no heading"
_NEWEST = 'the newest is exitctl ps -lq: "$(exitctl ps -lq)"'
_ONE_SIZE = "it has the whole disk; a limit has a tmpfs alone: exitctl run --mount type=tmpfs,tmpfs-size=SIZE"
_PLAIN_VOLUME = "a volume is a directory of this machine, of one kind; leave it out"
_CLUSTER = "for docker's clusters; a volume is a directory of this machine"
_NOTHING_BUILT = "exitd builds nothing, and so keeps nothing of builds; leave it out"
_EXTERNAL = "exitd keeps its containers and images alone; leave it out"
_ANEW = "make it anew: exitctl run --replace --name NAME, with all its options"
_LIMITS = "of its limits, memory, CPUs and processes can be changed; exitd limits no block devices"
_ONE_ARCHIVE = "an archive has what is for this machine's processor and system; leave it out"
_POD_FILE = 'name the pod: "$(cat FILE)"'
_GRACE_OF_POD = "stop it with that grace first: exitctl stopp --timeout S POD"
_HOME = "exitd's socket is on this machine: exitctl --address SOCKET; for another: ssh HOST exitctl"
_OF_EXITD = (
    "that is exitd's to know, not exitctl's: /etc/exitd/config.toml (docs/configuration.md); exitctl info shows it"
)
_LOUD = "exitd has a log: journalctl -u exitd; EXITCTL_DEBUG=1 shows where a fault of exitctl's is"

# By exitctl's own words for a verb; "" are those before it. All names of an option are one key.
OF_VERBS = {
    "": {
        "--host -H": _HOME,
        "--url": _HOME,
        "--context -c": _HOME,
        "--connection": _HOME,
        "--remote -r": _HOME,
        "--identity": _HOME,
        "--ssh": _HOME,
        **dict.fromkeys(("--tls", "--tlscacert", "--tlscert", "--tlskey", "--tlsverify"), _HOME),
        **dict.fromkeys(("--tls-ca", "--tls-cert", "--tls-details", "--tls-key"), _HOME),
        "--config": "there is nothing to configure; for pulls skopeo has a configuration, below /etc/containers",
        "--debug -D": _LOUD,
        "--log-level -l": _LOUD,
        "--syslog": _LOUD,
        "--trace": _LOUD,
        "--cpu-profile": _LOUD,
        "--memory-profile": _LOUD,
        "--out": "redirect it: exitctl ps >FILE",
        "--noout": "redirect it: exitctl ps >/dev/null",
        "--runtime": "it is an option of the verb: exitctl run --runtime NAME",
        "--runtime-flag": "a runtime and its flags are exitd's to know: /etc/exitd/config.toml (docs/configuration.md)",
        "--namespace": "exitctl run --namespace NAME makes one in it, exitctl ps --filter namespace=NAME lists them",
        "--conmon": "there is no conmon; each container has a shim of exitd's",
        "--module": "exitd reads no containers.conf; its own file: /etc/exitd/config.toml (docs/configuration.md)",
        "--pull-option": _PULLS,
        "--registries-conf": _PULLS,
        "--cdi-spec-dir": "exitd adds no devices by CDI; name each: exitctl run --device",
        "--hooks-dir": "exitd adds no hooks; a bundle may have some: exitctl run --bundle DIR",
        "--default-mounts-file": "exitd mounts nothing by itself; name each: exitctl run -v SRC:DST",
        "--volumepath": _OF_EXITD,
        **dict.fromkeys(("--cgroup-manager", "--events-backend", "--imagestore", "--max-workers"), _OF_EXITD),
        **dict.fromkeys(
            ("--network-backend", "--network-config-dir", "--root", "--runroot", "--storage-driver"), _OF_EXITD
        ),
        **dict.fromkeys(("--storage-opt", "--tmpdir", "--transient-store"), _OF_EXITD),
    },
    "ps": {
        "--external": "exitd keeps no containers but its own and those of its containerd; -a lists all of them",
        "--namespace --ns": "lsns(8) shows them: lsns -p PID, with the pid of exitctl inspect -f '{{.State.Pid}}' ID",
        "--noheading": _HEADING % "Names",
        "--sort": "the newest come first; sort(1) does otherwise: --format '{{.Names}}' | sort",
        "--sync": "leave it out: exitd always shows what is",
        "--watch -w": "watch(1) does: watch exitctl ps; or see ends as they come: exitctl events",
    },
    "rm": {
        "--depend": "no container hangs on another; a pod goes with all of its own: exitctl rmp POD",
        "--link": "exitd makes no links between containers, and so removes none",
        "--time -t": "stop it with that grace first: exitctl stop --time S ID",
    },
    "stop": {"--service": "for podman's own units; leave it out"},
    "kill": {"-a": "all that run: exitctl kill $(exitctl ps -q); --all is every process of a container here"},
    "start": {
        "--checkpoint": "exitd makes no checkpoints; leave it out, and it begins anew",
        "--checkpoint-dir": "exitd makes no checkpoints; leave it out, and it begins anew",
    },
    "restart": {"--running": "write --filter status=running"},
    "logs": {
        "--details": "the labels of a container: exitctl inspect -f '{{json .Config.Labels}}' ID",
        "--color": "a log is shown of one container at a time, as it wrote it; leave it out",
        "--names": "a log is shown of one container at a time; leave it out",
    },
    "events": {"--no-trunc": "--format json prints whole ids"},
    "inspect": {
        "--size -s": "exitctl ps -a --size shows what each has written",
        "--type -t": "each kind has its verb: exitctl image inspect, network inspect, volume inspect, inspectp",
    },
    "exec": {
        "--cidfile": 'name the container: "$(cat FILE)"',
        "--no-session": "leave it out: exitd keeps an exec until its end was reported",
        "--preserve-fd": _DESCRIPTORS_OF_EXEC,
        "--preserve-fds": _DESCRIPTORS_OF_EXEC,
        "--privileged": "an exec has the rights of its container; make that anew with them: exitctl run --privileged",
        "--wait": "wait until it runs first: exitctl start ID, or a health check",
    },
    "wait": {
        "--exit-first-match": "begin a wait for each in the background, and the shell's wait -n returns with the first",
        "--ignore": "a removed container's code is known still; whether it was ever there: exitctl exits --id ID",
        "--interval -i": "leave it out: exitd does not look from time to time, it answers at the end",
    },
    "top": {"--list-descriptors": "the columns are those of ps(1): ps L lists them"},
    "cp": {
        "--extract": "leave it out: a tar on standard input is always extracted",
        "--overwrite": "remove what is in the way first, by exitctl exec",
        "--pause": "leave it out; to copy while nothing changes: exitctl pause ID, then exitctl unpause ID",
    },
    "commit": {
        "--config": "name each change: -c INSTRUCTION",
        "--format -f": "exitd keeps one form, which exitctl image save writes for docker and for OCI; leave it out",
        "--iidfile": "it prints the id: exitctl commit ID NAME >FILE",
        "--include-volumes": "write each path: -c 'VOLUME /PATH'",
        "--squash -s": "as one layer: exitctl export ID | exitctl image import - NAME",
    },
    "port": {
        "--all -a": "exitctl ps shows the ports of all",
        "--latest -l": _NEWEST,
    },
    "update": {
        **dict.fromkeys(("--blkio-weight", "--blkio-weight-device"), _LIMITS),
        **dict.fromkeys(("--device-read-bps", "--device-read-iops"), _LIMITS),
        **dict.fromkeys(("--device-write-bps", "--device-write-iops"), _LIMITS),
        "--cpu-rt-period": "exitd grants no real-time budget; leave it out",
        "--cpu-rt-runtime": "exitd grants no real-time budget; leave it out",
        "--kernel-memory": OPTIONS["--kernel-memory"],
        "--memory-swappiness": "cgroup v2 has no such setting; leave it out",
        **dict.fromkeys(("--env -e", "--unsetenv", "--ulimit", "--no-healthcheck"), _ANEW),
        **dict.fromkeys((f"--health-{word}" for word in _HEALTH), _ANEW),
    },
    "image ls": {
        "--digests": "exitctl image inspect -f '{{.RepoDigests}}' NAME shows them",
        "--filter": "those without a name: exitctl image ls | grep '<none>'; exitctl image prune removes them",
        "--history": "an image keeps no names that it had; exitctl history NAME shows its steps",
        "--noheading -n": _HEADING % "ID",
        "--sort": "sort(1) does: --format '{{.Repository}}' | sort",
        "--tree": "exitd keeps of an image what is for this machine; its layers: exitctl image inspect NAME",
    },
    "image rm": {
        "--no-prune": "leave it out: an image has no parents here that would go with it",
        "--platform": _PLATFORM,
    },
    "image pull": {
        "--all-tags -a": "skopeo list-tags docker://NAME lists them; then pull each",
        **dict.fromkeys(("--arch", "--os", "--variant", "--platform"), _PLATFORM),
        **dict.fromkeys(("--authfile", "--creds"), _LOGIN),
        **dict.fromkeys(("--cert-dir", "--tls-verify"), _PULLS),
        "--decryption-key": OPTIONS["--decryption-key"],
        "--disable-content-trust": OPTIONS["--disable-content-trust"],
        "--signature-policy": OPTIONS["--signature-policy"],
        "--policy": "only if it is not there: exitctl image exists NAME || exitctl image pull NAME",
        "--retry": "run it again, as often as it takes",
        "--retry-delay": "run it again, as often as it takes",
    },
    "image load": {
        "--platform": _PLATFORM,
        "--signature-policy": _SIGNED,
    },
    "image save": {
        "--platform": _ONE_ARCHIVE,
        "--compress": "compress the archive: exitctl image save NAME | gzip >FILE",
        "--uncompressed": "leave it out: layers are written as they are kept",
        "--signature-policy": _SIGNED,
    },
    "image history": {
        "--human -H": "leave it out: it is for people; exact sizes: exitctl image inspect NAME",
        "--platform": _PLATFORM,
    },
    "image import": {
        **dict.fromkeys(("--change -c", "--message -m"), _OF_COMMIT),
        **dict.fromkeys(("--arch", "--os", "--variant", "--platform"), _PLATFORM),
        "--signature-policy": _SIGNED,
    },
    "image inspect": {"--platform": _PLATFORM},
    "image prune": {"--build-cache": _NOTHING_BUILT, "--external": _EXTERNAL},
    "volume create": {
        "--name": "the name is a word of its own: exitctl volume create NAME",
        "--driver -d": _PLAIN_VOLUME,
        "--opt -o": "options are a mount's: exitctl run -v NAME:/DIR:OPTION",
        "--label -l": "a volume has a name, and no labels; choose a name that says it",
        "--uid": _OWNER,
        "--gid": _OWNER,
        **dict.fromkeys(("--availability", "--group", "--scope", "--secret", "--sharing", "--type"), _CLUSTER),
        **dict.fromkeys(("--limit-bytes", "--required-bytes"), _ONE_SIZE),
        **dict.fromkeys(("--topology-preferred", "--topology-required"), _CLUSTER),
    },
    "volume ls": {
        "--cluster": _CLUSTER,
        "--filter": "how many containers mount each stands behind it; exitctl volume prune removes those with 0",
        "--noheading -n": "-q prints no heading",
    },
    "volume inspect": {"--all -a": "name them: exitctl volume inspect $(exitctl volume ls -q)"},
    "volume rm": {
        "--all -a": "all that no container mounts: exitctl volume prune",
        "--time -t": "it stops no container that mounts it; do so first: exitctl stop --time S ID",
    },
    "volume prune": {
        "--dry-run": "exitctl volume ls shows how many containers mount each; those with 0 go",
        "--filter": "name those that are to go: exitctl volume rm NAME",
    },
    "network ls": {
        "--filter": "a template chooses: --format '{{.Driver}} {{.Name}}' | grep WORD",
        "--noheading -n": "-q prints no heading",
    },
    "network inspect": {"--verbose -v": "leave it out: all that is known is shown"},
    "network prune": {"--filter": "it takes down what is left of ended runs, all of it; leave it out"},
    "system df": {"--verbose -v": "exitctl ps -a --size, exitctl image ls and exitctl volume ls show each"},
    "system prune": {"--build": _NOTHING_BUILT, "--external": _EXTERNAL},
    "info": {"--debug -D": "leave it out: all that is known is shown"},
    "completion": {
        "--file -f": "redirect it: exitctl completion bash >FILE",
        "--no-desc": "leave it out: bash shows no descriptions; those of zsh and fish come from exitctl's help",
    },
    "healthcheck run": {"--ignore-result": "the shell does: exitctl healthcheck run ID || true"},
    "pods": {
        **dict.fromkeys(("--ctr-ids", "--ctr-names", "--ctr-status"), "exitctl ps -a --pod POD lists its containers"),
        "--filter -f": "--id, --name, --namespace, --label and --state choose",
        "--format": "-o json or -o yaml",
        "--noheading": "-q prints no heading",
        "--ns": "lsns(8) shows them: lsns -p PID, with the pid of exitctl inspectp POD",
        "--sort": "the newest come first; sort(1) does otherwise",
    },
    "rmp": {
        "--ignore -i": "the shell does: exitctl rmp POD || true",
        "--latest -l": _NEWEST_POD,
        "--pod-id-file": _POD_FILE,
        "--time -t": _GRACE_OF_POD,
    },
    "stopp": {
        "--all -a": "name the pods: exitctl stopp $(exitctl pods -q)",
        "--ignore -i": "the shell does: exitctl stopp POD || true",
        "--latest -l": _NEWEST_POD,
        "--pod-id-file": _POD_FILE,
    },
    "inspectp": {"--format -f": "write -o go-template --template TEMPLATE"},
    "play": {
        "--annotation": "write it into the manifest: metadata.annotations",
        **dict.fromkeys(("--authfile", "--creds"), _LOGIN),
        **dict.fromkeys(("--cert-dir", "--tls-verify"), _PULLS),
        "--build": "exitd builds no images; build with docker, podman or buildah, then exitctl image load FILE",
        "--context-dir": "exitd builds no images; build with docker, podman or buildah, then exitctl image load FILE",
        "--configmap": "name the file beside the others: exitctl play CONFIGMAP.yaml FILE",
        "--force": "--down leaves the volumes; then exitctl volume rm NAME",
        "--ip": "of one network: --network NAME:ip=ADDRESS",
        "--log-driver": "the daemon's holds for pods: log_driver in /etc/exitd/config.toml",
        "--log-opt": "the daemon's hold for pods: /etc/exitd/config.toml (docs/configuration.md)",
        "--mac-address": "of one network: --network NAME:mac=ADDRESS",
        "--no-hostname": "write the name into the manifest: hostname",
        "--no-hosts": "leave it out: a pod's /etc/hosts has its own name and address",
        "--no-pod-prefix": "the name is always POD-CONTAINER; exitctl rename ID NAME gives another",
        "--no-trunc": "leave it out: annotations are whole",
        "--publish": "write it into the manifest: ports, with a hostPort",
        "--publish-all": "write each into the manifest: ports, with a hostPort",
        "--quiet -q": "leave it out: it prints the pods alone",
        "--seccomp-profile-root": "a localhostProfile is a path of this machine; write the whole of it",
        "--service-container": "for podman's own units; leave it out",
        "--service-exit-code-propagation": "--wait prints the code of each, and has one of its own",
        "--signature-policy": _SIGNED,
        "--start": "exitd starts what it makes; exitctl create makes a container without starting it",
        "--userns": "pods have the machine's users; a container may have its own: exitctl run --userns auto",
    },
}

_OF_ALL = {
    "--all": "but for pods and their containers, which stopp and rmp are for, and tasks of containerd's",
    "--filter": "by what exitctl ps --filter knows; not of pods and their containers, nor of tasks of containerd's",
}
DIFFERENT_OF = {
    "ps": {
        "--filter": "those of docker, but for expose, isolation, is-task and publish; podman has more",
        "--pod": "names a pod, whose containers are listed; the column POD ID is there without it",
    },
    "kill": {"--all": "every process of the containers that are named; of all: exitctl kill $(exitctl ps -q)"},
    **dict.fromkeys(("stop", "start", "restart", "pause", "unpause", "rm"), _OF_ALL),
    "events": {
        "--filter": "by container, event, image, label and type, as there; also by id, name, namespace and watch"
    },
    "wait": {
        "--condition": "exited (default), next-exit or removed; podman's running, healthy and others are not there"
    },
    "stats": {"--interval": "1 second without it; podman's is 5"},
    "cp": {"--archive": "off without it, as with docker"},
    "update": {
        **{each: DIFFERENT[each] for each in ("--cpu-period", "--cpu-quota")},
        "--restart": "podman's never is no",
    },
    "image rm": {"--force": "a missing image is no error; one in use is never removed, where docker and podman do it"},
    "image save": {"--format": "oci-archive or docker-archive, which are one archive here; no oci-dir, no docker-dir"},
    "volume rm": {"--force": "a missing volume is no error; one in use is never removed, where podman does it"},
    "volume prune": {"--all": "those with a name go without it, too"},
    "system prune": {"--volumes": "those without a name alone, as with docker; podman takes all"},
    "pods": {"--namespace": "names the namespaces of Kubernetes that pods are of, by an expression"},
}


def words_of(verb: str, name: str) -> str | None:
    """Return what to do instead of this option, `--publish` or `-p`; None if neither docker nor podman has it with that
    verb. `verb`: as it was typed, `container run`; empty for an option before it."""
    verb = verbs.SAME.get(verb, verb)
    if verb in ("run", "create"):
        return OPTIONS.get(SHORTS.get(name, name))
    return next((words for names, words in OF_VERBS.get(verb, {}).items() if name in names.split()), None)


def different(verb: str) -> dict[str, str]:
    """Return what is different of options of one of exitctl's verbs, by an option's longest name."""
    return DIFFERENT if verb in ("run", "create") else DIFFERENT_OF.get(verb, {})
