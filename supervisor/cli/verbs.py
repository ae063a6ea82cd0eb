"""docker's and podman's verbs: those that are another word for one of exitctl's, and what to do instead of the others.

Loaded when a verb was typed that is not exitctl's own, and for docs/cli.md.
"""

_CONTAINERS = (
    *("attach", "create", "exec", "inspect", "kill", "logs", "pause", "ps", "restart", "rm", "run"),
    *("commit", "cp", "diff", "export", "rename", "start", "stats", "stop", "top", "unpause", "update", "wait"),
)
SAME = {
    "images": "image ls",
    "import": "image import",
    "load": "image load",
    "pull": "image pull",
    "rmi": "image rm",
    "history": "image history",
    "save": "image save",
    "tag": "image tag",
    "untag": "image untag",
    "image list": "image ls",
    "image remove": "image rm",
    "image rmi": "image rm",
    **{f"container {verb}": verb for verb in _CONTAINERS},
    "network list": "network ls",
    "container port": "port",
    "volume list": "volume ls",
    "volume remove": "volume rm",
    "container list": "ps",
    "container ls": "ps",
    "container remove": "rm",
    "kube play": "play",
    "pod inspect": "inspectp",
    "pod list": "pods",
    "pod ls": "pods",
    "pod ps": "pods",
    "pod rm": "rmp",
    "pod stop": "stopp",
    "system events": "events",
    "system info": "info",
}
GROUPS = {
    "kube": "Manifests of Kubernetes, in podman's words.",
    "pod": "Pods, in podman's words.",
}

_BUILD = "exitd builds no images; build with docker, podman or buildah, then exitctl image load FILE"
_NETWORK = "a network is a file of CNI below /etc/cni/net.d: write or remove it there (docs/networks.md)"
_JOIN = "a container keeps its network; make it anew in the other one: exitctl run --network NAME"
_SWARM = "exitd is for one machine; for several: Kubernetes, with exitd below containerd (docs/containerd.md)"
_REGISTRY = "skopeo talks to registries for exitd: skopeo"
_PUSH = (
    "save it, and let skopeo push it: exitctl image save -o FILE NAME; skopeo copy docker-archive:FILE docker://NAME"
)
_PRUNE = "remove what has ended: exitctl container prune; with images: exitctl system prune"
_CHECKPOINT = "exitd makes no checkpoints; stop the container and start it again: exitctl restart ID"
_MOUNT = "a running container's files are below /proc/PID/root, with the pid of exitctl inspect -f '{{.State.Pid}}' ID"
_VOLUME_FILES = "its files are a directory of this machine: exitctl volume inspect -f '{{.Mountpoint}}' NAME"
_EXISTS = "its code answers: exitctl inspect ID >/dev/null"
_KUBE = "write a manifest of a Pod, and run it by exitctl play"
_MACHINE = "exitd runs on Linux itself, and has no virtual machine"
_UNIT = "exitd starts containers again by itself, also after a boot: exitctl run --restart always"
_SIGN = "exitd signs no images; what must be signed, /etc/containers/policy.json says"
_TREE = "exitctl image inspect NAME shows its layers, and exitctl history NAME their steps"

REFUSED = {
    "volume exists": "its code answers: exitctl volume inspect NAME >/dev/null",
    "volume export": _VOLUME_FILES,
    "volume import": _VOLUME_FILES,
    "volume mount": _VOLUME_FILES,
    "volume reload": "exitd has no drivers of volumes; what is there: exitctl volume ls",
    "volume unmount": _VOLUME_FILES,
    "volume update": "a volume has nothing but its files; options are a mount's: exitctl run -v NAME:/DIR:OPTION",
    "artifact": "exitd keeps images only; skopeo copies artifacts, too",
    "auto-update": "pull the image, exitctl image pull NAME, then make the container anew: exitctl rm -f, exitctl run",
    "bake": _BUILD,
    "build": _BUILD,
    "builder": _BUILD,
    "buildx": _BUILD,
    "checkpoint": _CHECKPOINT,
    "compose": "write the containers as a Pod of Kubernetes: exitctl play FILE",
    "config": _SWARM,
    "context": "name another daemon by its socket: exitctl --address SOCKET",
    "farm": _BUILD,
    "generate": f"{_UNIT}; for Kubernetes, write a manifest of a Pod: exitctl play FILE",
    "init": "exitctl start prepares and starts in one; exitctl create makes a container that has not run",
    "login": f"{_REGISTRY} login REGISTRY, as root",
    "logout": f"{_REGISTRY} logout REGISTRY, as root",
    "machine": _MACHINE,
    "manifest": f"{_REGISTRY} inspect --raw docker://NAME",
    "mount": _MOUNT,
    "network create": _NETWORK,
    "network connect": _JOIN,
    "network disconnect": _JOIN,
    "network exists": "its code answers: exitctl network inspect NAME >/dev/null",
    "network reload": "restart the container: exitctl restart ID",
    "network remove": _NETWORK,
    "network rm": _NETWORK,
    "network update": _NETWORK,
    "node": _SWARM,
    "plugin": "exitd has no plugins; other runtimes are named in its configuration (docs/configuration.md)",
    "push": _PUSH,
    "quadlet": _UNIT,
    "search": f"{_REGISTRY} list-tags docker://NAME",
    "secret": "exitd keeps no secrets; bind the file: exitctl run -v FILE:/run/secrets/NAME:ro",
    "service": _SWARM,
    "stack": _SWARM,
    "swarm": _SWARM,
    "trust": _SIGN,
    "umount": _MOUNT,
    "unmount": _MOUNT,
    "unshare": "exitd runs as root, without a user namespace; unshare(1) makes one",
    "container checkpoint": _CHECKPOINT,
    "container cleanup": "exitd cleans up after each end by itself",
    "container clone": "exitctl inspect ID shows what it was made of; make another with exitctl run",
    "container exists": _EXISTS,
    "container init": "exitctl start prepares and starts in one; exitctl create makes a container that has not run",
    "container mount": _MOUNT,
    "container restore": _CHECKPOINT,
    "container runlabel": "exitd runs no commands that an image names; type the command: exitctl run",
    "container umount": _MOUNT,
    "container unmount": _MOUNT,
    "image build": _BUILD,
    "image diff": "exitd compares no images; unpack both with skopeo and umoci, then diff -r",
    "image mount": "look into it from a container: exitctl run --rm -it --entrypoint sh IMAGE",
    "image push": _PUSH,
    "image scp": "exitctl save NAME | ssh HOST exitctl load",
    "image search": f"{_REGISTRY} list-tags docker://NAME",
    "image sign": _SIGN,
    "image tree": _TREE,
    "image trust": _SIGN,
    "image umount": "exitd mounts no images by themselves; there is nothing to undo",
    "image unmount": "exitd mounts no images by themselves; there is nothing to undo",
    "kube apply": "exitd makes pods on this machine alone: exitctl play FILE; for a cluster: kubectl apply -f FILE",
    "kube down": "exitctl play --down FILE",
    "kube generate": _KUBE,
    "pod clone": "run its manifest again under another name: exitctl play FILE",
    "pod create": "exitctl runp CONFIG, exitctl play FILE, or a pause container (docs/pods.md)",
    "pod exists": "its code answers: exitctl inspectp POD >/dev/null",
    "pod kill": "exitctl stopp -t 0 POD",
    "pod logs": "exitctl logs ID, for each of its containers: exitctl ps --pod POD",
    "pod pause": "exitctl pause ID, for each of its containers: exitctl ps -q --pod POD",
    "pod prune": "exitctl rmp POD; those that are not ready: exitctl pods -q --state notready",
    "pod restart": "exitctl restart ID, for each of its containers: exitctl ps -q --pod POD",
    "pod start": "exitctl start ID: the pause container, whose id is the pod's, then its members",
    "pod stats": "exitctl stats ID, for each of its containers: exitctl ps -q --pod POD",
    "pod top": "exitctl exec ID ps aux, for each of its containers: exitctl ps --pod POD",
    "pod unpause": "exitctl unpause ID, for each of its containers: exitctl ps -q --pod POD",
    "system check": "exitctl doctor looks at this machine",
    "system connection": "name another daemon by its socket: exitctl --address SOCKET",
    "system dial-stdio": "exitd answers at its socket: exitctl --address SOCKET",
    "system hyperv-prep": _MACHINE,
    "system migrate": "containers live on over an upgrade of exitd (docs/upgrading.md)",
    "system renumber": "exitd has no locks that are numbered; exitctl doctor looks at this machine",
    "system reset": "exitctl rm -f $(exitctl ps -aq), then exitctl image rm for each image of exitctl image ls -q",
    "system service": "the daemon is exitd itself: systemctl start exitd",
}
