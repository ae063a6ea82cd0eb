"""exitd's own images: loaded, listed, resolved to directories, held by containers, removed.

All methods block, and may be called from several threads at once; the daemon calls them in separate threads. The lock
guards the list and is held for renames and one small write, never while a layer is read or removed.
"""

import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress

import structlog

from shim.frozen import replace
from shim.patterns import LatePattern
from shim.undo import undone_on_failure
from supervisor.images import documents, files, index, layout, reference, saved, streams, tar, tools, unpack
from supervisor.images.deadline import Deadline, Halt
from supervisor.images.disk import Disk, write_durably
from supervisor.images.facts import Image, ImageDefaults, ImageLimits, Layer, PrunedImages, RemovedImage, Resolved
from supervisor.images.reference import Archive, ImageDirectory, Layout, Pause, Reference, Registry, Stored
from supervisor.model.errors import BadRequest, ImageInUse, ImageStoreFailed, ShuttingDown, WrongDigest, WrongState

log = structlog.get_logger()

LOAD_SECONDS = 1800.0  # for reading and unpacking, without a pull's own limit
SHOWN_USERS = 5

_CONTAINER = LatePattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}", re.ASCII)


class Images:
    """The store below `root`. `pause` is what the name `pause` resolves to, once there is such a program.

    What a killed load or removal has left behind is not listed, and `tidy` removes it. Raises CannotStart when the
    store is open elsewhere, or a later exitd wrote its index.
    """

    def __init__(self, root: str, *, pause: Resolved | None = None, limits: ImageLimits | None = None) -> None:
        self._pause, self._limits = pause, limits or ImageLimits()
        self._halt = Halt()
        self._lock = threading.Lock()
        self._pins: Counter[str] = Counter()  # layers that loads in progress need
        self._disk = Disk(f"{os.path.realpath(root)}/images")
        with undone_on_failure(self.close):
            self._images = self._disk.read_index()
            if self._disk.lost:
                self._begin_anew()
            for each in self._disk.damaged:
                log.error(
                    "an image of the index cannot be read; no layer is removed while it stands there", why=each.why
                )
            self._leftovers = self._disk.staged()
            self._drop_broken()

    def close(self) -> None:
        self._disk.close()
        self._halt.close()

    def stop(self) -> None:
        """Stop: loads and pulls soon raise ShuttingDown. The next `tidy` finds what they leave in staging."""
        self._halt.set()

    def tidy(self) -> None:
        """Remove what an earlier process has left; takes as long as its size demands. Call once, after opening."""
        self._disk.remove_staged(self._leftovers)
        self.gc()

    def list(self) -> tuple[Image, ...]:
        """Return the images by name; those without one last."""
        return tuple(sorted(self._images, key=lambda image: (not image.names, image.names, image.id)))

    def get(self, word: str) -> Image:
        """Return the image with this name, digest, id or beginning of an id. Raises BadRequest, NoSuchImage,
        AmbiguousImage."""
        return index.find(self._images, self._stored(word))

    def config(self, image: Image) -> ImageDefaults:
        return documents.parse_config(self._disk.read_blob(image.id), self._disk.blob(image.id)).config

    def users(self) -> dict[str, tuple[str, ...]]:
        """Return the containers that hold an image, by its id."""
        found: dict[str, tuple[str, ...]] = {}
        for container, image_id in sorted(self._disk.holds().items()):
            found[image_id] = (*found.get(image_id, ()), container)
        return found

    def layers(self) -> dict[str, str]:
        """Return the directories of the layers of all images, by diff id."""
        return {layer.diff_id: self._disk.layer(layer.diff_id) for image in self._images for layer in image.layers}

    def load(self, word: str, *, name: str = "") -> tuple[Image, ...]:
        """Load every image of a file or directory, or the one that a tag or name after it selects; all or none. Return
        them, each with the names that it was given now.

        `word` is oci:DIR[:TAG] or docker-archive:FILE[:NAME] or the bare path of either. `name` replaces the names of a
        single image. Raises BadRequest, BadImage and the other errors of images.
        """
        wanted = reference.parse(word)
        if isinstance(wanted, ImageDirectory):
            wanted = Layout(wanted.path) if os.path.isdir(wanted.path) else Archive(wanted.path)
        if not isinstance(wanted, Layout | Archive):
            raise BadRequest(f"{word!r} is no file or directory to load an image from; {reference.WAYS}")
        return self._load_from(wanted, name, just_one=bool(name))

    def import_(self, path: str, *, name: str = "") -> Image:
        """Make one image of the tar of a root file system, compressed or not. Return it. Raises as `load`."""
        names = (str(reference.parse_name(name)),) if name else ()
        budget = self._budget(path)
        with self._staging() as staging, self._disk.errors(), files.open_regular(path) as file:
            layer = self._unpack(streams.Slice(file), f"{staging}/layers/imported", path, budget)
            os.rename(f"{staging}/layers/imported", f"{staging}/layers/{layer.diff_id.removeprefix('sha256:')}")
            text = documents.config_document(layer.diff_id)
            image = Image(_stage_blob(staging, text), "", names, (layer,), "")
            self._commit(staging, (image,))
        return self.get(image.id)

    def commit(
        self,
        parts: Generator[bytes, None, None],
        base_id: str,
        document: Callable[[bytes, str], bytes],
        *,
        name: str = "",
    ) -> Image:
        """Make an image of another one and a layer on top, the tar in `parts`. `document`: from the configuration below
        and the layer's digest, the new one. All of `parts` is read before anything else is done. Return the image.
        Raises as `load`, and what `parts` and `document` raise."""
        names = (str(reference.parse_name(name)),) if name else ()
        what = f"the layer of {name or 'the container'}"
        with self._staging() as staging, self._disk.errors():
            self._keep(parts, f"{staging}/layer.tar", self._budget(what))
            self._check_halt(what)
            below = self.get(base_id)
            with (
                self._pinned(layer.diff_id for layer in below.layers),
                files.open_regular(f"{staging}/layer.tar") as file,
            ):
                below = self.get(base_id)  # its layers stay from now on
                layer = self._unpack(streams.Slice(file), f"{staging}/layers/committed", what, self._budget(what))
                os.rename(f"{staging}/layers/committed", f"{staging}/layers/{layer.diff_id.removeprefix('sha256:')}")
                text = document(self._disk.read_blob(below.id), layer.diff_id)
                config = documents.parse_config(text, what)
                image = Image(_stage_blob(staging, text), "", names, (*below.layers, layer), config.created)
                self._check_halt(what)
                self._commit(staging, (image,))
        return self.get(image.id)

    def _keep(self, parts: Generator[bytes, None, None], path: str, budget: "streams.Budget") -> None:
        with closing(parts), open(path, "xb") as file:
            for part in parts:
                budget.spend_bytes(len(part))
                file.write(part)

    def inspect(self, word: str) -> tuple[Image, bytes]:
        """Return an image, and its configuration as it is. Raises as `get`."""
        image = self.get(word)
        with self._lock:
            index.find(self._images, Stored(image.id, None))
            return image, self._disk.read_blob(image.id)

    def tag(self, word: str, name: str) -> Image:
        """Give an image one more name, which is taken from another that has it. Raises as `get`."""
        full = str(reference.parse_name(name))
        if "@" in full:
            raise BadRequest(f"{name!r}: a name that an image is given has no digest", image=name)
        wanted = self._stored(word)
        with self._lock:
            image = replace(index.find(self._images, wanted), names=(full,))
            self._list(index.with_images(self._images, (image,)))
        return self.get(image.id)

    def untag(self, word: str, names: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Take names of an image, or all, and keep the image. Return those taken. Raises as `get`."""
        full = tuple(str(reference.parse_name(name)) for name in names)
        wanted = self._stored(word)
        with self._lock:
            rest, gone = index.untagged(self._images, wanted, full)
            self._list(rest)
        return gone

    def save(self, words: Sequence[str], check: Callable[[], None] = lambda: None) -> Generator[bytes, None, None]:
        """Yield one archive of these images, see `saved.py`. An image that is named by its id is saved with all of its
        names, else with that name alone. Their layers stay meanwhile. `check` is called again and again, also before
        the first part, and may raise. Raises as `get`."""

        def go_on() -> None:
            self._check_halt("saving images")
            check()

        chosen: dict[str, tuple[Image, set[str]]] = {}
        for word in words:
            image, stored = self.get(word), self._stored(word)
            meant = index.name_meant(image, stored)
            chosen.setdefault(image.id, (image, set()))[1].update((meant,) if meant else image.names)
        with self._pinned(layer.diff_id for image, _ in chosen.values() for layer in image.layers):
            images = tuple(
                saved.SavedImage(
                    self.inspect(id)[1],
                    tuple(self._disk.layer(layer.diff_id) for layer in image.layers),
                    tuple(sorted(names)),
                )
                for id, (image, names) in chosen.items()
            )
            with self._disk.errors():
                yield from saved.archive(images, go_on)

    def _check_halt(self, what: str) -> None:
        if self._halt.is_set:
            raise ShuttingDown(f"{what} was broken off, the daemon is shutting down; try again")

    def prune(self, ids: Collection[str], *, all: bool) -> PrunedImages:
        """Remove those of these images that no container uses, and that have no name, unless `all`."""
        with self._lock:
            users = self.users()
            gone = [i for i in self._images if i.id in ids and i.id not in users and (all or not i.names)]
            self._list(tuple(image for image in self._images if image not in gone))
        freed = {*self.gc()}
        sizes = {layer.diff_id: layer.size_bytes for image in gone for layer in image.layers}
        names = tuple(name for image in gone for name in image.names)
        removed = RemovedImage(names, tuple(image.id for image in gone))
        return PrunedImages(removed, sum(size for diff_id, size in sizes.items() if diff_id in freed))

    def pull(self, word: str, *, if_missing: bool = False, timeout_seconds: float | None = None) -> Image:
        """Fetch one image and return it: from a registry by its name, with or without docker://, through skopeo; or
        from oci:DIR[:TAG] or docker-archive:FILE[:NAME]. With `if_missing`, a registry is not asked for a name that is
        in the store. Raises ToolMissing, ToolFailed, TimedOut and what `load` raises."""
        wanted = reference.parse_remote(word)
        if not isinstance(wanted, Registry):
            (image,) = self._load_from(wanted, "", just_one=True)
            return image
        full = str(reference.canonical(wanted.name))
        known = next((image for image in self._images if full in image.names), None) if if_missing else None
        return known or self._pull(full, timeout_seconds or tools.PULL_SECONDS)

    def _pull(self, full: str, timeout_seconds: float) -> Image:
        with self._staging() as staging:
            tools.pull(full, f"{staging}/pulled", staging, Deadline(f"pulling {full}", timeout_seconds, self._halt))
            with self._disk.errors(), files.directory(f"{staging}/pulled") as opened:
                found = layout.choose(layout.find(opened, documents.host_platform()), full, "pulled")
                (image,) = self._load(opened, (replace(found, names=(full,)),), staging, self._budget(full))
        return image

    def resolve(self, word: str, image_id: str = "") -> Resolved:
        """Return what an image's name stands for. An image that is not in the store yet is loaded or pulled into it;
        with an `image_id`, the name is only for display.

        Until it is held, another thread may remove it: `hold` then raises NoSuchImage, and nothing was mounted.
        """
        if image_id:
            return self._resolved(self.get(image_id), word)
        wanted = reference.parse(word)
        match wanted:
            case Pause():
                if self._pause is None:
                    raise BadRequest("this exitd has no pause program")
                return self._pause
            case ImageDirectory(path):
                if not os.path.isdir(path):
                    raise BadRequest(f"IMAGE {word!r}: no such directory; {reference.WAYS}", image=word)
                return Resolved((os.path.realpath(path),), ImageDefaults(), name=path)
        return self._resolved(self._found_or_fetched(wanted), word)

    def _resolved(self, image: Image, word: str) -> Resolved:
        with self._lock:  # so that it is not removed between the look and the reading
            index.find(self._images, Stored(image.id, None))
            config = self.config(image)
            lower = tuple(self._lower(image)) or (f"{self._disk.path}/empty",)
        return Resolved(lower, config, image.id, word)

    def hold(self, container: str, image_id: str) -> None:
        """Keep the image and its layers until the container releases them, over every restart. Repeatable. Raises
        NoSuchImage."""
        if not _CONTAINER.fullmatch(container):
            raise BadRequest(f"{container!r} is no container id")
        with self._lock:
            index.find(self._images, Stored(image_id, None))
            before = self._disk.held_by(container)
            if not before:
                self._disk.hold(container, image_id)
            elif before != image_id:
                raise WrongState(f"container {container} holds the image {before} already")

    def release(self, container: str) -> None:
        """Release the container's image. Repeatable; no error if it holds none."""
        if _CONTAINER.fullmatch(container):
            self._disk.release(container)

    def hold_only(self, containers: Mapping[str, str], undecided: Collection[str] = ()) -> None:
        """Replace the holds by these (container and image id), from the only place that knows the containers. For a
        daemon's start, before anything is removed: a power cut may have removed holds, a kill may have left some. The
        `undecided` keep theirs: it is not known which image they have."""
        with self._lock:
            before = self._disk.holds()
            for container in (name for name, image in before.items() if containers.get(name) != image):
                if container not in undecided:
                    self._disk.release(container)
            for container in (name for name, image in containers.items() if before.get(name) != image):
                self._disk.hold(container, containers[container])

    def remove(self, word: str) -> RemovedImage:
        """Remove a name, and the image with its last one; an id or digest removes the image with all names. Raises
        NoSuchImage, AmbiguousImage, ImageInUse."""
        with self._lock:
            rest, removed = index.without(self._images, self._stored(word))
            users = self.users()
            for image_id in removed.ids:
                if image_id in users:
                    raise _in_use(word, users[image_id])
            self._list(rest)
        self.gc()
        return removed

    def gc(self) -> tuple[str, ...]:
        """Remove the layers that no image and no load in progress needs. Return their diff ids. None is removed if an
        entry of the index cannot be read, or a container uses an image that is not listed: any layer may be theirs."""
        if self._disk.damaged:
            return ()
        with self._staging() as bin_path, self._lock:
            if not {image.id for image in self._images}.issuperset(self._disk.holds().values()):
                return ()
            layers = {layer.diff_id for image in self._images for layer in image.layers}
            return self._disk.move_others(bin_path, layers | self._pins.keys(), {image.id for image in self._images})

    def _stored(self, word: str) -> Stored:
        wanted = reference.parse(word)
        if isinstance(wanted, Registry):
            name = reference.canonical(wanted.name)
            return Stored(str(name), name)
        if not isinstance(wanted, Stored):
            raise BadRequest(f"{word!r} is not the name of an image in exitd's own store", image=word)
        return wanted

    def _found_or_fetched(self, wanted: Reference) -> Image:
        match wanted:
            case Registry() | Layout() | Archive():
                return self.pull(str(wanted), if_missing=True)
        return index.find(self._images, Stored(str(wanted), reference.as_name(str(wanted))))

    def _load_from(self, wanted: Layout | Archive, name: str, *, just_one: bool) -> tuple[Image, ...]:
        choice = wanted.tag if isinstance(wanted, Layout) else wanted.name
        with self._staging() as staging, self._disk.errors(), self._opened(wanted, staging) as opened:
            found = layout.find(opened, documents.host_platform(), choice)
            if choice or just_one:
                found = (layout.choose(found, opened.where, choice),)
            return self._load(opened, _named(found, name), staging, self._budget(opened.where))

    def _opened(self, wanted: Layout | Archive, staging: str) -> "AbstractContextManager[files.Files]":
        if isinstance(wanted, Layout):
            return files.directory(wanted.path)
        return files.archive(wanted.path, staging, self._budget(wanted.path))

    def _budget(self, where: str) -> "streams.Budget":
        return streams.Budget(self._limits, Deadline(f"loading {where}", LOAD_SECONDS, self._halt))

    @contextmanager
    def _staging(self) -> Iterator[str]:
        """Yield a new directory for one load; what is in it afterwards is removed, unless there is no time left for
        that."""
        path = self._disk.stage()
        try:
            yield path
        finally:
            if not self._halt.is_set:
                self._disk.remove_staged((path,))

    def _load(
        self, opened: "files.Files", found: "tuple[layout.LayoutImage, ...]", staging: str, budget: "streams.Budget"
    ) -> tuple[Image, ...]:
        with self._pinned(layer.diff_id for image in found for layer in image.layers):
            # Layers that the list has now stay, since they are pinned; the others are unpacked, perhaps by two loads at
            # once.
            layers = {layer.diff_id: layer for image in self._images for layer in image.layers}
            for image in found:
                for layer in image.layers:
                    if layer.diff_id not in layers:
                        layers[layer.diff_id] = self._layer(opened, layer, staging, budget)
                _stage_blob(staging, image.config_text)
            self._commit(
                staging,
                tuple(
                    Image(
                        one.id, one.digest, one.names, tuple(layers[d] for d in one.config.diff_ids), one.config.created
                    )
                    for one in found
                ),
            )
        given: dict[str, tuple[str, ...]] = {}
        for one in found:
            given[one.id] = (*given.get(one.id, ()), *one.names)
        return tuple(replace(self.get(id), names=tuple(sorted(set(names)))) for id, names in given.items())

    def _layer(self, opened: "files.Files", layer: "layout.LayerFile", staging: str, budget: "streams.Budget") -> Layer:
        """Unpack and verify a layer in `staging`."""
        where = f"{opened.where}: {layer.name}"
        packed = opened.open(layer.name)
        if layer.digest:  # before anything of it is trusted
            digest = streams.Hashed(replace(packed), budget.pass_bytes).drain()
            if digest != layer.digest:
                raise WrongDigest(f"{where} has the digest {digest}", document=layer.name)
        directory = f"{staging}/layers/{layer.diff_id.removeprefix('sha256:')}"
        made = self._unpack(packed, directory, where, budget)
        if made.diff_id != layer.diff_id:
            raise WrongDigest(
                f"{where}: unpacked it has the digest {made.diff_id}, not {layer.diff_id} as its configuration says",
                document=layer.name,
            )
        return made

    def _unpack(self, packed: "streams.Slice", directory: str, where: str, budget: "streams.Budget") -> Layer:
        os.mkdir(directory, 0o700)
        with streams.uncompressed(packed, where) as plain:
            counted = streams.Hashed(plain, budget.spend_bytes)
            left_out = unpack.unpack(tar.TarReader(counted), directory, where, budget)
            diff_id = counted.drain()
        if left_out:
            log.info("device nodes of a layer left out", layer=where, count=len(left_out), first=left_out[0])
        return Layer(diff_id, counted.count)

    def _commit(self, staging: str, images: tuple[Image, ...]) -> None:
        """List the images: all of them, complete, or none."""
        if set(index.with_images(self._images, images)) == set(self._images):  # loaded before, and nothing is new
            return
        tools.sync_file_system(staging, Deadline(f"writing {staging}", tools.SYNC_SECONDS, self._halt))
        try:
            with self._lock:
                self._disk.take_over(staging)
                self._list(index.with_images(self._images, images))
        except ImageStoreFailed:
            self.gc()
            raise

    def _list(self, images: tuple[Image, ...]) -> None:
        """What the disk lists and what this object lists always agree, even after an error that follows the rename."""
        self._disk.write_index(images)
        self._images = images
        self._disk.sync()

    def _begin_anew(self) -> None:
        """Write an index of the images that were found without one: containers use them."""
        aside = self._disk.put_aside()
        self._list(self._images)
        log.error(
            "the index of the image store cannot be read; its images are listed without their names, load them again",
            why=self._disk.lost,
            images=len(self._images),
            put_aside=aside,
        )

    def _drop_broken(self) -> None:
        """A power cut can bring an old index back after its layers are gone."""
        whole = tuple(image for image in self._images if self._is_whole(image))
        if len(whole) < len(self._images):
            lost = sorted({image.id for image in self._images} - {image.id for image in whole})
            log.warning("images without their layers are no longer listed; load them again", images=lost)
            self._list(whole)

    def _is_whole(self, image: Image) -> bool:
        layers = all(os.path.isdir(self._disk.layer(layer.diff_id)) for layer in image.layers)
        return layers and os.path.isfile(self._disk.blob(image.id))

    @contextmanager
    def _pinned(self, diff_ids: Iterable[str]) -> Iterator[None]:
        """Pin layers. Those that are removed from the list meanwhile are kept for this load alone, and removed at its
        end."""
        pins = set(diff_ids)
        with self._lock:
            self._pins.update(pins)
        try:
            yield
        finally:
            with self._lock:
                self._pins.subtract(pins)
                self._pins += Counter()  # drops those that are no longer needed
                idle = pins - self._pins.keys() - {layer.diff_id for image in self._images for layer in image.layers}
            if idle:
                self.gc()

    def _lower(self, image: Image) -> Iterator[str]:
        """Yield the directories, topmost first. A layer that occurs twice counts where it is topmost, since overlay
        accepts none twice. Below a layer whose root is opaque nothing is visible; overlay itself does not check that of
        roots."""
        seen = set()
        for layer in reversed(image.layers):
            path = self._disk.layer(layer.diff_id)
            if path not in seen:
                yield path
            seen.add(path)
            with suppress(OSError):  # no such attribute
                if os.getxattr(path, unpack.OPAQUE_XATTR) == b"y":
                    return


def _in_use(word: str, users: tuple[str, ...]) -> ImageInUse:
    shown = ", ".join(user[:12] for user in users[:SHOWN_USERS])
    more = f" and {len(users) - SHOWN_USERS} more" if len(users) > SHOWN_USERS else ""
    return ImageInUse(f"image {word} is in use by {shown}{more}; remove them first (exitctl rm)", image=word)


def _stage_blob(staging: str, text: bytes) -> str:
    digest = hashlib.sha256(text).hexdigest()
    write_durably(f"{staging}/blobs/{digest}", text)
    return f"sha256:{digest}"


def _named(found: "Iterable[layout.LayoutImage]", name: str) -> "tuple[layout.LayoutImage, ...]":
    if not name:
        return tuple(found)
    return tuple(replace(one, names=(str(reference.parse_name(name)),)) for one in found)
