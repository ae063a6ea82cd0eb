"""The names that docker and podman have: options and verbs. Names alone, to hold exitctl against."""

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

# Options of the verbs that exitctl has, by its own words for them; "" has those before a verb. Verbs without any are
# left out. docker CLI 29.8: docs/reference/commandline/*.md, cli/flags/options.go; the hidden: files of cli/command.
DOCKER_OF = {
    "": "config context:c debug:D host:H log-level:l tls tlscacert tlscert tlskey tlsverify version:v",
    "ps": "all:a filter:f format last:n latest:l no-trunc quiet:q size:s",
    "rm": "force:f link:l volumes:v",
    "stop": "signal:s timeout:t time",
    "kill": "signal:s",
    "start": "attach:a checkpoint checkpoint-dir detach-keys interactive:i",
    "restart": "signal:s timeout:t time",
    "logs": "details follow:f since tail:n timestamps:t until",
    "events": "filter:f format since until",
    "inspect": "format:f size:s type",
    "exec": "detach:d detach-keys env:e env-file interactive:i privileged tty:t user:u workdir:w",
    "attach": "detach-keys no-stdin sig-proxy",
    "stats": "all:a format no-stream no-trunc",
    "cp": "archive:a follow-link:L quiet:q",
    "export": "output:o",
    "commit": "author:a change:c message:m no-pause pause:p",
    "update": """blkio-weight cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares:c cpus cpuset-cpus
        cpuset-mems memory:m memory-reservation memory-swap pids-limit restart kernel-memory""",
    "container prune": "filter force:f",
    "image ls": "all:a digests filter:f format no-trunc quiet:q tree",
    "image rm": "force:f no-prune platform",
    "image pull": "all-tags:a platform quiet:q disable-content-trust",
    "image load": "input:i platform quiet:q",
    "image save": "output:o platform",
    "image history": "format human:H no-trunc platform quiet:q",
    "image import": "change:c message:m platform",
    "image inspect": "format:f platform",
    "image prune": "all:a filter force:f",
    "volume create": """availability driver:d group label limit-bytes opt:o required-bytes scope secret sharing
        topology-preferred topology-required type name""",
    "volume ls": "cluster filter:f format quiet:q",
    "volume inspect": "format:f",
    "volume rm": "force:f",
    "volume prune": "all:a filter force:f",
    "network ls": "filter:f format no-trunc quiet:q",
    "network inspect": "format:f verbose:v",
    "network prune": "filter force:f",
    "system df": "format verbose:v",
    "system prune": "all:a filter force:f volumes",
    "info": "format:f",
    "version": "format:f",
}

# podman 6.0: docs/source/markdown/podman-*.1.md; hidden ones: the verb's file in cmd/podman, and root.go there.
PODMAN_OF = {
    "": """cdi-spec-dir cgroup-manager config conmon connection:c events-backend hooks-dir identity imagestore
        log-level module network-config-dir out remote:r root runroot runtime runtime-flag ssh
        storage-driver storage-opt syslog tls-ca tls-cert tls-details tls-key tmpdir transient-store url
        version:v volumepath host:H context debug:D noout cpu-profile memory-profile default-mounts-file
        max-workers namespace network-backend pull-option registries-conf trace""",
    "ps": """all:a external filter:f format last:n latest:l namespace ns no-trunc noheading pod:p quiet:q size:s
        sort sync watch:w""",
    "rm": "all:a cidfile depend filter force:f ignore:i latest:l time:t volumes:v",
    "stop": "all:a cidfile filter:f ignore:i latest:l time:t timeout service",
    "kill": "all:a cidfile latest:l signal:s",
    "start": "all attach:a detach-keys filter:f interactive:i latest:l sig-proxy",
    "restart": "all:a cidfile filter:f latest:l running time:t timeout",
    "pause": "all:a cidfile filter:f latest:l",
    "unpause": "all:a cidfile filter:f latest:l",
    "logs": "color follow:f latest:l names:n since tail timestamps:t until details",
    "events": "filter:f format no-trunc since stream until",
    "inspect": "format:f latest:l size:s type:t",
    "exec": """cidfile detach:d detach-keys env:e env-file interactive:i latest:l no-session preserve-fd
        preserve-fds privileged tty:t user:u workdir:w wait""",
    "attach": "detach-keys latest:l no-stdin sig-proxy",
    "wait": "condition exit-first-match ignore interval:i latest:l",
    "top": "latest:l list-descriptors",
    "stats": "all:a format interval:i latest:l no-reset no-stream no-trunc",
    "cp": "archive:a overwrite extract pause",
    "diff": "format latest:l",
    "export": "output:o",
    "commit": "author:a change:c config format:f iidfile include-volumes message:m pause:p quiet:q squash:s",
    "port": "all:a latest:l",
    "update": """blkio-weight blkio-weight-device cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares:c cpus
        cpuset-cpus cpuset-mems device-read-bps device-read-iops device-write-bps device-write-iops env:e
        health-cmd health-interval health-log-destination health-max-log-count health-max-log-size
        health-on-failure health-retries health-start-period health-startup-cmd health-startup-interval
        health-startup-retries health-startup-success health-startup-timeout health-timeout latest:l
        memory:m memory-reservation memory-swap memory-swappiness no-healthcheck pids-limit restart ulimit
        unsetenv""",
    "container prune": "filter force:f",
    "image ls": "all:a digests filter:f format history no-trunc noheading:n quiet:q sort",
    "image rm": "all:a force:f ignore:i no-prune",
    "image pull": """all-tags:a arch authfile cert-dir creds decryption-key disable-content-trust os platform policy
        quiet:q retry retry-delay tls-verify variant signature-policy""",
    "image load": "input:i quiet:q signature-policy",
    "image save": "compress format multi-image-archive:m output:o quiet:q uncompressed signature-policy",
    "image history": "format human:H no-trunc quiet:q",
    "image import": "arch change:c message:m os quiet:q variant signature-policy",
    "image inspect": "format:f",
    "image prune": "all:a build-cache external filter force:f",
    "volume create": "driver:d gid ignore label:l opt:o uid",
    "volume ls": "filter:f format noheading:n quiet:q",
    "volume inspect": "all:a format:f",
    "volume rm": "all:a force:f time:t",
    "volume prune": "all:a dry-run filter force:f",
    "network ls": "filter:f format no-trunc noheading:n quiet:q",
    "network inspect": "format:f",
    "network prune": "filter force:f",
    "system df": "format verbose:v",
    "system prune": "all:a build external filter force:f volumes",
    "info": "format:f debug:D",
    "version": "format:f",
    "healthcheck run": "ignore-result",
    "completion": "file:f no-desc",
    "pods": "ctr-ids ctr-names ctr-status filter:f format latest:l namespace ns no-trunc noheading:n quiet:q sort",
    "rmp": "all:a force:f ignore:i latest:l pod-id-file time:t",
    "stopp": "all:a ignore:i latest:l pod-id-file time:t timeout",
    "inspectp": "format:f latest:l",
    "play": """annotation authfile build cert-dir configmap context-dir creds force ip log-driver log-opt
        mac-address network net no-hostname no-hosts no-pod-prefix publish publish-all quiet:q replace
        seccomp-profile-root start tls-verify userns wait:w down no-trunc signature-policy service-container
        service-exit-code-propagation""",
}


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


def of_verb(verb: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return docker's and podman's options of one of exitctl's verbs, as `options` does."""
    if verb in ("run", "create"):
        return options(DOCKER), options(PODMAN)
    return options(DOCKER_OF.get(verb, "")), options(PODMAN_OF.get(verb, ""))


def with_options() -> list[str]:
    """Return the verbs of exitctl's, but for run and create, with which either tool has options."""
    return sorted({*DOCKER_OF, *PODMAN_OF})


def verbs() -> list[str]:
    """Return the verbs of both tools, `images` and `image list`, in the order of the alphabet."""
    above = {*DOCKER_VERBS.split(), *PODMAN_VERBS.split()}
    below = {f"{group} {verb}" for group, names in BELOW.items() for verb in names.split()}
    return sorted(above | below)
