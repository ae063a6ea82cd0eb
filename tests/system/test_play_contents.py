"""ConfigMaps, Secrets, claims and memory as containers see them, and what of a secret anybody else sees: nothing."""

import json
import os
import pathlib
import sqlite3

from supervisor.api.client import Client
from tests.system.daemons import Daemon, left
from tests.system.exitctl import Cli
from tests.system.waits import until

SECRET_WORD = "hunter2-of-the-test"
MANIFEST = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: conf}}
data: {{color: blue, app.conf: "a=1"}}
---
apiVersion: v1
kind: Secret
metadata: {{name: keys}}
stringData: {{password: {SECRET_WORD}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: kept}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes:
  - {{name: c, configMap: {{name: conf, items: [{{key: app.conf, path: sub/app.conf, mode: 0440}}]}}}}
  - {{name: k, secret: {{secretName: keys, defaultMode: 0400}}}}
  - {{name: p, persistentVolumeClaim: {{claimName: kept}}}}
  - {{name: m, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
  initContainers:
  - name: first
    image: /
    command: [sh, -c, 'echo in-memory >/mnt/note && echo kept >/srv/note']
    volumeMounts: [{{name: m, mountPath: /mnt}}, {{name: p, mountPath: /srv}}]
  containers:
  - {{name: other, image: /, command: [sleep, "1000"]}}
  - name: app
    image: /
    env:
    - {{name: COLOR, valueFrom: {{configMapKeyRef: {{name: conf, key: color}}}}}}
    - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: keys, key: password}}}}}}
    command: [sh, -c, 'echo "${{#1}}"; exec sleep "$0"', "1000", $(PASSWORD)]
    volumeMounts:
    - {{name: c, mountPath: /mnt}}
    - {{name: k, mountPath: /media}}
    - {{name: m, mountPath: /srv}}
    - {{name: p, mountPath: /opt}}
    - {{name: k, mountPath: /etc/issue, subPath: password}}
"""


def inside(cli: Cli, *words: str) -> str:
    return cli.ok("exec", "web-app", *words)


def test_a_container_finds_files_variables_volumes_and_memory_and_nobody_else_the_secret(
    daemon: Daemon, cli: Cli, client: Client, tmp_path: pathlib.Path
) -> None:
    before = left(daemon)
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    played = cli("play", str(tmp_path / "pod.yaml"))
    assert (played.code, played.err) == (0, "")

    # what it finds
    assert inside(cli, "cat", "/mnt/sub/app.conf", "/media/password", "/srv/note", "/opt/note", "/etc/issue") == (
        f"a=1{SECRET_WORD}in-memory\nkept\n{SECRET_WORD}"
    )
    assert inside(cli, "sh", "-c", "echo $COLOR $PASSWORD $(cat /proc/1/environ | grep -c hunter2)") == (
        f"blue {SECRET_WORD} 1"
    )
    modes = inside(cli, "stat", "-c", "%a %u %F", "/mnt/sub/app.conf", "/media/password", "/etc/issue")
    assert modes.splitlines() == ["440 0 regular file", "400 0 regular file", "400 0 regular file"]
    assert "Read-only file system" in cli("exec", "web-app", "sh", "-c", "echo x >/media/password").err
    assert inside(cli, "stat", "-f", "-c", "%T %b", "/media", "/srv").splitlines()[0].startswith("tmpfs")
    full = cli("exec", "web-app", "sh", "-c", "head -c 2M /dev/zero >/srv/big")
    assert full.code != 0 and "No space left" in full.err

    # what others see
    container = cli.ok("ps", "-q", "--no-trunc", "--filter", "name=web-app")
    shown = [played.out, *(cli.ok(*words) for words in (("inspect", container), ("ps", "-a"), ("logs", container)))]
    assert shown[-1] == str(len(SECRET_WORD))  # the word itself was among its arguments
    assert not [text for text in shown if SECRET_WORD in text]
    (whole,) = json.loads(shown[1])
    assert "COLOR=blue" in whole["Config"]["Env"] and whole["Config"]["Entrypoint"][-1] == "$(PASSWORD)"
    assert SECRET_WORD not in daemon.log.read_text()
    on_disk = daemon.root / "c" / container
    assert not [path for path in on_disk.glob("files/**/*") if path.is_file() and SECRET_WORD in path.read_text()]
    assert os.path.ismount(on_disk / "secrets") and (on_disk / "secrets").stat().st_mode & 0o777 == 0o700

    # what is left
    cli.ok("play", "--down", str(tmp_path / "pod.yaml"))
    assert cli.ok("volume", "ls", "-q") == "kept"
    cli.ok("volume", "rm", "kept")
    until(lambda: left(daemon) == before, "something is left")


def test_a_next_run_has_the_files_anew_and_a_killed_exitd_loses_nothing_of_them(
    daemon: Daemon, cli: Cli, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    cli("play", str(tmp_path / "pod.yaml"))
    daemon.restart()
    assert inside(cli, "cat", "/media/password") == SECRET_WORD
    cli.ok("restart", "-t", "0", "web-app")
    assert inside(cli, "cat", "/media/password", "/srv/note") == f"{SECRET_WORD}in-memory"
    cli.ok("play", "--down", str(tmp_path / "pod.yaml"))
    cli.ok("volume", "rm", "kept")
    with sqlite3.connect(f"file:{daemon.root}/exitd.db?mode=ro", uri=True) as database:
        assert database.execute("SELECT count(*) FROM containers").fetchone() == (0,)


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: /, command: [sleep, "1000"]}]
"""


def test_down_takes_all_pods_of_a_deployment_however_many_the_file_says_now(
    cli: Cli, client: Client, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(DEPLOYMENT)
    assert cli("play", str(file)).code == 0
    assert sorted(pod.spec.name for pod in client.pods()) == ["web-0", "web-1", "web-2"]
    file.write_text(DEPLOYMENT.replace("3", "1"))
    cli.ok("play", "--down", str(file))
    assert cli.ok("pods", "-q") == ""
    said = cli("play", "--down", str(file))
    assert (said.code, said.err) == (0, "exitctl: no pod of the deployment web: nothing to take down\n")


SUB_PATHS = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce]}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: p, persistentVolumeClaim: {claimName: kept}}
  - {name: e, emptyDir: {}}
  - {name: h, hostPath: {path: DIRECTORY}}
  initContainers:
  - name: first
    image: /
    command: [sh, -c, 'echo made >/mnt/app.conf && mkdir /mnt/real /srv/below && ln -s real /mnt/link']
    volumeMounts: [{name: e, mountPath: /mnt}, {name: p, mountPath: /srv, subPath: a/b}]
  containers:
  - {name: other, image: /, command: [sleep, "1000"]}
  - name: app
    image: /
    command: [sh, -c, 'touch /srv/new /opt/of-host; exec sleep 1000']
    volumeMounts:
    - {name: e, mountPath: /etc/issue, subPath: app.conf}
    - {name: e, mountPath: /media, subPath: link}
    - {name: p, mountPath: /srv, subPath: a/b/below}
    - {name: h, mountPath: /opt, subPath: x/y}
"""


def test_a_path_in_a_volume_is_mounted_alone_also_what_an_init_container_has_made_and_no_link_leads_out(
    daemon: Daemon, cli: Cli, client: Client, tmp_path: pathlib.Path
) -> None:
    before = left(daemon)
    file = tmp_path / "pod.yaml"
    file.write_text(SUB_PATHS.replace("DIRECTORY", str(tmp_path)))
    cli.ok("play", str(file))
    assert inside(cli, "cat", "/etc/issue") == "made"
    assert inside(cli, "sh", "-c", "touch /media/here; ls -A /srv") == "new"
    mounted = inside(cli, "sh", "-c", "awk '$5 == \"/media\" {print $6}' /proc/self/mountinfo")
    assert {"nosuid", "nodev"} <= set(mounted.split(","))
    assert os.listdir(tmp_path / "x" / "y") == ["of-host"]
    volume = pathlib.Path(daemon.root) / "v" / "kept" / "data"
    assert sorted(os.listdir(volume / "a" / "b" / "below")) == ["new"]
    pod = client.inspect("web")
    shared = pathlib.Path(daemon.root) / "c" / pod.id / "volumes" / "e"
    assert os.listdir(shared / "real") == ["here"]

    # a link that a container has planted in the meantime
    (shared / "link").unlink()
    (shared / "link").symlink_to("/etc")
    cli.ok("stop", "web-app")
    again = cli("start", "web-app")
    assert again.code and "mount at /media: the path 'link' of e: File exists" in again.err, again
    # what exitctl cp finds there is the same, and not what the link leads to
    assert cli("cp", "web-app:/srv/new", "-").code == 0
    assert cli("cp", "web-app:/media/passwd", "-").code != 0
    cli.ok("play", "--down", str(file))
    cli.ok("volume", "rm", "kept")
    until(lambda: left(daemon) == before, "something is left")
