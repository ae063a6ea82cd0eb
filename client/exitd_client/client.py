"""The client that blocks. Its methods may be called from any thread."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from exitd_client import attaching, calls, errors, objectcalls, objects, values, wire
from exitd_client.following import Following
from exitd_client.logfollowing import FollowedLog
from exitd_client.spec import PodSpec, SpecFields, UpdateFields
from exitd_client.wire import grpc

T = TypeVar("T")


class Client:
    """exitd on this machine, asked over its socket.

    `timeout` of a method is in seconds and for all that it does; left out, a call that looks has 30, one that works
    120, one that fetches an image an hour, and `wait`, `events` and following logs have no limit. Every method raises
    ExitdError, as the class of what is wrong. `wait` and `events` go on over a restart of exitd that takes at most
    `reconnect_seconds`; the others raise Unreachable.
    """

    def __init__(self, address: str | None = None, *, reconnect_seconds: float = 60.0) -> None:
        """`address` is the socket; left out, EXITD_ADDRESS or EXITD_STATE say it, as for exitctl. Nothing is asked
        yet. Raises BadRequest."""
        self.path = wire.socket_path(address, os.environ)
        self._reconnect_seconds = reconnect_seconds
        self._channel = grpc.insecure_channel(wire.target(self.path), options=list(wire.OPTIONS))
        self._stubs = wire.stubs(self._channel)
        self._introduction = _Introduction(wire.identity_path(self.path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and every call that has not ended."""
        self._channel.close()
        self._introduction.close()

    def run(
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
        made = self.create(image, args, replace=replace, timeout=timeout, **fields)
        try:
            return self._ask(calls.start(made.id).within(deadline.left()))
        except errors.ExitdError:
            if fields.get("auto_remove"):  # nothing else would remove one that never ran
                with contextlib.suppress(errors.ExitdError):
                    self._ask(calls.rm(made.id, force=True))
            raise

    def create(
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
            call = calls.with_image(call, self.pull(image, timeout=timeout))
        return self._ask(call.within(deadline.left()))

    def start(self, container: str, *, timeout: float | None = None) -> values.Container:
        """Start a created container, or begin a new run of one that has ended."""
        return self._ask(calls.start(container).within(timeout))

    def stop(
        self, container: str, *, grace_seconds: int | None = None, timeout: float | None = None
    ) -> values.Container:
        """Send its stop signal, and SIGKILL after the grace period; it has ended when this returns."""
        spec = self._spec(container) if grace_seconds is None else {}
        return self._ask(calls.stop(container, grace_seconds, spec).within(timeout))

    def restart(
        self, container: str, *, grace_seconds: int | None = None, timeout: float | None = None
    ) -> values.Container:
        """Stop it and begin a new run."""
        spec = self._spec(container) if grace_seconds is None else {}
        return self._ask(calls.restart(container, grace_seconds, spec).within(timeout))

    def kill(
        self,
        container: str,
        signal: str = "SIGKILL",
        *,
        everyone: bool = False,
        exec_id: str = "",
        timeout: float | None = None,
    ) -> None:
        """Send a signal to its first process, or to `everyone` in it; or to an exec's."""
        self._ask(calls.kill(container, signal, everyone=everyone, exec_id=exec_id).within(timeout))

    def pause(self, container: str, *, timeout: float | None = None) -> None:
        """Freeze all its processes."""
        self._ask(calls.pause(container).within(timeout))

    def resume(self, container: str, *, timeout: float | None = None) -> None:
        """Let a paused container go on."""
        self._ask(calls.resume(container).within(timeout))

    def rm(self, container: str, *, force: bool = False, volumes: bool = False, timeout: float | None = None) -> None:
        """Remove it; a running one only with `force`, its anonymous volumes with `volumes`. Its exits stay in the
        ledger."""
        self._ask(calls.rm(container, force=force, volumes=volumes).within(timeout))

    def rename(self, container: str, name: str, *, timeout: float | None = None) -> None:
        """Give it another name. Its events and ends have the name that it has at their time. Raises NameTaken."""
        self._ask(calls.rename(container, name).within(timeout))

    def update(self, container: str, *, timeout: float | None = None, **fields: Unpack[UpdateFields]) -> None:
        """Change its limits, of the run that there is too, and its restart policy; if it fails, all is as before."""
        self._ask(calls.update(container, fields).within(timeout))

    def ps(
        self, *, all: bool = False, filters: Sequence[str] = (), timeout: float | None = None
    ) -> tuple[values.Container, ...]:
        """List the containers that run, or `all`. Filters are KEY=VALUE: id, name, status, label, namespace, pod,
        health, exited, ancestor, before, since, volume, network."""
        return self._ask(calls.ps(all=all, filters=filters).within(timeout))

    def inspect(self, container: str, *, timeout: float | None = None) -> values.Container:
        """Return everything about a container, or a pod's pause container."""
        return self._ask(calls.inspect(container).within(timeout))

    def stats(self, *containers: str, timeout: float | None = None) -> tuple[values.Stats, ...]:
        """Return what these use, or all that run: cpu, memory, network, block devices, processes."""
        return self._ask(calls.stats(containers).within(timeout))

    def wait(
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
            container, run = self._life(container, deadline)
        call = calls.wait(container, condition=condition, run=run, exec_id=exec_id)
        return self._ask_again(call, deadline)

    def wait_pod(self, pod: str, *, timeout: float | None = None) -> tuple[values.Exit, ...]:
        """Return how each member of a pod ended, by creation, once all have for good or the pod has."""
        return self._ask_again(calls.wait_pod(pod), wire.Deadline(timeout))

    def exec(
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
        begun = self._ask(calls.exec(container, args, fields))
        limit = None if timeout is None else timeout + calls.KILL_SECONDS
        output = attaching.Output(most_bytes)
        try:
            self._attach(attaching.requests(begun, input), output, limit)
        except errors.OutputTooLong:
            with contextlib.suppress(errors.ExitdError):  # it may have ended just now
                self.kill(begun.container, everyone=True, exec_id=begun.id)
            raise
        end = self.wait(begun.container, run=begun.run, exec_id=begun.id, timeout=limit)
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
    ) -> Iterator[values.LogPart]:
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
    ) -> Iterator[values.Exit]:
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
    ) -> Iterator[values.Event]:
        """Yield events from a number or time on; left out, what happens from this call on. Filters are KEY=VALUE: id,
        name, type, namespace.

        Over restarts of exitd it goes on with the next number: nothing is missed, nothing comes twice. Raises
        Compacted where exitd no longer keeps them.
        """
        deadline = wire.Deadline(timeout)
        first = self._ask_again(calls.newest_event(), deadline) + 1 if since is None else since
        return self._follow(Following(first, until, filters, follow), deadline)

    def images(self, *, timeout: float | None = None) -> tuple[values.Image, ...]:
        """List the images of exitd's own store."""
        return self._ask(calls.images().within(timeout))

    def pull(self, image: str, *, if_missing: bool = True, timeout: float | None = None) -> values.Image:
        """Bring an image into the store: docker://NAME, oci:DIR[:TAG], docker-archive:FILE."""
        return self._ask(calls.pull(image, if_missing=if_missing).within(timeout))

    def networks(self, *, timeout: float | None = None) -> tuple[values.Network, ...]:
        """List the networks that this machine's administrator has configured, by their files' names."""
        return self._ask(calls.networks().within(timeout))

    def pids(self, container: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the pids of all its processes; none when it does not run."""
        return self._ask(objectcalls.pids(container).within(timeout))

    def healthcheck(self, container: str, *, timeout: float | None = None) -> objects.HealthResult:
        """Run its health check now, and count the result as any other's."""
        spec = self._spec(container)
        return self._ask(objectcalls.healthcheck(container, spec).within(timeout))

    def resize(self, container: str, rows: int, cols: int, *, exec_id: str = "", timeout: float | None = None) -> None:
        """Set the size of its terminal, or of an exec's. Raises WrongState when there is none."""
        self._ask(objectcalls.resize(container, rows, cols, exec_id).within(timeout))

    def close_stdin(self, container: str, *, exec_id: str = "", timeout: float | None = None) -> None:
        """Have it read an end of file, behind what others have sent. Raises WrongState with a terminal."""
        self._ask(objectcalls.close_stdin(container, exec_id).within(timeout))

    def reopen_log(self, container: str, *, timeout: float | None = None) -> None:
        """Write its log to a new file of its name from now on: the old one was moved."""
        self._ask(objectcalls.reopen_log(container).within(timeout))

    def stat_path(
        self, container: str, path: str, *, follow: bool = False, timeout: float | None = None
    ) -> objects.PathStat:
        """Look at a path as the container sees it; `follow` a link at its end. Raises NoSuchPath."""
        return self._ask(objectcalls.stat_path(container, path, follow=follow).within(timeout))

    def copy_from(
        self, container: str, path: str, *, follow: bool = False, name: str = "", timeout: float | None = None
    ) -> Iterator[bytes]:
        """Yield a file, or a directory with all below it, as the parts of one tar. `name` is its first entry's."""
        return self._each(objectcalls.copy_from(container, path, name, follow=follow).within(timeout))

    def copy_to(
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
        call = self._stubs["CopyTo"](iter(requests), timeout=timeout, metadata=self._introduction.metadata())
        try:
            for reply in call:
                if (done := objectcalls.copied(reply)) is not None:
                    return done
        except grpc.RpcError as error:
            raise requests.error or wire.failure(error, self.path) from error
        finally:
            call.cancel()
        raise errors.ExitdError("the copy has ended without an answer")

    def export(self, container: str, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yield the whole root file system as the parts of one tar, without what is mounted in it."""
        return self._each(objectcalls.export(container).within(timeout))

    def changes(self, container: str, *, timeout: float | None = None) -> Iterator[tuple[objects.Change, ...]]:
        """Yield what it has added, changed and deleted of its image's files, a part of all at a time, by path."""
        return self._each(objectcalls.changes(container).within(timeout))

    def commit(
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
        return self._ask(objectcalls.commit(container, name, changes, message, author, pause=pause).within(timeout))

    def run_pod(
        self,
        pod: PodSpec | None = None,
        *,
        image: str = "pause",
        timeout: float | None = None,
        **fields: Unpack[SpecFields],
    ) -> objects.Pod:
        """Create a pod and start its pause container, whose fields these are; ready when this returns. Members are run
        with `sandbox`."""
        return self._ask(objectcalls.run_pod(pod, image, fields).within(timeout))

    def stop_pod(self, pod: str, *, grace_seconds: int | None = None, timeout: float | None = None) -> objects.Pod:
        """Stop its members, then its pause container."""
        found = self.inspect_pod(pod, timeout=timeout)
        return self._ask(objectcalls.stop_pod(found, grace_seconds).within(timeout))

    def rm_pod(self, pod: str, *, force: bool = False, timeout: float | None = None) -> None:
        """Remove it with its members; a ready one only with `force`."""
        self._ask(objectcalls.rm_pod(pod, force=force).within(timeout))

    def pods(self, *, filters: Sequence[str] = (), timeout: float | None = None) -> tuple[objects.Pod, ...]:
        """List the pods. Filters are KEY=VALUE: id, name, namespace, label, state."""
        return self._ask(objectcalls.pods(filters).within(timeout))

    def inspect_pod(self, pod: str, *, timeout: float | None = None) -> objects.Pod:
        """Return everything about a pod."""
        return self._ask(objectcalls.inspect_pod(pod).within(timeout))

    def load(self, word: str, *, name: str = "", timeout: float | None = None) -> tuple[values.Image, ...]:
        """Bring all images of a file into the store: oci:DIR[:TAG], docker-archive:FILE[:NAME], or the path of either,
        as exitd sees it."""
        return self._ask(objectcalls.load(word, name).within(timeout))

    def import_image(self, path: str, name: str = "", *, timeout: float | None = None) -> values.Image:
        """Make an image of the tar of a root file system, which exitd reads at `path`."""
        return self._ask(objectcalls.import_image(path, name).within(timeout))

    def save(self, *images: str, timeout: float | None = None) -> Iterator[bytes]:
        """Yield these images as the parts of one tar, an OCI layout that is a docker-archive, too."""
        return self._each(objectcalls.save(images).within(timeout))

    def inspect_image(self, image: str, *, timeout: float | None = None) -> objects.ImageDetails:
        """Return its configuration and its layers, too."""
        return self._ask(objectcalls.inspect_image(image).within(timeout))

    def tag(self, image: str, name: str, *, timeout: float | None = None) -> values.Image:
        """Give it this name, NAME[:TAG]; another image that has it loses it."""
        return self._ask(objectcalls.tag(image, name).within(timeout))

    def untag(self, image: str, *names: str, timeout: float | None = None) -> tuple[str, ...]:
        """Take these names from it, or all that it has, and return them; the image stays."""
        return self._ask(objectcalls.untag(image, names).within(timeout))

    def rm_image(self, image: str, *, timeout: float | None = None) -> objects.RemovedImages:
        """Take this name away, and the image with its last one. Raises ImageInUse."""
        return self._ask(objectcalls.rm_image(image).within(timeout))

    def prune_images(self, *ids: str, all: bool = False, timeout: float | None = None) -> objects.PrunedImages:
        """Remove those of these that no container stands on and that have no name; with `all` those with one, too."""
        return self._ask(objectcalls.prune_images(ids, all=all).within(timeout))

    def create_volume(self, name: str, *, timeout: float | None = None) -> objects.Volume:
        """Make a named volume; one that is there stays as it is."""
        return self._ask(objectcalls.create_volume(name).within(timeout))

    def volumes(self, *, timeout: float | None = None) -> tuple[objects.Volume, ...]:
        """List the volumes by name."""
        return self._ask(objectcalls.volumes().within(timeout))

    def rm_volume(self, name: str, *, timeout: float | None = None) -> None:
        """Remove a volume with its files. Raises VolumeInUse."""
        self._ask(objectcalls.rm_volume(name).within(timeout))

    def stuck_networks(self, *, timeout: float | None = None) -> tuple[objects.StuckAttachment, ...]:
        """List what plugins could not take down after a run."""
        return self._ask(objectcalls.stuck_networks().within(timeout))

    def prune_networks(self, *, timeout: float | None = None) -> objects.PrunedNetworks:
        """Try once more to take down what could not be, and give up what fails again."""
        return self._ask(objectcalls.prune_networks().within(timeout))

    def watch(
        self,
        *,
        pid: int = 0,
        containerd: str = "",
        runc_root: str = "",
        node: bool = False,
        timeout: float | None = None,
    ) -> objects.Watch:
        """Watch what others run, one of these: each end goes into ledger and events. Raises CannotWatch."""
        return self._ask(objectcalls.watch(pid, containerd, runc_root, node=node).within(timeout))

    def watches(self, *, timeout: float | None = None) -> tuple[objects.Watch, ...]:
        """List what is watched."""
        return self._ask(objectcalls.watches().within(timeout))

    def end_watch(self, target: str, *, timeout: float | None = None) -> objects.Watch:
        """End the watch of this name, and return it as it was. Raises NoSuchWatch."""
        return self._ask(objectcalls.end_watch(target).within(timeout))

    def info(self, *, timeout: float | None = None) -> objects.Info:
        """Return what exitd says of itself: its directories, what evidence works here, its settings."""
        return self._ask(objectcalls.info().within(timeout))

    def metrics(self, *, timeout: float | None = None) -> str:
        """Return the page that Prometheus reads."""
        return self._ask(objectcalls.metrics().within(timeout))

    def disk_usage(self, *containers: str, images: bool = False, timeout: float | None = None) -> objects.DiskUsage:
        """Return what these containers (whole ids), or all, have written and what their logs take; with `images` images
        and volumes, too."""
        return self._ask(objectcalls.disk_usage(containers, images=images).within(timeout))

    def shut_down_node(self, limit_seconds: int, *, timeout: float | None = None) -> objects.ShutDown:
        """Stop all of exitd's containers, containerd's tasks too, because the host goes down; begin nothing from then
        on."""
        return self._ask(objectcalls.shut_down_node(limit_seconds).within(timeout))

    def version(self, *, timeout: float | None = None) -> values.Version:
        """Return the versions of exitd, of its API and of its Python."""
        return self._ask(calls.version().within(timeout))

    def _ask(self, call: calls.Call[T]) -> T:
        metadata = self._introduction.metadata()
        try:
            reply = self._stubs[call.method](call.request, timeout=call.seconds, metadata=metadata)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        return call.read(reply)

    def _ask_again(self, call: calls.Call[T], deadline: wire.Deadline) -> T:
        """Ask what is safe to ask again until exitd answers."""
        patience = wire.Patience(self._reconnect_seconds)
        while True:
            began = time.monotonic()
            try:
                return self._ask(call.within(deadline.left(call.seconds)))
            except errors.AWAY as error:
                if time.monotonic() - began > wire.THERE_SECONDS:
                    patience.renew()
                patience.spend(deadline, error)
                time.sleep(wire.AGAIN_SECONDS)

    def _each(self, call: calls.Call[T]) -> Generator[T, None, None]:
        """Yield the replies of a call, which ends with the iteration."""
        replies = self._stubs[call.method](call.request, timeout=call.seconds, metadata=self._introduction.metadata())
        try:
            for reply in replies:
                yield call.read(reply)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        finally:
            replies.cancel()

    def _follow(self, following: Following, deadline: wire.Deadline) -> Iterator[values.Event]:
        patience = wire.Patience(self._reconnect_seconds)
        while True:
            replies = self._each(following.call().within(deadline.left()))
            try:
                for reply in replies:
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
                time.sleep(wire.AGAIN_SECONDS)
            finally:
                replies.close()

    def _follow_log(
        self, container: str, call: calls.Call[values.LogPart], deadline: wire.Deadline
    ) -> Iterator[values.LogPart]:
        call.request.id, _ = self._life(container, deadline)  # its name may be another's, when exitd is back
        followed, patience = FollowedLog(call), wire.Patience(self._reconnect_seconds)
        while True:
            replies = self._each(followed.call().within(deadline.left()))
            try:
                for reply in replies:
                    patience.renew()
                    if (part := followed.read(reply)) is not None:
                        yield part
                return
            except errors.AWAY as error:
                if not followed.may_go_on:
                    raise
                patience.spend(deadline, error)
                time.sleep(wire.AGAIN_SECONDS)
            finally:
                replies.close()

    def _attach(self, requests: Sequence[Any], output: attaching.Output, limit: float | None) -> None:
        call = self._stubs["Attach"](iter(requests), timeout=limit, metadata=self._introduction.metadata())
        try:
            for reply in call:
                output.add(reply)
        except grpc.RpcError as error:
            raise wire.failure(error, self.path) from error
        finally:
            call.cancel()

    def _life(self, container: str, deadline: wire.Deadline) -> tuple[str, int]:
        """Return the id and run that a name stands for now, so that a wait that begins anew is for the same; the name
        itself and 0 where it does not live."""
        try:
            found = self._ask_again(calls.inspect(container), deadline)
        except errors.NoSuchContainer:
            return container, 0  # the ledger may know it
        return (found.id, found.run) if attaching.is_alive(found) else (container, 0)

    def _spec(self, container: str) -> Mapping[str, Any]:
        return self.inspect(container).spec


class _Introduction:
    """The open connection by which exitd knows who asks; opened anew when exitd has closed it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._token = ""

    def metadata(self) -> tuple[tuple[str, str], ...]:
        with self._lock:
            if self._connection is None or not _is_open(self._connection):
                self._close()
                self._connection, self._token = _introduce(self._path)
            return wire.metadata(self._token)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._token = None, ""


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _introduce(path: str) -> tuple[socket.socket | None, str]:
    """Return the connection and its token; none where nothing listens, and then the calls themselves say what is
    wrong."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(wire.GREETING_SECONDS)
    line = b""
    try:
        connection.connect(path)
        while b"\n" not in line and len(line) < wire.TOKEN_BYTES and (part := connection.recv(wire.TOKEN_BYTES)):
            line += part
    except OSError:
        line = b""
    if token := wire.token_of(line):
        connection.setblocking(False)
        return connection, token
    connection.close()
    return None, ""
