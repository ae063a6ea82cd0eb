"""One to three lines to type for every verb, each with what it does. Loaded for help and for the manual pages.

The words of a line are held to the commands by a test: each can be typed as it stands here.
"""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        (
            "exitctl run --rm docker://busybox sh -c 'exit 7'",
            "run a command to its end, and exit as it does",
        ),
        (
            "exitctl run -d --name web -m 64m --restart on-failure:3 docker://nginx",
            "in the background, with limits",
        ),
        ("exitctl run -it --rm -v data:/data docker://debian bash", "a shell with a terminal and a named volume"),
    ),
    "create": (
        ("exitctl create --name web docker://nginx", "make a container that `start` begins"),
        ("exitctl create --replace --name web -e LEVEL=debug docker://nginx", "in place of the one of that name"),
    ),
    "exec": (
        ("exitctl exec web ls /etc", "run another command in it, and exit with its code"),
        ("exitctl exec -it web sh", "a shell in it"),
    ),
    "attach": (("exitctl attach web", "see what it writes from now on; ctrl-p ctrl-q leaves it"),),
    "start": (("exitctl start web db", "start created containers, or begin new runs of ended ones"),),
    "stop": (
        ("exitctl stop web", "send its stop signal, then SIGKILL after its grace period"),
        ("exitctl stop -t 60 web db", "with a minute of grace"),
    ),
    "kill": (
        ("exitctl kill web", "SIGKILL"),
        ("exitctl kill -s HUP web", "another signal, as for reading its configuration again"),
    ),
    "restart": (("exitctl restart web", "stop it, and begin a new run"),),
    "rename": (("exitctl rename web old-web", "give it another name"),),
    "update": (
        ("exitctl update --memory 256m --cpus 1.5 web", "change its limits while it runs"),
        ("exitctl update --cpus 0 --restart unless-stopped web", "take a limit away, and change what follows its end"),
    ),
    "stats": (
        ("exitctl stats", "what running containers use, as it changes"),
        ("exitctl stats --no-stream --format json web", "once, as JSON"),
    ),
    "cp": (
        ("exitctl cp web:/etc/nginx/nginx.conf .", "bring a file out of a container"),
        ("exitctl cp ./conf.d/. web:/etc/nginx/conf.d", "bring what is in a directory into it"),
        ("exitctl cp web:/var/log - >log.tar", "as a tar"),
    ),
    "diff": (("exitctl diff web", "what it has added, changed and deleted of its image's files"),),
    "export": (
        ("exitctl export -o web.tar web", "its root file system as a tar"),
        ("exitctl export web | exitctl image import - web:copy", "an image of that"),
    ),
    "commit": (
        ("exitctl commit web web:mine", "make an image of what it has become"),
        ("exitctl commit -c 'ENV LEVEL=debug' -m 'with a patch' web web:2", "with other defaults"),
    ),
    "container prune": (
        ("exitctl container prune -f", "remove all containers that do not run"),
        ("exitctl container prune --filter until=24h", "those made before yesterday, after a question"),
    ),
    "healthcheck run": (("exitctl healthcheck run web && echo healthy", "run its health check now"),),
    "network ls": (("exitctl network ls", "the networks that are configured here"),),
    "network inspect": (("exitctl network inspect bridge", "everything about a network, as JSON"),),
    "network prune": (("exitctl network prune", "give up networks of ended runs that cannot be taken down"),),
    "port": (("exitctl port web", "where its ports are published"),),
    "live": (
        ("exitctl live", "how containers end, of every engine on this machine, as they end"),
        ("exitctl live --since 1h --format json", "also those of the last hour, as JSON"),
    ),
    "image inspect": (("exitctl image inspect tiny:1", "everything about an image, as JSON"),),
    "image tag": (("exitctl image tag tiny:1 tiny:latest", "give it a further name"),),
    "image untag": (("exitctl image untag tiny:latest", "take a name away; the image stays"),),
    "image exists": (("exitctl image exists tiny:1", "end with 0 if it is there, 1 if not"),),
    "image save": (("exitctl image save -o tiny.tar tiny:1", "write it as a file that `image load` reads"),),
    "image history": (("exitctl image history tiny:1", "the layers it is made of"),),
    "image prune": (
        ("exitctl image prune -f", "remove images without a name that no container stands on"),
        ("exitctl image prune -a -f", "those with a name, too"),
    ),
    "pause": (("exitctl pause web", "freeze all its processes; unpause lets them go on"),),
    "unpause": (("exitctl unpause web", "let frozen processes go on"),),
    "rm": (
        ("exitctl rm web", "remove an ended container; the ledger keeps its exits"),
        ("exitctl rm -f web", "end it first"),
    ),
    "image ls": (
        ("exitctl image ls", "the images of exitd's own store"),
        ("exitctl image ls --format '{{.Name}}'", "their names alone"),
    ),
    "image load": (
        ("exitctl image load web.tar", "what `docker save` or `podman save` wrote"),
        ("exitctl image load oci:layout:v1 --name web:v1", "one image of an OCI layout, under another name"),
    ),
    "image pull": (("exitctl image pull docker.io/library/busybox", "bring it from a registry into the store"),),
    "image import": (("exitctl image import root.tar tiny:1", "make an image of the tar of a root file system"),),
    "image rm": (("exitctl image rm tiny:1", "remove a name, and with its last name the image"),),
    "volume create": (("exitctl volume create data", "a directory that outlives containers; -v data:/DIR mounts it"),),
    "volume ls": (("exitctl volume ls", "the volumes, and how many containers mount each"),),
    "volume inspect": (("exitctl volume inspect -f '{{.Mountpoint}}' data", "where its files are"),),
    "volume rm": (("exitctl volume rm data", "remove it, with all that is in it"),),
    "volume prune": (("exitctl volume prune -f", "remove those that no container mounts"),),
    "ps": (
        ("exitctl ps -a", "all containers, ended ones too"),
        ("exitctl ps -aq --filter status=exited", "the ids of those that have ended"),
        ("exitctl ps --format '{{.Names}} {{.Status}}'", "by a template"),
    ),
    "top": (
        ("exitctl top web", "its processes"),
        ("exitctl top web -eo pid,rss,args", "in the words of ps(1)"),
    ),
    "inspect": (
        ("exitctl inspect web", "everything about it, as JSON"),
        ("exitctl inspect -f '{{.State.ExitCode}}' web", "one value"),
    ),
    "wait": (
        ("exitctl wait web", "wait for its end, and print its code"),
        ("exitctl wait --exit-code --timeout 60 web", "exit with its code; 124 after a minute"),
    ),
    "pods": (("exitctl pods", "the pods, and whether each is ready"),),
    "runp": (("exitctl runp sandbox-config.json", "make a pod of a CRI sandbox configuration"),),
    "stopp": (("exitctl stopp web", "stop a pod: its members, then its pause container"),),
    "rmp": (("exitctl rmp -f web", "remove a pod and its members, running or not"),),
    "inspectp": (("exitctl inspectp web", "everything about a pod, as JSON"),),
    "play": (
        ("exitctl play pod.yaml", "make the pods of a Kubernetes manifest"),
        ("exitctl play --network pods pod.yaml", "the same in a network of CNI"),
        ("exitctl play --down pod.yaml", "take them away again"),
    ),
    "watch": (
        ("exitctl watch --containerd /run/containerd/containerd.sock", "report how all containers of a containerd end"),
        ("exitctl watch 4711", "report how a process ends"),
        ("exitctl watch --list", "what is watched"),
    ),
    "events": (
        ("exitctl events --since 10m", "what has happened in ten minutes, and what happens"),
        ("exitctl events --filter type=exit --format json", "ends alone, a line of JSON for each"),
        ("exitctl events --from-seq 1 --no-follow", "the whole log"),
    ),
    "logs": (
        ("exitctl logs -f --since 10m web", "what it wrote in ten minutes, and what it writes"),
        ("exitctl logs -n 100 -t web", "its last hundred lines, with their times"),
    ),
    "why": (("exitctl why web", "how it ended, who saw it, who asked for it, and what follows"),),
    "exits": (
        ("exitctl exits --since 24h", "the ends of a day, removed containers included"),
        ("exitctl exits --unknown", "those that no witness saw, with the cause"),
        ("exitctl exits --by reason --since 24h", "how many for each reason"),
    ),
    "system prune": (("exitctl system prune -f", "remove what does not run, and images that nothing uses"),),
    "system df": (("exitctl system df", "what images and containers take of the disk"),),
    "node-shutdown": (("exitctl node-shutdown -t 60", "end all containers, because the host goes down"),),
    "compare": (("exitctl compare --out build/compare", "measure the ways to run pods on this machine, as a page"),),
    "metrics": (("exitctl metrics", "exits, restarts and memory kills in Prometheus' format"),),
    "doctor": (("exitctl doctor", "what this machine has and lacks, with the cure"),),
    "version": (("exitctl version", "the versions of exitctl and exitd"),),
    "info": (("exitctl info", "the daemon's settings and state"),),
    "help": (
        ("exitctl help run", "the options of a verb, with examples"),
        ("exitctl help", "all verbs"),
    ),
    "completion": (("exitctl completion bash", "print what `eval` makes bash complete verbs and names with"),),
}


def of(words: str) -> tuple[tuple[str, str], ...]:
    """Return the examples of a verb, under docker's and podman's spellings too; none for a group of verbs."""
    if words in EXAMPLES:
        return EXAMPLES[words]
    from supervisor.cli import verbs

    return EXAMPLES.get(verbs.SAME.get(words, ""), ())


def epilog(words: str) -> str:
    """Return what stands below the options in a verb's help, as click takes it; empty without examples."""
    found = [f"  # {what}\n  {line}" for line, what in of(words)]
    return "\n".join(("\b", "Examples:", *found)) if found else ""
