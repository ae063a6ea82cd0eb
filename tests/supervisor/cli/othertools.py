"""The names that docker and podman have: options of `run`, and verbs. Names alone, to hold exitctl against."""

# docker CLI 29.8: cli/command/container/{opts,run}.go; a short name behind its long one. The help lacks the last line.
DOCKER = """add-host annotation attach:a blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns
cidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares:c cpus cpuset-cpus
cpuset-mems detach:d detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps
device-write-iops dns dns-option dns-search domainname entrypoint env:e env-file expose gpus group-add health-cmd
health-interval health-retries health-start-interval health-start-period health-timeout help hostname:h init
interactive:i io-maxbandwidth io-maxiops ip ip6 ipc isolation label:l label-file link link-local-ip log-driver log-opt
mac-address memory:m memory-reservation memory-swap memory-swappiness mount name network network-alias no-healthcheck
oom-kill-disable oom-score-adj pid pids-limit platform privileged publish:p publish-all:P pull quiet:q read-only
restart rm runtime security-opt shm-size sig-proxy stop-signal stop-timeout storage-opt sysctl tmpfs tty:t ulimit
use-api-socket user:u userns uts volume:v volume-driver volumes-from workdir:w
disable-content-trust dns-opt kernel-memory net net-alias"""

# podman 6.0: podman-run(1), podman-create(1), cmd/podman/common/{create,netflags}.go. The help lacks the last two.
PODMAN = """add-host annotation arch attach:a authfile blkio-weight blkio-weight-device cap-add cap-drop cert-dir
cgroup-conf cgroup-parent cgroupns cgroups chrootdirs cidfile conmon-pidfile cpu-period cpu-quota cpu-rt-period
cpu-rt-runtime cpu-shares:c cpus cpuset-cpus cpuset-mems creds decryption-key detach:d detach-keys device
device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops disable-content-trust dns
dns-option dns-search entrypoint env:e env-file env-host env-merge expose gidmap gpus group-add group-entry health-cmd
health-interval health-log-destination health-max-log-count health-max-log-size health-on-failure health-retries
health-start-period health-startup-cmd health-startup-interval health-startup-retries health-startup-success
health-startup-timeout health-timeout help hostname:h hosts-file hostuser http-proxy image-volume init init-ctr
init-path interactive:i ip ip6 ipc label:l label-file log-driver log-opt mac-address memory:m memory-reservation
memory-swap memory-swappiness mount name network network-alias no-healthcheck no-hostname no-hosts oom-kill-disable
oom-score-adj os passwd passwd-entry personality pid pidfile pids-limit platform pod pod-id-file preserve-fd
preserve-fds privileged publish:p publish-all:P pull quiet:q rdt-class read-only read-only-tmpfs replace requires
restart retry retry-delay rm rmi rootfs sdnotify seccomp-policy secret security-opt shm-size shm-size-systemd
sig-proxy stop-signal stop-timeout subgidname subuidname sysctl systemd timeout tls-verify tmpfs tty:t tz uidmap
ulimit umask unsetenv unsetenv-all user:u userns uts variant volume:v volumes-from workdir:w
dns-opt healthcheck-command healthcheck-interval healthcheck-retries healthcheck-start-period healthcheck-timeout
kernel-memory net override-arch override-os override-variant signature-policy link-local-ip"""

# docker CLI 29.8: docs/reference/commandline, and the plugins that come with it.
DOCKER_VERBS = """attach bake build builder buildx checkpoint commit compose config container context cp create diff
events exec export help history image images import info inspect kill load login logout logs manifest network node
pause plugin port ps pull push rename restart rm rmi run save search secret service stack start stats stop swarm
system tag top trust unpause update version volume wait"""

# podman 6.0: docs/source/markdown/podman-*.1.
PODMAN_VERBS = """artifact attach auto-update build builder buildx commit completion compose container context cp
create diff events exec export farm generate healthcheck help history image images import info init inspect kill kube
load login logout logs machine manifest mount network pause play pod port ps pull push quadlet rename restart rm rmi
run save search secret start stats stop system tag top umount unmount unpause unshare untag update version
volume wait"""

# Below the words that exitctl takes, both tools' verbs.
BELOW = {
    "network": "connect create disconnect exists inspect list ls prune reload remove rm update",
    "volume": "create exists export import inspect list ls mount prune reload remove rm unmount update",
    "container": """attach checkpoint cleanup clone commit cp create diff exec exists export init inspect kill list logs
        ls mount pause port prune ps remove rename restart restore rm run runlabel start stats stop top umount unmount
        unpause update wait""",
    "image": """build diff exists history import inspect list load ls mount prune pull push remove rm rmi save scp
        search sign tag tree trust umount unmount untag""",
    "kube": "apply down generate play",
    "pod": """clone create exists inspect kill list logs ls pause prune ps restart rm start stats stop top unpause""",
    "system": "check connection df dial-stdio events hyperv-prep info migrate prune renumber reset service",
}


def options(names: str) -> dict[str, str]:
    """Return the short option, or an empty word, by the long one: `{"--env": "-e"}`."""
    split = (word.partition(":") for word in names.split())
    return {f"--{long}": f"-{short}" if short else "" for long, _, short in split}


def verbs() -> list[str]:
    """Return the verbs of both tools, `images` and `image list`, in the order of the alphabet."""
    above = {*DOCKER_VERBS.split(), *PODMAN_VERBS.split()}
    below = {f"{group} {verb}" for group, names in BELOW.items() for verb in names.split()}
    return sorted(above | below)
