"""Pods and images over the API: each call reaches its owner, and each answer is whole."""

from pathlib import Path

import grpc
import pytest

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.model.values import ExitPolicy, OnPauseExit, Pod, Spec
from tests.supervisor.api.fake_node import AT_NS
from tests.supervisor.api.rig import SPEC, Rig, refused, run

POD = pb.PodSpec(name="web", namespace="shop", uid="u1", attempt=2, on_pause_exit="keep", exit_policy="stop")


def test_a_pod_is_run_with_what_was_asked(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        spec = pb.ContainerSpec(args=["/pause"], rootfs="/", pod=POD)
        reply = await rig.exitd.RunPod(pb.RunPodRequest(spec=spec))
        asked = rig.node.asked[-1][1]
        assert isinstance(asked, Spec)
        assert asked.pod == Pod("web", "shop", "u1", 2, OnPauseExit.KEEP, ExitPolicy.STOP)
        assert reply.pod.spec == POD
        assert (reply.pod.id, reply.pod.state, reply.pod.members[0].id) == ("p1", "SANDBOX_READY", "c1")

    run(tmp_path, test)


def test_pods_are_stopped_listed_shown_and_removed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        assert (await rig.exitd.StopPod(pb.StopPodRequest(id="p1", timeout_seconds=3))).pod.id == "p1"
        assert (await rig.exitd.ListPods(pb.ListPodsRequest(filters=["state=Ready"]))).seq == 17
        assert (await rig.exitd.InspectPod(pb.InspectPodRequest(id="p1"))).pod.pause.id == "p1"
        await rig.exitd.RemovePod(pb.RemovePodRequest(id="p1", force=True))
        calls = [call[0] for call in rig.node.asked]
        assert calls == ["stop_pod", "pods", "inspect_pod", "remove_pod"]
        assert rig.node.asked[0][1:3] == ("p1", 3)

    run(tmp_path, test)


def test_a_wait_for_a_pod_answers_with_its_members_exits(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.exitd.Wait(pb.WaitRequest(id="pod"))
        assert [(exit_.container_id, exit_.code) for exit_ in reply.members] == [("c1", 3), ("c2", 0)]
        assert not reply.HasField("exit")

    run(tmp_path, test)


def test_images_are_loaded_pulled_imported_listed_and_removed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        loaded = await rig.exitd.LoadImage(pb.LoadImageRequest(word="oci:/x", name="a"))
        assert [image.names[0] for image in loaded.images] == ["localhost/a:latest"]
        assert (await rig.exitd.PullImage(pb.PullImageRequest(name="a"))).image.digest == "sha256:2"
        assert (await rig.exitd.ImportImage(pb.ImportImageRequest(path="/t.tar"))).image.id == "sha256:1"
        assert list((await rig.exitd.ListImages(pb.ListImagesRequest())).images[0].users) == ["c1"]
        assert list((await rig.exitd.RemoveImage(pb.RemoveImageRequest(word="a"))).ids) == ["sha256:1"]
        assert rig.node.asked[0] == ("load_image", "oci:/x", "a")

    run(tmp_path, test)


def test_volumes_are_made_listed_and_removed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        made = (await rig.exitd.CreateVolume(pb.CreateVolumeRequest(name="data"))).volume
        assert (made.name, made.path, made.created_at.ToNanoseconds()) == ("data", "/v/data/data", AT_NS)
        (listed,) = (await rig.exitd.ListVolumes(pb.ListVolumesRequest())).volumes
        assert list(listed.containers) == ["c1", "c2"]
        await rig.exitd.RemoveVolume(pb.RemoveVolumeRequest(name="data"))
        assert rig.node.asked == [("create_volume", "data"), ("list_volumes",), ("remove_volume", "data")]
        for name in ("", "../x", "a/b", ".gone-1", "x" * 64):
            for call, ask in (
                (rig.exitd.CreateVolume, pb.CreateVolumeRequest),
                (rig.exitd.RemoveVolume, pb.RemoveVolumeRequest),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match="the name of a volume"):
                    await call(ask(name=name))

    run(tmp_path, test)


def test_networks_are_listed_with_the_files_that_are_none(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        good, bad = (await rig.exitd.ListNetworks(pb.ListNetworksRequest())).networks
        assert (good.name, good.cni_version, list(good.plugins)) == ("pods", "1.0.0", ["bridge", "portmap"])
        assert (good.default, good.publishes, good.config, list(good.containers)) == (True, True, "{}", ["c1"])
        assert (bad.file, bad.name, bad.error) == ("/n/2.conflist", "", "it is not JSON")
        assert rig.node.asked == [("list_networks",)]

    run(tmp_path, test)


def test_what_of_networks_cannot_be_taken_down_is_listed_and_given_up(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        (stuck,) = (await rig.exitd.ListNetworks(pb.ListNetworksRequest())).stuck
        assert (stuck.record, stuck.container, stuck.run, list(stuck.networks)) == ("c1-2", "c1", 2, ["pods"])
        assert (stuck.ports[0].host_port, stuck.tries, stuck.why) == (8080, 3, "the switch does not answer")
        pruned = await rig.exitd.PruneNetworks(pb.PruneNetworksRequest())
        assert (list(pruned.given_up), list(pruned.taken_down)) == ([stuck], [])
        assert rig.node.asked == [("list_networks",), ("prune_networks",)]

    run(tmp_path, test)


def test_what_is_taken_of_the_disk_is_asked_and_answered_whole(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.exitd.DiskUsage(pb.DiskUsageRequest(ids=["c1"], images=True))
        one = pb.ContainerUsage(id="c1", active=True, layer_bytes=5, log_files=2, log_bytes=7)
        assert list(reply.containers) == [one]
        assert reply.images == pb.Occupied(count=3, active=2, bytes=9, complete=True)
        assert reply.layers == pb.Occupied(count=4, active=1, bytes=8)
        assert rig.node.asked == [("disk_usage", ("c1",), True)]

    run(tmp_path, test)


def test_what_cannot_be_a_pod_is_refused_by_field(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for pod, field in (
            (pb.PodSpec(name="a b"), "pod.name"),
            (pb.PodSpec(on_pause_exit="explode"), "pod.on_pause_exit"),
            (pb.PodSpec(exit_policy="maybe"), "pod.exit_policy"),
            (pb.PodSpec(log_directory="logs"), "pod.log_directory"),
        ):
            spec = pb.ContainerSpec()
            spec.CopyFrom(SPEC)
            spec.pod.CopyFrom(pod)
            error = await refused(rig.exitd.RunPod(pb.RunPodRequest(spec=spec)))
            assert field in str(error), field

    run(tmp_path, test)


def test_the_host_goes_down_with_a_limit_and_without_one_nothing_is_stopped(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for limit in (0, 601):
            error = await refused(rig.exitd.ShutDownNode(pb.ShutDownNodeRequest(limit_seconds=limit)))
            assert "limit_seconds" in str(error)
        assert rig.node.asked == []
        reply = await rig.exitd.ShutDownNode(pb.ShutDownNodeRequest(limit_seconds=30))
        assert (list(reply.ended), list(reply.left), rig.node.asked) == (["c1"], ["c2"], [("shut_down_node", 30)])

    run(tmp_path, test)
