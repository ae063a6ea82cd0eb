"""What exitd's play refuses and podman may do: the second table of docs/play-beside-podman.md. exitd's cells have to be
refusals: a row goes when exitd does what stands in it."""

from dataclasses import dataclass

from tests.vm.beside import Fact, Table

POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\n"
    "spec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n"
)
APP = '  containers:\n  - {name: app, image: "busybox:1.36", command: [sh, -c, COMMAND]MORE}\n'
STAYS = "exec sleep 1000"
PID = "$($T inspect -f '{{.State.Pid}}' %s)"
PORT = 8099  # of the machine's loopback, where nothing else listens
LISTENS = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))' 2>/dev/null"
MAP = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "given"}, "data": {"COLOUR": "blue"}}'
CONTAINERFILE = r'FROM busybox:1.36\nCMD ["sh", "-c", "echo built"]\n'
# podman chooses the users of a user namespace from those of this name.
SUBIDS = (
    "for each in /etc/subuid /etc/subgid; do grep -q containers $each || echo containers:200000:1000000 >>$each; done"
)


@dataclass(frozen=True)
class Wish:
    """A manifest, how it is played, and the fact that shows that it was understood. `refusal`: in exitd's words."""

    text: str
    fact: Fact
    refusal: str
    play: str = "$PLAY $FILE"


def _pod(name: str, command: str, more: str = "", below: str = "") -> str:
    """`more`: fields of the container. `below`: lines of the spec."""
    app = APP.replace("COMMAND", f'"{command}"').replace("MORE", f", {more}" if more else "")
    return POD.replace("NAME", name) + app + below


def _of_host(path: str, type: str) -> str:
    return f"  volumes: [{{name: given, hostPath: {{path: {path}, type: {type}}}}}]\n"


def _device(name: str, path: str, type: str) -> Wish:
    text = _pod(name, STAYS, "volumeMounts: [{name: given, mountPath: /given}]", _of_host(path, type))
    opens = f"$T exec {name}-app sh -c ': </given && echo opened'"
    return Wish(text, Fact(f"`hostPath` of type {type}: the device can be opened", opens, "^opened$"), "hostPath.type")


WISHES = {
    "subpathexpr": Wish(
        _pod(
            "subpathexpr", "echo here >/given/said",
            "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],"
            " volumeMounts: [{name: given, mountPath: /given, subPathExpr: $(POD)}]",
            _of_host("@SHARED@/made", "DirectoryOrCreate"),
        ),
        Fact("`subPathExpr`: a directory of the pod's name", "cat $SHARED/made/subpathexpr/said", "^here$"),
        "volumeMounts[0].subPathExpr",
    ),
    "chardevice": _device("chardevice", "/dev/nvme0", "CharDevice"),
    "blockdevice": _device("blockdevice", "/dev/nvme0n1", "BlockDevice"),
    "configmap": Wish(
        _pod("configmap", "echo $COLOUR", "envFrom: [{configMapRef: {name: given}}]"),
        Fact("`--configmap`: a ConfigMap of another file", "$T logs configmap-app", "^blue$"),
        "--configmap: ",
        f"echo '{MAP}' >$SHARED/map.yaml; $PLAY --configmap $SHARED/map.yaml $FILE",
    ),
    "build": Wish(
        POD.replace("NAME", "build") + '  containers: [{name: app, image: "built:1"}]\n',
        Fact("`--build`: an image of a Containerfile", "$T logs build-app", "^built$"),
        "--build: ",
        f"mkdir -p $SHARED/built; printf '{CONTAINERFILE}' >$SHARED/built/Containerfile;"
        " $PLAY --build --context-dir $SHARED $FILE",
    ),
    "userns": Wish(
        _pod("userns", STAYS),
        Fact("`--userns=auto`: users of its own", f"cat /proc/{PID % 'userns-app'}/uid_map", "^ *0 +[1-9]"),
        "--userns: ",
        f"{SUBIDS}; $PLAY --userns=auto $FILE",
    ),
    "start": Wish(
        _pod("start", STAYS),
        Fact("`--start=false`: made and not begun", "$T inspect -f '{{.State.Status}}' start-app", "^created$"),
        "--start: ",
        "$PLAY --start=false $FILE",
    ),
    "url": Wish(
        _pod("url", "echo fetched"),
        Fact("a file at a URL", "$T logs url-app", "^fetched$"),
        "exitctl fetches no files",
        f"cd $SHARED; python3 -m http.server --bind 127.0.0.1 {PORT} >/dev/null 2>&1 & until {LISTENS}; do :; done;"
        f" $PLAY http://127.0.0.1:{PORT}/url.yaml; status=$?; kill $!; exit $status",
    ),
}  # fmt: skip

TABLE = Table("<!-- measured: behind -->\n", "asked", {name: wish.fact.what for name, wish in WISHES.items()})
