"""The client for asyncio: the same methods as `client.Client`, with the same words. One for each event loop."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from exitd_client import attaching, calls, errors, objectcalls, objects, values, wire
from exitd_client.following import Following
from exitd_client.logfollowing import FollowedLog
from exitd_client.spec import PodSpec, SpecFields, UpdateFields
from exitd_client.wire import grpc

import grpc.aio  # isort: skip  # after wire has set how

T = TypeVar("T")


class AsyncClient:
    """exitd on this machine, asked over its socket. Use it with `async with`, in the loop where it was made.

    All is as for `Client`. A task that is cancelled ends its call; what exitd has begun goes on.
    """

    def __init__(self, address: str | None = None, *, reconnect_seconds: float = 60.0) -> None:
        """`address` is the socket; left out, EXITD_ADDRESS or EXITD_STATE say it, as for exitctl. Nothing is asked
        yet. Raises BadRequest."""
        self.path = wire.socket_path(address, os.environ)
        self._reconnect_seconds = reconnect_seconds
        self._channel: grpc.aio.Channel | None = None
        self._stubs: dict[str, Any] = {}
        self._introduction = _Introduction(wire.identity_path(self.path))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and every call that has not ended."""
        if self._channel is not None:
            await self._channel.close()
        self._channel, self._stubs = None, {}
        self._introduction.close()

    async def run(
        self,
        image: str = "",
        args: Sequence[str] = (),
        *,
        replace: bool = False,
        timeout: float | None = None,
        **fields: Unpack[SpecFields],
    ) -> values.Container:
        """Create a container and start it; it runs when this returns, and `wait` has its end.

        `image` is what `exitctl run` takes (docker://NAME, oci:DIR, a name of the store); left out, `rootfs` or
        `bundle` say what it runs on. `replace` first removes the container that has its name.
        """
        deadline = wire.Deadline(timeout)
        made = await self.create(image, args, replace=replace, timeout=timeout, **fields)
        try:
            return await self._ask(calls.start(made.id).within(deadline.left()))
        except errors.ExitdError:
            if fields.get("auto_remove"):  # nothing else would remove one that never ran
                with contextlib.suppress(errors.ExitdError):
                    await self._ask(calls.rm(made.id, force=True))
            raise

    async def create(
        self,
        image: str = "",
        args: Sequence[str] = (),
        *,
        replace: bool = False,
        timeout: float | None = None,
        **fields: Unpack[SpecFields],
    ) -> values.Container:
        """Create a container without starting it. As `run`."""
        deadline = wire.Deadline(timeout)
        call = calls.create(image, args, fields, replaces=replace)
        if calls.is_pulled(call):
            call = calls.with_image(call, await self.pull(image, timeout=timeout))
        return await self._ask(call.within(deadline.left()))

    async def start(self, container: str, *, timeout: float | None = None) -> values.Container:
        """Start a created container, or begin a new run of one that has ended."""
        return await self._ask(calls.start(container).within(timeout))

    async def stop(
        self, container: str, *, grace_seconds: int | None = None, timeout: float | None = None
    ) -> values.Container:
        """Send its stop signal, and SIGKILL after the grace period; it has ended when this returns."""
        spec = await self._spec(container) if grace_seconds is None else {}
        return await self._ask(calls.stop(container, grace_seconds, spec).within(timeout))

    async def restart(
        self, container: str, *, grace_seconds: int | None = None, timeout: float | None = None
    ) -> values.Container:
        """Stop it and begin a new run."""
        spec = await self._spec(container) if grace_seconds is None else {}
        return await self._ask(calls.restart(container, grace_seconds, spec).within(timeout))

    async def kill(
        self,
        container: str,
        signal: str = "SIGKILL",
        *,
        everyone: bool = False,
        exec_id: str = "",
        timeout: float | None = None,
    ) -> None:
        """Send a signal to its first process, or to `everyone` in it; or to an exec's."""
        await self._ask(calls.kill(container, signal, everyone=everyone, exec_id=exec_id).within(timeout))

    async def pause(self, container: str, *, timeout: float | None = None) -> None:
        """Freeze all its processes."""
        await self._ask(calls.pause(container).within(timeout))

    async def resume(self, container: str, *, timeout: float | None = None) -> None:
        """Let a paused container go on."""
        await self._ask(calls.resume(container).within(timeout))

    async def rm(
        self, container: str, *, force: bool = False, volumes: bool = False, timeout: float | None = None
    ) -> None:
        """Remove it; a running one only with `force`, its anonymous volumes with `volumes`. Its exits stay in the
        ledger."""
        await self._ask(calls.rm(container, force=force, volumes=volumes).within(timeout))

    async def rename(self, container: str, name: str, *, timeout: float | None = None) -> None:
        """Give it another name. Its events and ends have the name that it has at their time. Raises NameTaken."""
        await self._ask(calls.rename(container, name).within(timeout))

    async def update(self, container: str, *, timeout: float | None = None, **fields: Unpack[UpdateFields]) -> None:
        """Change its limits, of the run that there is too, and its restart policy; if it fails, all is as before."""
        await self._ask(calls.update(container, fields).within(timeout))

    async def ps(
        self, *, all: bool = False, filters: Sequence[str] = (), timeout: float | None = None
    ) -> tuple[values.Container, ...]:
        """List the containers that run, or `all`. Filters are KEY=VALUE: id, name, status, label, namespace, pod,
        health, exited, ancestor, before, since, volume, network."""
        return await self._ask(calls.ps(all=all, filters=filters).within(timeout))

    async def inspect(self, container: str, *, timeout: float | None = None) -> values.Container:
        """Return everything about a container, or a pod's pause container."""
        return await self._ask(calls.inspect(container).within(timeout))

    async def stats(self, *containers: str, timeout: float | None = None) -> tuple[values.Stats, ...]:
        """Return what these use, or all that run: cpu, memory, network, block devices, processes."""
        return await self._ask(calls.stats(containers).within(timeout))

    async def wait(
        self,
        container: str,
        *,
        condition: str = "exited",
        run: int = 0,
        exec_id: str = "",
        timeout: float | None = None,
    ) -> values.Exit:
        """Return how it ended, once it has: the run that goes on now, or the newest, or `run`; or of an exec.

        `condition`: exited, next-exit, or removed. Raises TimedOut; NeverEnded for one that never ran.
        """
        deadline = wire.Deadline(timeout)
        if condition == "exited" and not run and not exec_id:
            container, run = await self._life(container, deadline)
        call = calls.wait(container, condition=condition, run=run, exec_id=exec_id)
        return await self._ask_again(call, deadline)

    async def wait_pod(self, pod: str, *, timeout: float | None = None) -> tuple[values.Exit, ...]:
        """Return how each member of a pod ended, by creation, once all have for good or the pod has."""
        return await self._ask_again(calls.wait_pod(pod), wire.Deadline(timeout))

    async def exec(
        self,
        container: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        tty: bool = False,
        input: bytes | None = None,
        most_bytes: int = attaching.MOST_BYTES,
        timeout: float | None = None,
    ) -> values.ExecResult:
        """Run another command in a running container, and return its end and all it wrote.

        After `timeout` exitd kills it and what it started: its end has the reason timeout. Raises OutputTooLong when it
        writes more than `most_bytes`.
        """
        fields: dict[str, Any] = {"env": env, "cwd": cwd, "user": user, "tty": tty}
        fields |= {"stdin": input is not None, "attach": True, "timeout_seconds": timeout or 0.0}
        begun = await self._ask(calls.exec(container, args, fields))
        limit = None if timeout is None else timeout + calls.KILL_SECONDS
        output = attaching.Output(most_bytes)
        try:
            await self._attach(attaching.requests(begun, input), output, limit)
        except errors.OutputTooLong:
            with contextlib.suppress(errors.ExitdError):  # it may have ended just now
                await self.kill(begun.container, everyone=True, exec_id=begun.id)
            raise
        end = await self.wait(begun.container, run=begun.run, exec_id=begun.id, timeout=limit)
        return values.ExecResult(id=begun.id, exit=end, stdout=output.stdout, stderr=output.stderr)

    def logs(
        self,
        container: str,
        *,
        follow: bool = False,
        tail: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
        run: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[values.LogPart]:
        """Yield what it wrote, or the last `tail` lines of it. With `follow` until its run has ended, over restarts
        of exitd: no byte is missed, and none comes twice."""
        call = calls.logs(container, follow=follow, tail=tail, since=since, until=until, run=run)
        if follow:
            return self._follow_log(container, call, wire.Deadline(timeout))
        return self._each(call.within(timeout))

    def exits(
        self,
        *,
        since: datetime | None = None,
        container: str = "",
        unknown: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[values.Exit]:
        """Yield the ledger, oldest first, removed containers included."""
        return self._each(calls.exits(since=since, container=container, unknown=unknown).within(timeout))

    def events(
        self,
        *,
        since: int | datetime | None = None,
        until: datetime | None = None,
        filters: Sequence[str] = (),
        follow: bool = True,
        timeout: float | None = None,
    ) -> AsyncIterator[values.Event]:
        """Yield events from a number or time on; left out, what happens once the iteration has begun. Filters are
        KEY=VALUE: id, name, type, namespace.

        Over restarts of exitd it goes on with the next number: nothing is missed, nothing comes twice. Raises
        Compacted where exitd no longer keeps them.
        """
        return self._follow(since, Following(0, until, filters, follow), wire.Deadline(timeout))

    async def images(self, *, timeout: float | None = None) -> tuple[values.Image, ...]:
        """List the images of exitd's own store."""
        return await self._ask(calls.images().within(timeout))

    async def pull(self, image: str, *, if_missing: bool = True, timeout: float | None = None) -> values.Image:
        """Bring an image into the store: docker://NAME, oci:DIR[:TAG], docker-archive:FILE."""
        return await self._ask(calls.pull(image, if_missing=if_missing).within(timeout))

    async def networks(self, *, timeout: float | None = None) -> tuple[values.Network, ...]:
        """List the networks that this machine's administrator has configured, by their files' names."""
        return await self._ask(calls.networks().within(timeout))

    async def pids(self, container: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the pids of all its processes; none when it does not run."""
        return await self._ask(objectcalls.pids(container).within(timeout))

    async def healthcheck(self, container: str, *, timeout: float | None = None) -> objects.HealthResult:
        """Run its health check now, and count the result as any other's."""
        spec = await self._spec(container)
        return await self._ask(objectcalls.healthcheck(container, spec).within(timeout))

    async def resize(
        self, container: str, rows: int, cols: int, *, exec_id: str = "", timeout: float | None = None
    ) -> None:
        """Set the size of its terminal, or of an exec's. Raises WrongState when there is none."""
        await self._ask(objectcalls.resize(container, rows, cols, exec_id).within(timeout))

    async def close_stdin(self, container: str, *, exec_id: str = "", timeout: float | None = None) -> None:
        """Have it read an end of file, behind what others have sent. Raises WrongState with a terminal."""
        await self._ask(objectcalls.close_stdin(container, exec_id).within(timeout))

    async def reopen_log(self, container: str, *, timeout: float | None = None) -> None:
        """Write its log to a new file of its name from now on: the old one was moved."""
        await self._ask(objectcalls.reopen_log(container).within(timeout))

    async def stat_path(
        self, container: str, path: str, *, follow: bool = False, timeout: float | None = None
    ) -> objects.PathStat:
        """Look at a path as the container sees it; `follow` a link at its end. Raises NoSuchPath."""
        return await self._ask(objectcalls.stat_path(container, path, follow=follow).within(timeout))

    def copy_from(
        self, container: str, path: str, *, follow: bool = False, name: str = "", timeout: float | None = None
    ) -> AsyncIterator[bytes]:
        """Yield a file, or a directory with all below it, as the parts of one tar. `name` is its first entry's."""
        return self._each(objectcalls.copy_from(container, path, name, follow=follow).within(timeout))

    async def copy_to(
        self,
        container: str,
        directory: str,
        tar: bytes | Iterable[bytes],
        *,
        keep_owner: bool = False,
        timeout: float | None = None,
    ) -> objects.CopyDone:
        """Put what a tar has into a directory that is there. Its owners are root, unless `keep_owner`."""
        requests = objectcalls.CopyRequests(container, directory, tar, keep_owner=keep_owner)
        metadata = await self._introduction.metadata()
        call = self._stub("CopyTo")(iter(requests), timeout=timeout, metadata=metadata)
        try:
            async for reply in call:
                if (done := objectcalls.copied(reply)) is not None:
                    return done
        except grpc.RpcError as error:
            raise requests.error or wire.failure(error, self.path) from error
        except asyncio.CancelledError:  # also what gRPC makes of an error of the tar's own iterator
            if requests.error is not None:
                raise requests.error from None
            raise
        finally:
            call.cancel()
        raise errors.ExitdError("the copy has ended without an answer")

    def export(self, container: str, *, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield the whole root file system as the parts of one tar, without what is mounted in it."""
        return self._each(objectcalls.export(container).within(timeout))

    def changes(self, container: str, *, timeout: float | None = None) -> AsyncIterator[tuple[objects.Change, ...]]:
        """Yield what it has added, changed and deleted of its image's files, a part of all at a time, by path."""
        return self._each(objectcalls.changes(container).within(timeout))

    async def commit(
        self,
        container: str,
        name: str = "",
        *,
        changes: Sequence[str] = (),
        message: str = "",
        author: str = "",
        pause: bool = True,
        timeout: float | None = None,
    ) -> values.Image:
        """Make an image of it, with its writable layer on top of its own. `changes` are instructions of a Dockerfile;
        its processes stand still meanwhile, unless `pause` is False."""
        return await self._ask(
            objectcalls.commit(container, name, changes, message, author, pause=pause).within(timeout)
        )

    async def run_pod(
        self,
        pod: PodSpec | None = None,
        *,
        image: str = "pause",
        timeout: float | None = None,
        **fields: Unpack[SpecFields],
    ) -> objects.Pod:
        """Create a pod and start its pause container, whose fields these are; ready when this returns. Members are run
        with `sandbox`."""
        return await self._ask(objectcalls.run_pod(pod, image, fields).within(timeout))

    async def stop_pod(
        self, pod: str, *, grace_seconds: int | None = None, timeout: float | None = None
    ) -> objects.Pod:
        """Stop its members, then its pause container."""
        found = await self.inspect_pod(pod, timeout=timeout)
        return await self._ask(objectcalls.stop_pod(found, grace_seconds).within(timeout))

    async def rm_pod(self, pod: str, *, force: bool = False, timeout: float | None = None) -> None:
        """Remove it with its members; a ready one only with `force`."""
        await self._ask(objectcalls.rm_pod(pod, force=force).within(timeout))

    async def pods(self, *, filters: Sequence[str] = (), timeout: float | None = None) -> tuple[objects.Pod, ...]:
        """List the pods. Filters are KEY=VALUE: id, name, namespace, label, state."""
        return await self._ask(objectcalls.pods(filters).within(timeout))

    async def inspect_pod(self, pod: str, *, timeout: float | None = None) -> objects.Pod:
        """Return everything about a pod."""
        return await self._ask(objectcalls.inspect_pod(pod).within(timeout))

    async def load(self, word: str, *, name: str = "", timeout: float | None = None) -> tuple[values.Image, ...]:
        """Bring all images of a file into the store: oci:DIR[:TAG], docker-archive:FILE[:NAME], or the path of either,
        as exitd sees it."""
        return await self._ask(objectcalls.load(word, name).within(timeout))

    async def import_image(self, path: str, name: str = "", *, timeout: float | None = None) -> values.Image:
        """Make an image of the tar of a root file system, which exitd reads at `path`."""
        return await self._ask(objectcalls.import_image(path, name).within(timeout))

    def save(self, *images: str, timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yield these images as the parts of one tar, an OCI layout that is a docker-archive, too."""
        return self._each(objectcalls.save(images).within(timeout))

    async def inspect_image(self, image: str, *, timeout: float | None = None) -> objects.ImageDetails:
        """Return its configuration and its layers, too."""
        return await self._ask(objectcalls.inspect_image(image).within(timeout))

    async def tag(self, image: str, name: str, *, timeout: float | None = None) -> values.Image:
        """Give it this name, NAME[:TAG]; another image that has it loses it."""
        return await self._ask(objectcalls.tag(image, name).within(timeout))

    async def untag(self, image: str, *names: str, timeout: float | None = None) -> tuple[str, ...]:
        """Take these names from it, or all that it has, and return them; the image stays."""
        return await self._ask(objectcalls.untag(image, names).within(timeout))

    async def rm_image(self, image: str, *, timeout: float | None = None) -> objects.RemovedImages:
        """Take this name away, and the image with its last one. Raises ImageInUse."""
        return await self._ask(objectcalls.rm_image(image).within(timeout))

    async def prune_images(self, *ids: str, all: bool = False, timeout: float | None = None) -> objects.PrunedImages:
        """Remove those of these that no container stands on and that have no name; with `all` those with one, too."""
        return await self._ask(objectcalls.prune_images(ids, all=all).within(timeout))

    async def create_volume(self, name: str, *, timeout: float | None = None) -> objects.Volume:
        """Make a named volume; one that is there stays as it is."""
        return await self._ask(objectcalls.create_volume(name).within(timeout))

    async def volumes(self, *, timeout: float | None = None) -> tuple[objects.Volume, ...]:
        """List the volumes by name."""
        return await self._ask(objectcalls.volumes().within(timeout))

    async def rm_volume(self, name: str, *, timeout: float | None = None) -> None:
        """Remove a volume with its files. Raises VolumeInUse."""
        await self._ask(objectcalls.rm_volume(name).within(timeout))

    async def stuck_networks(self, *, timeout: float | None = None) -> tuple[objects.StuckAttachment, ...]:
        """List what plugins could not take down after a run."""
        return await self._ask(objectcalls.stuck_networks().within(timeout))

    async def prune_networks(self, *, timeout: float | None = None) -> objects.PrunedNetworks:
        """Try once more to take down what could not be, and give up what fails again."""
        return await self._ask(objectcalls.prune_networks().within(timeout))

    async def watch(
        self,
        *,
        pid: int = 0,
        containerd: str = "",
        runc_root: str = "",
        node: bool = False,
        timeout: float | None = None,
    ) -> objects.Watch:
        """Watch what others run, one of these: each end goes into ledger and events. Raises CannotWatch."""
        return await self._ask(objectcalls.watch(pid, containerd, runc_root, node=node).within(timeout))

    async def watches(self, *, timeout: float | None = None) -> tuple[objects.Watch, ...]:
        """List what is watched."""
        return await self._ask(objectcalls.watches().within(timeout))

    async def end_watch(self, target: str, *, timeout: float | None = None) -> objects.Watch:
        """End the watch of this name, and return it as it was. Raises NoSuchWatch."""
        return await self._ask(objectcalls.end_watch(target).within(timeout))

    async def info(self, *, timeout: float | None = None) -> objects.Info:
        """Return what exitd says of itself: its directories, what evidence works here, its settings."""
        return await self._ask(objectcalls.info().within(timeout))

    async def metrics(self, *, timeout: float | None = None) -> str:
        """Return the page that Prometheus reads."""
        return await self._ask(objectcalls.metrics().within(timeout))

    async def disk_usage(
        self, *containers: str, images: bool = False, timeout: float | None = None
    ) -> objects.DiskUsage:
        """Return what these containers (whole ids), or all, have written and what their logs take; with `images` images
        and volumes, too."""
        return await self._ask(objectcalls.disk_usage(containers, images=images).within(timeout))

    async def shut_down_node(self, limit_seconds: int, *, timeout: float | None = None) -> objects.ShutDown:
        """Stop all of exitd's containers, containerd's tasks too, because the host goes down; begin nothing from then
        on."""
        return await self._ask(objectcalls.shut_down_node(limit_seconds).within(timeout))

    async def version(self, *, timeout: float | None = None) -> values.Version:
        """Return the versions of exitd, of its API and of its Python."""
        return await self._ask(calls.version().within(timeout))

    def _stub(self, method: str) -> Any:
        """Return what calls a method. The channel is made within the loop that it is for."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(wire.target(self.path), options=wire.OPTIONS)
            self._stubs = wire.stubs(self._channel)
        return self._stubs[method]

    async def _ask(self, call: calls.Call[T]) -> T:
        metadata = await self._introduction.metadata()
        try:
            reply = await self._stub(call.method)(call.request, timeout=call.seconds, metadata=metadata)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        return call.read(reply)

    async def _ask_again(self, call: calls.Call[T], deadline: wire.Deadline) -> T:
        """Ask what is safe to ask again until exitd answers."""
        patience = wire.Patience(self._reconnect_seconds)
        while True:
            began = time.monotonic()
            try:
                return await self._ask(call.within(deadline.left(call.seconds)))
            except errors.AWAY as error:
                if time.monotonic() - began > wire.THERE_SECONDS:
                    patience.renew()
                patience.spend(deadline, error)
                await asyncio.sleep(wire.AGAIN_SECONDS)

    async def _each(self, call: calls.Call[T]) -> AsyncGenerator[T, None]:
        """Yield the replies of a call, which ends with the iteration."""
        metadata = await self._introduction.metadata()
        replies = self._stub(call.method)(call.request, timeout=call.seconds, metadata=metadata)
        try:
            async for reply in replies:
                yield call.read(reply)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        finally:
            replies.cancel()

    async def _follow(
        self, since: int | datetime | None, following: Following, deadline: wire.Deadline
    ) -> AsyncIterator[values.Event]:
        if since is None:
            since = await self._ask_again(calls.newest_event(), deadline) + 1
        following.since = since
        patience = wire.Patience(self._reconnect_seconds)
        while True:
            async with aclosing(self._each(following.call().within(deadline.left()))) as replies:
                try:
                    async for reply in replies:
                        patience.renew()
                        event = following.read(reply)
                        if event is not None:
                            yield event
                        if following.missed:
                            break
                    else:
                        return
                except errors.AWAY as error:
                    patience.spend(deadline, error)
                    await asyncio.sleep(wire.AGAIN_SECONDS)

    async def _follow_log(
        self, container: str, call: calls.Call[values.LogPart], deadline: wire.Deadline
    ) -> AsyncIterator[values.LogPart]:
        call.request.id, _ = await self._life(container, deadline)  # its name may be another's, when exitd is back
        followed, patience = FollowedLog(call), wire.Patience(self._reconnect_seconds)
        while True:
            async with aclosing(self._each(followed.call().within(deadline.left()))) as replies:
                try:
                    async for reply in replies:
                        patience.renew()
                        if (part := followed.read(reply)) is not None:
                            yield part
                    return
                except errors.AWAY as error:
                    if not followed.may_go_on:
                        raise
                    patience.spend(deadline, error)
                    await asyncio.sleep(wire.AGAIN_SECONDS)

    async def _attach(self, requests: Sequence[Any], output: attaching.Output, limit: float | None) -> None:
        metadata = await self._introduction.metadata()
        call = self._stub("Attach")(iter(requests), timeout=limit, metadata=metadata)
        try:
            async for reply in call:
                output.add(reply)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        finally:
            call.cancel()

    async def _life(self, container: str, deadline: wire.Deadline) -> tuple[str, int]:
        """Return the id and run that a name stands for now, so that a wait that begins anew is for the same; the name
        itself and 0 where it does not live."""
        try:
            found = await self._ask_again(calls.inspect(container), deadline)
        except errors.NoSuchContainer:
            return container, 0  # the ledger may know it
        return (found.id, found.run) if attaching.is_alive(found) else (container, 0)

    async def _spec(self, container: str) -> Mapping[str, Any]:
        return (await self.inspect(container)).spec


class _Introduction:
    """The open connection by which exitd knows who asks; opened anew when exitd has closed it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._token = ""

    async def metadata(self) -> tuple[tuple[str, str], ...]:
        async with self._lock:
            if not self._token or self._reader is None or self._reader.at_eof() or self._reader.exception() is not None:
                self.close()
                with contextlib.suppress(OSError, TimeoutError, ValueError):  # the calls themselves say what is wrong
                    await asyncio.wait_for(self._introduce(), wire.GREETING_SECONDS)
            return wire.metadata(self._token)

    async def _introduce(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=wire.TOKEN_BYTES)
        self._token = wire.token_of(await self._reader.readline())

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader, self._writer, self._token = None, None, ""
