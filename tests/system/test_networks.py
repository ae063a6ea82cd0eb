"""Networks by CNI's own plugins, for containers and pods: made before a run, taken down once after it, and shown."""

import json
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from tests.supervisor.images.building import Made
from tests.system import daemons, images, networks
from tests.system.daemons import Daemon
from tests.system.exitctl import Cli
from tests.system.networks import ADDRESS, NOTHING, Net
from tests.system.waits import LIMIT_SECONDS, until

SERVE = "import socket; s = socket.create_server(('', 80)); c = s.accept()[0]; c.sendall(b'hello'); c.close()"


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    with networks.net() as made:
        made.write_second()
        yield made


@pytest.fixture(scope="module")
def daemon(net: Net) -> Iterator[Daemon]:
    with networks.daemon(net) as made:
        yield made


@pytest.fixture
def cli(daemon: Daemon, net: Net) -> Iterator[Cli]:
    with networks.cli(daemon, net) as made:
        yield made


def answer(net: Net, address: str, port: int) -> bytes:
    """What is read at a port of the daemon's namespace. The thread that asks is in that namespace, and no other."""
    found: list[bytes] = []

    def ask() -> None:
        fd = os.open(net.path, os.O_RDONLY)
        networks.enter(fd)
        os.close(fd)
        with socket.create_connection((address, port), LIMIT_SECONDS) as line:
            found.append(line.recv(100))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return b"".join(found)


def test_a_container_has_the_networks_address_and_its_own_names_lead_there(cli: Cli, net: Net) -> None:
    cli.background("web", "--hostname", "web", "sleep", "1000")
    address = cli.field("web", ADDRESS)
    assert net.leases() == [address]
    assert cli.field("web", ".HostConfig.NetworkMode") == "pods"
    assert cli.field("web", ".NetworkSettings.IPAddress") == address
    assert cli.field("web", ".NetworkSettings.Gateway") == "10.99.0.1"
    inside = cli.ok("exec", "web", "sh", "-c", "ip -4 -o address show dev eth0; cat /etc/hosts; ip route")
    assert f"inet {address}/24" in inside and f"{address}\tweb" in inside and "default via 10.99.0.1" in inside
    assert cli.ok("exec", "web", "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start") == "0"
    (shown,) = json.loads(cli.ok("network", "inspect", "pods"))
    assert shown["Containers"] == [cli.field("web", ".Id")]


def test_containers_of_a_network_reach_each_other_and_a_parameter_of_the_network_is_their_own(cli: Cli) -> None:
    cli.background("one", "--sysctl", "net.core.somaxconn=77", "sleep", "1000")
    said = cli.run("--rm", "ping", "-c", "1", "-W", "20", cli.field("one", ADDRESS))
    assert said.code == 0, said
    assert cli.ok("exec", "one", "cat", "/proc/sys/net/core/somaxconn") == "77"


def test_none_and_host_are_as_ever(cli: Cli, net: Net) -> None:
    for name in ("none", "host"):
        shown = cli.run("--rm", "--network", name, "ls", "/sys/class/net").out.split()
        assert ("exitd0" in shown) is (name == "host") and "eth0" not in shown
    assert net.leases() == []


def test_a_published_port_leads_to_the_container_and_is_shown_everywhere(cli: Cli, net: Net) -> None:
    cli.background("web", "-p", "8080:80", "-p", "127.0.0.1:9000-9001:9000-9001/udp", "python3", "-c", SERVE)
    until(lambda: ":80" in cli.ok("exec", "web", "sh", "-c", "ss -ltn"), "nothing listens in the container")
    assert answer(net, "10.99.0.1", 8080) == b"hello"
    assert cli.ok("port", "web").splitlines() == [
        "80/tcp -> 0.0.0.0:8080",
        "9000/udp -> 127.0.0.1:9000",
        "9001/udp -> 127.0.0.1:9001",
    ]
    assert cli.ok("port", "web", "80") == "0.0.0.0:8080"
    assert "publishes no port 81/tcp" in cli("port", "web", "81").err
    assert cli.ok("ps", "-a", "--format", "{{.Ports}}").startswith("0.0.0.0:8080->80/tcp, 127.0.0.1:9000->9000/udp")
    assert "PORTS" in cli.ok("ps", "-a").splitlines()[0]
    ports = json.loads(cli.field("web", "json .NetworkSettings.Ports"))
    assert ports["80/tcp"] == [{"HostIp": "0.0.0.0", "HostPort": "8080"}]


def test_a_port_that_another_has_is_refused_and_one_that_is_left_open_is_chosen(cli: Cli, net: Net) -> None:
    cli.background("first", "-p", "8080:80", "sleep", "1000")
    refused = cli("run", "-d", "--name", "second", "-p", "8080:81", "--rootfs", "/", "true")
    assert (refused.code, "published by first already" in refused.err) == (125, True), refused
    cli.background("third", "-P", "--expose", "53/udp", "--expose", "80", "sleep", "1000")
    lines = cli.ok("port", "third").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["53/udp", "80/tcp"]
    assert all(61000 <= int(line.rpartition(":")[2]) <= 65535 for line in lines)
    for words, said in (
        (("-p", "80", "--network", "none"), "leave the ports out"),
        (("-p", "80", "--network", "host"), "they are the machine's"),
        (("--network", "other"), "no network other is configured: there is pods, second"),
        (("--network", "pods", "--network", "none"), "network none: it is the whole network of a container"),
        (("--network", "bridge,pods"), "network pods is there twice"),
        (("--network", "pods:ip=10.99.0.9"), 'network pods gives none that is asked for; add "capabilities"'),
        (("--network", "host", "--ip", "10.99.0.9"), "with network host there is none to choose"),
        (("--network", "none", "--ip6", "fd00::2"), "with network none there is none to choose"),
        (("--network", "second:ip=10.96.0.9", "--ip", "10.96.0.8"), "those of network second are there twice"),
        (("-p", "80", "--network", "second"), "network second has no plugin that publishes ports"),
        (("-p", "1-2:1-3"), "different lengths"),
    ):
        refused = cli("run", *words, "--rootfs", "/", "true")
        assert (refused.code, said in refused.err) == (125, True), refused
    addresses = ("--ip", "10.99.0.9", "--ip6", "fd00::2", "--mac-address", "02:00:00:00:00:01")
    refused = cli("create", "--network", "host", *addresses, "--rootfs", "/", "true")
    assert (refused.code, "with network host there is none to choose" in refused.err) == (125, True), refused


def test_a_container_of_several_networks_has_an_interface_in_each(cli: Cli, net: Net) -> None:
    """The ports are published by the one that does, and addresses are those that were asked for."""
    asked = ("--network", "second", "--network", "pods", "--ip", "10.96.0.77", "--mac-address", "02:00:00:00:00:77")
    cli.background("web", *asked, "-p", "8080:80", "python3", "-c", SERVE)
    until(lambda: ":80" in cli.ok("exec", "web", "sh", "-c", "ss -ltn"), "nothing listens in the container")
    found = json.loads(cli.field("web", "json .NetworkSettings.Networks"))
    assert [(name, each["Interface"]) for name, each in found.items()] == [("second", "eth0"), ("pods", "eth1")]
    first, second = (each["IPAddress"] for each in found.values())
    assert (first, found["second"]["MacAddress"]) == ("10.96.0.77", "02:00:00:00:00:77")
    assert net.leases() == sorted([first, second])
    inside = cli.ok("exec", "web", "sh", "-c", "ip -o address; cat /etc/hosts")
    assert f"eth0    inet {first}/24" in inside and f"eth1    inet {second}/24" in inside and f"{second}\t" in inside
    assert cli.ok("ps", "-q", "--no-trunc", "--filter", "network=pods") == cli.field("web", ".Id")
    for name in ("pods", "second"):
        assert cli.ok("network", "inspect", "--format", "{{len .Containers}}", name) == "1"
    assert answer(net, "10.99.0.1", 8080) == b"hello"
    cli.ok("rm", "-f", "web")
    cli.background("again", "--network", "name=second,ip=10.96.0.77", "sleep", "1000")
    assert net.leases() == ["10.96.0.77"]


def test_ports_that_are_chosen_for_many_at_once_are_never_the_same(cli: Cli, daemon: Daemon) -> None:
    published = [pb.PortMapping(container_port=80)]
    specs = [pb.ContainerSpec(rootfs="/", args=["true"], network="pods", ports=published) for _ in range(20)]
    with daemon.client() as client, ThreadPoolExecutor(len(specs)) as pool:
        made = list(pool.map(client.create, specs))
    ports = [each.spec.ports[0].host_port for each in made]
    assert len(set(ports)) == len(specs) and min(ports) >= 61000


def test_each_run_has_a_network_of_its_own_and_an_ended_container_has_none(cli: Cli, net: Net, daemon: Daemon) -> None:
    cli.background("web", "-p", "8080:80", "sleep", "1000")
    before = net.left(daemon)
    cli.ok("restart", "-t", "0", "web")
    after = net.left(daemon)
    assert [len(after[kind]) for kind in after] == [len(before[kind]) for kind in before]
    assert after["records"] != before["records"] and after["leases"] == [cli.field("web", ADDRESS)]
    cli.ok("stop", "-t", "0", "web")
    until(lambda: net.left(daemon) == NOTHING, f"left behind: {net.left(daemon)}")
    assert cli.field("web", "json .NetworkSettings.Networks") == "{}"


def test_a_pod_has_one_network_and_its_members_are_in_it(cli: Cli, net: Net) -> None:
    sandbox = ("--annotation", "io.kubernetes.docker.type=podsandbox")
    pod = cli.ok("run", "-d", "-p", "8080:80", "--network", "pods,second", *sandbox, "pause")
    member = cli.background("member", "--pod", pod, "sleep", "1000")
    found = json.loads(cli.field(pod, "json .NetworkSettings.Networks"))
    address, other = (each["IPAddress"] for each in found.values())
    assert json.loads(cli.field(member, "json .NetworkSettings.Networks")) == found
    assert net.leases() == sorted([address, other])
    assert f"{address}\t" in cli.ok("exec", member, "cat", "/etc/hosts")
    assert f"inet {address}/24" in cli.ok("exec", member, "ip", "-4", "address", "show", "dev", "eth0")
    for words in (("-p", "81:81"), ("--network", "other"), ("--ip", "10.99.0.9"), ("--network", "pods,second")):
        refused = cli("run", *words, "--pod", pod, "--rootfs", "/", "true")
        assert (refused.code, pod[:12] in refused.err) == (125, True), refused
    assert json.loads(cli.ok("inspectp", pod))["status"]["network"] == {
        "ip": address,
        "additionalIps": [{"ip": other}],
    }


def test_a_sandbox_of_cri_publishes_its_ports(cli: Cli, net: Net, tmp_path: pathlib.Path) -> None:
    config = {
        "metadata": {"name": "shop", "namespace": "x"},
        "port_mappings": [{"host_port": 8080, "container_port": 80}],
    }
    (tmp_path / "shop.json").write_text(json.dumps(config))
    pod = cli.ok("runp", str(tmp_path / "shop.json"))
    cli.background("member", "--pod", pod, "python3", "-c", SERVE)
    until(lambda: ":80" in cli.ok("exec", "member", "sh", "-c", "ss -ltn"), "nothing listens in the pod")
    assert cli.ok("port", pod) == "80/tcp -> 0.0.0.0:8080" and answer(net, "10.99.0.1", 8080) == b"hello"
    cli.ok("rmp", "-f", pod)


def test_a_network_is_taken_down_only_after_the_last_of_its_pod(cli: Cli, net: Net) -> None:
    """Its pause container has ended, and its member, which may live on, is still in its network."""
    sandbox = ("--annotation", "io.kubernetes.docker.type=podsandbox")
    pod = cli.ok("run", "-d", "-p", "8080:80", "--on-pause-exit", "keep", *sandbox, "pause")
    member = cli.background("member", "--pod", pod, "sleep", "1000")
    address = cli.field(pod, ADDRESS)
    cli.ok("kill", pod)
    cli.until_status(pod, "exited")
    until(lambda: cli.field(pod, ".NetworkSettings.IPAddress") == "", "its pause container is not cleaned up")
    assert net.leases() == [address] and net.rules()
    assert f"inet {address}/24" in cli.ok("exec", member, "ip", "-4", "address", "show", "dev", "eth0")
    cli.ok("stop", "-t", "0", "member")
    until(lambda: net.leases() == [] and not net.rules(), "its network is not taken down")


OWN_ADDRESS = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: /
    env: [{name: ME, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    command: [sh, -c, 'echo "$0 $ME"; exec sleep 1000', $(ME)]
"""


def test_in_a_new_sandbox_a_container_that_begins_anew_knows_the_new_address(cli: Cli, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(OWN_ADDRESS)
    cli.ok("play", str(file))
    first = cli.field("web", ADDRESS)
    until(lambda: cli.ok("logs", "web-app") == f"{first} {first}", "it has not begun")
    assert f"ME={first}" in cli.field("web-app", "json .Config.Env")
    os.kill(int(cli.field("web", ".State.Pid")), signal.SIGKILL)
    until(lambda: cli.field("web", ADDRESS) not in ("", first), "no new sandbox")
    second = cli.field("web", ADDRESS)
    until(lambda: f"{second} {second}" in cli.ok("logs", "web-app").splitlines(), "it has not begun anew")
    assert cli.ok("exec", "web-app", "sh", "-c", "echo $ME") == second
    assert f"ME={second}" in cli.field("web-app", "json .Config.Env")
    cli.ok("stopp", "web")
    until(lambda: '"ME="' in cli.field("web-app", "json .Config.Env"), "an ended run has an address")


def test_a_play_is_in_the_networks_that_it_names(cli: Cli, net: Net, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(OWN_ADDRESS)
    cli.ok("play", "--network", "second:ip=10.96.0.77", "--net", "pods", str(file))
    found = json.loads(cli.field("web", "json .NetworkSettings.Networks"))
    assert (list(found), found["second"]["IPAddress"]) == (["second", "pods"], "10.96.0.77")
    until(lambda: cli.ok("logs", "web-app") == "10.96.0.77 10.96.0.77", "it has not begun")
    cli.ok("play", "--down", str(file))
    refused = cli("play", "--network", "absent", str(file))
    assert (refused.code, "absent" in refused.err, cli.ok("pods", "-q")) == (125, True, "")


def test_the_ports_that_an_image_names_are_published_by_p(cli: Cli, net: Net, tmp_path: pathlib.Path) -> None:
    says: dict[str, object] = {"Cmd": ["/bin/true"], "ExposedPorts": {"80/tcp": {}, "9": {}, "no port": {}}}
    layout = images.layout(tmp_path / "image", web=Made([images.base_layer()], says))
    cli.ok("create", "--name", "web", "-P", "-p", "8080:9", "--expose", "81", f"oci:{layout}:web")
    lines = cli.ok("port", "web").splitlines()
    assert lines[0] == "9/tcp -> 0.0.0.0:8080"
    assert sorted(line.partition(" ")[0] for line in lines[1:]) == ["80/tcp", "81/tcp"]


def test_the_networks_that_are_configured_are_listed_with_what_is_wrong(cli: Cli, net: Net) -> None:
    wrong = net.configurations / "20-wrong.conflist"
    wrong.write_text("{")
    open_to_all = net.configurations / "30-open.conflist"
    open_to_all.write_text((net.configurations / "10-pods.conflist").read_text())
    open_to_all.chmod(0o666)
    try:
        said = cli("network", "ls")
        assert said.code == 0 and said.out.splitlines()[1].split()[:2] == ["pods*", "bridge,portmap"]
        first = net.configurations / "05-first.conflist"
        first.write_text("{")
        passed = cli.run("--rm", "true")
        first.unlink()
        assert "05-first.conflist: it is not JSON" in passed.err and "in the next network, pods" in passed.err
        assert "20-wrong.conflist: it is not JSON" in said.err and "30-open.conflist: others than root" in said.err
        assert cli("network", "ls", "-q").out == "pods\nsecond\n"
        shown, _ = json.loads(cli("network", "ls", "--format", "json").out)
        assert (shown["Driver"], shown["Default"], shown["CniVersion"]) == ("bridge", True, "1.0.0")
        assert cli.ok("network", "inspect", "--format", "{{.Driver}}", "pods") == "bridge"
    finally:
        wrong.unlink()
        open_to_all.unlink()
    said = cli("network", "inspect", "none")
    assert (said.code, "no network none" in said.err) == (125, True)
    for verb in ("create", "rm"):
        assert "a network is a file of CNI" in cli("network", verb).err


def test_a_network_that_fails_is_reported_in_the_plugins_words_and_leaves_nothing(cli: Cli, net: Net) -> None:
    one = {"subnet": "10.98.0.0/24", "rangeStart": "10.98.0.5", "rangeEnd": "10.98.0.5"}
    ipam = {"type": "host-local", "dataDir": str(net.base / "leases"), "ranges": [[one]]}
    net.write("full", net.bridge(bridge="exitd1", ipam=ipam), number=40)
    net.write("gone", net.bridge(), {"type": "no-such-plugin"}, number=50)
    try:
        cli.background("first", "--network", "full", "sleep", "1000")
        for name, words in (("full", "network full: bridge ADD: "), ("gone", "no-such-plugin in /usr/lib/cni")):
            said = cli("run", "--network", name, "--rootfs", "/", "true")
            assert (said.code, words in said.err) == (125, True), said
        assert net.leases() == ["10.98.0.5"]
    finally:
        for path in (*net.configurations.glob("40-*"), *net.configurations.glob("50-*")):
            path.unlink()


def test_a_daemon_without_a_network_says_so_in_one_line(net: Net, tmp_path: pathlib.Path) -> None:
    """And one that was asked for none says nothing."""
    (tmp_path / "exitd.toml").write_text(f'[network]\nconf_dir = "{tmp_path}/none"\n')
    config = ("--config", str(tmp_path / "exitd.toml"))
    with daemons.daemon(extra=(*config, "--default-network", "auto")) as made:
        said = Cli(made).run("--rm", "ls", "/sys/class/net")
        assert (said.code, said.out) == (0, "lo\n")
        line = f"exitctl: no network is configured in {tmp_path}/none: the container has a loopback interface alone\n"
        assert said.err == line
        assert Cli(made).run("--rm", "--network", "none", "true").err == ""
        refused = Cli(made)("run", "-p", "80:80", "--rootfs", "/", "true")
        assert (refused.code, "no network bridge is configured: there is none" in refused.err) == (125, True)
        assert "none in" in Cli(made)("doctor").out
