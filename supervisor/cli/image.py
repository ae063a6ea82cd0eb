"""`image ...`: exitd's own store of images."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import click

from protos.exitd.v1 import exitd_pb2 as pb
from supervisor.cli import imageshape, output, parse, pruning, spoken
from supervisor.cli.app import Verbs, complain, connect, exit_code, now_ns
from supervisor.cli.fetch import FETCHED, patience
from supervisor.cli.files import write_tar
from supervisor.cli.shape import Document
from supervisor.cli.spec import here
from supervisor.images import reference
from supervisor.model.errors import BadRequest, ExitdError, NoSuchImage

HEADINGS = ("REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE")
NONE = "<none>"
NEVER = "N/A"
SPOOL_DIRECTORY = "/var/tmp"  # not /tmp, which is often memory


@click.group(cls=Verbs)
def image() -> None:
    """List, load, save and remove images of exitd's own store."""


@image.command()
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids.")
@click.option("-a", "--all", is_flag=True, expose_value=False, help="Changes nothing: all are listed.")
@output.option("table")
@click.pass_context
def ls(ctx: click.Context, quiet: bool, no_trunc: bool, format_: str) -> int:
    """List images, one line for each of their names."""
    wanted = output.format_of(format_)
    found = connect(ctx).images()
    if quiet:
        print("".join(f"{_id(each, whole=no_trunc)}\n" for each in found), end="")
        return 0
    whole = no_trunc or wanted.kind in ("json", "jsonl")
    documents = [document for each in found for document in image_documents(each, now_ns(), whole=whole)]
    output.show(wanted, documents, HEADINGS, _row)
    return 0


@image.command()
@click.option("-i", "--input", "input_", metavar="FILE", default="", help="The same as WORD.")
@click.option("--name", metavar="NAME[:TAG]", default="", help="The name of a single image, instead of its own names.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@click.argument("word", required=False, default="")
@click.pass_context
def load(ctx: click.Context, input_: str, name: str, quiet: bool, word: str) -> int:
    """Load images from WORD: a docker-archive or a directory with an OCI layout (all that is in it), oci:DIR:TAG or
    docker-archive:FILE:NAME (one of several); from standard input without WORD, or with -."""
    if word and input_:
        raise BadRequest(f"{word} and --input {input_}: give one of them")
    given = word or input_ or "-"
    with _file(given) as path, patience(f"loading {given}", quiet=quiet):
        wanted = str(reference.parse(path, here())) if path.startswith(FETCHED) else os.path.abspath(path)
        found = connect(ctx).load_image(wanted, name)
    for each in found:
        if quiet:
            print(each.id)
            continue
        print("".join(f"Loaded image: {known}\n" for known in each.names) or f"Loaded image ID: {each.id}\n", end="")
    return 0


@image.command()
@click.option("-q", "--quiet", is_flag=True, help="Print no message while it takes long.")
@click.argument("name")
@click.pass_context
def pull(ctx: click.Context, quiet: bool, name: str) -> int:
    """Pull NAME from a registry, by skopeo and with its configuration; or the one image of oci:DIR[:TAG] or
    docker-archive:FILE[:NAME]. Prints its id."""
    wanted = str(reference.parse_remote(name, here()))
    with patience(f"pulling {wanted}", quiet=quiet):
        print(connect(ctx).pull_image(wanted).id)
    return 0


@image.command("import")
@click.option("-q", "--quiet", is_flag=True, help="Print no message while it takes long.")
@click.argument("file")
@click.argument("name", required=False, default="", metavar="[NAME[:TAG]]")
@click.pass_context
def import_(ctx: click.Context, quiet: bool, file: str, name: str) -> int:
    """Make an image of the tar of a root file system, compressed or not; - is standard input. Prints its id."""
    with _file(file) as path, patience(f"importing {file}", quiet=quiet):
        print(connect(ctx).import_image(os.path.abspath(path), name).id)
    return 0


@image.command()
@click.option("-f", "--force", is_flag=True, help="A missing image is no error. An image in use is never removed.")
@click.option("-i", "--ignore", is_flag=True, help="As -f.")
@click.option("-a", "--all", "all_", is_flag=True, help="All images.")
@click.argument("images", nargs=-1, metavar="IMAGE...")
@click.pass_context
def rm(ctx: click.Context, force: bool, ignore: bool, all_: bool, images: tuple[str, ...]) -> int:
    """Remove images: by a name that name, and with its last name the image; by its id the image with all names."""
    if bool(images) == all_:
        ctx.fail("which images? Name some, or all of them with --all")
    client, worst = connect(ctx), 0
    for word in [each.id for each in client.images()] if all_ else images:
        try:
            removed = client.remove_image(word)
        except ExitdError as error:
            if not ((force or ignore) and isinstance(error, NoSuchImage)):
                complain(str(error))
                worst = max(worst, exit_code(error))
            continue
        print("".join(f"Untagged: {name}\n" for name in removed.names), end="")
        print("".join(f"Deleted: {id}\n" for id in removed.ids), end="", flush=True)
    return worst


@image.command()
@output.option("json")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.pass_context
def inspect(ctx: click.Context, images: tuple[str, ...], format_: str) -> int:
    """Show everything about images, in docker's words: exitctl image inspect -f '{{.Config.Cmd}}' web."""
    wanted, client, worst = output.format_of(format_), connect(ctx), 0
    documents = []
    for word in images:
        try:
            documents.append(imageshape.inspected(client.inspect_image(word)))
        except ExitdError as error:
            complain(str(error))
            worst = max(worst, exit_code(error))
    output.show(wanted, documents, ("ID", "NAMES", "SIZE"), _inspected_row)
    return worst


@image.command()
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@click.option("--no-trunc", is_flag=True, help="Print whole ids and commands.")
@output.option("table")
@click.argument("word", metavar="IMAGE")
@click.pass_context
def history(ctx: click.Context, word: str, quiet: bool, no_trunc: bool, format_: str) -> int:
    """Show the steps that made an image, newest first."""
    wanted = output.format_of(format_)
    steps = imageshape.history(connect(ctx).inspect_image(word), now_ns(), whole=no_trunc)
    if quiet:
        print("".join(f"{step['ID']}\n" for step in steps), end="")
        return 0
    keys = ("ID", "CreatedSince", "CreatedBy", "Size", "Comment")
    headings = ("IMAGE", "CREATED", "CREATED BY", "SIZE", "COMMENT")
    output.show(wanted, steps, headings, lambda document: [str(document[key]) for key in keys])
    return 0


@image.command()
@click.argument("word", metavar="IMAGE")
@click.argument("names", nargs=-1, required=True, metavar="NAME[:TAG]...")
@click.pass_context
def tag(ctx: click.Context, word: str, names: tuple[str, ...]) -> int:
    """Give an image more names; another image that has one of them loses it."""
    client = connect(ctx)
    for name in names:
        client.tag_image(word, name)
    return 0


@image.command()
@click.argument("word", metavar="IMAGE")
@click.argument("names", nargs=-1, metavar="[NAME[:TAG]...]")
@click.pass_context
def untag(ctx: click.Context, word: str, names: tuple[str, ...]) -> int:
    """Take names of an image, or all of them; the image stays, and image prune removes it."""
    print("".join(f"Untagged: {name}\n" for name in connect(ctx).untag_image(word, names)), end="")
    return 0


@image.command()
@click.argument("word", metavar="IMAGE")
@click.pass_context
def exists(ctx: click.Context, word: str) -> int:
    """Exit with 0 if the image is there, with 1 if not."""
    try:
        connect(ctx).inspect_image(word)
    except NoSuchImage:
        return 1
    return 0


@image.command()
@click.option("-o", "--output", "output_", metavar="FILE", default="-", help="Write to FILE, not to standard output.")
@click.option(
    "--format", "format_", type=click.Choice(("oci-archive", "docker-archive")), default="oci-archive",
    help="One archive is both, so this changes nothing.",
)  # fmt: skip
@click.option(
    "-m", "--multi-image-archive", is_flag=True, expose_value=False, help="Changes nothing: it holds any number."
)
@click.option("-q", "--quiet", is_flag=True, expose_value=False, help="Changes nothing: it prints nothing.")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.pass_context
def save(ctx: click.Context, output_: str, format_: str, images: tuple[str, ...]) -> int:
    """Write images as one archive, which exitctl image load, docker load, podman load and skopeo read."""
    write_tar(connect(ctx).save_images(images), output_)
    return 0


@image.command()
@click.option("-a", "--all", "all_", is_flag=True, help="All that no container uses, not only those without a name.")
@click.option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help=f"{pruning.KEYS}.")
@click.option("-f", "--force", is_flag=True, help="Ask nothing.")
@click.pass_context
def prune(ctx: click.Context, all_: bool, filters: tuple[str, ...], force: bool) -> int:
    """Remove the images without a name that no container uses."""
    wanted = pruning.filter_of(filters, now_ns())
    what = "all images that no container uses" if all_ else "the images without a name that no container uses"
    pruning.confirm(f"This removes {what}.", force=force)
    reply = pruning.images(connect(ctx), wanted, all_of_them=all_)
    pruning.show_images(reply)
    pruning.show_space(reply.reclaimed_bytes)
    return 0


def _inspected_row(document: Document) -> list[str]:
    names = document["RepoTags"]
    assert isinstance(names, list)
    return [str(document["Id"]), " ".join(map(str, names)), str(document["Size"])]


def image_documents(found: pb.Image, now: int, *, whole: bool) -> Iterator[Document]:
    """Yield the lines of `image ls`, with docker's field names for its templates where docker has them."""
    for text in found.names or ("",):
        name = reference.as_name(text)
        created_ns = imageshape.created_ns(found.created, now)
        yield {
            "ID": _id(found, whole=whole),
            "Repository": name.repository if name else NONE,
            "Tag": name.tag if name and name.tag else NONE,
            "Name": text,
            "Digest": found.digest or NONE,
            "CreatedAt": found.created,
            "CreatedSince": NEVER if created_ns is None else f"{spoken.span(now - created_ns)} ago",
            "Size": spoken.size(found.size_bytes),
            "SizeBytes": found.size_bytes,
            "Users": list(found.users),
        }


def _row(document: Document) -> list[str]:
    return [str(document[name]) for name in ("Repository", "Tag", "ID", "CreatedSince", "Size")]


def _id(found: pb.Image, *, whole: bool) -> str:
    return found.id if whole else found.id.removeprefix("sha256:")[: spoken.SHORT_ID]


@contextlib.contextmanager
def _file(word: str) -> Iterator[str]:
    """Yield the path; for - that of a file with standard input, since the daemon reads files only. Raises
    BadRequest."""
    parse.refuse_address(word)
    if word != "-":
        yield word
        return
    if sys.stdin.isatty():
        raise BadRequest("which file? Name one, or pipe it in: exitctl image load <FILE")
    with contextlib.ExitStack() as held:
        directory = os.environ.get("TMPDIR", SPOOL_DIRECTORY)
        try:
            file = held.enter_context(tempfile.NamedTemporaryFile(prefix="exitctl-", dir=directory))
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
        except OSError as error:
            text = f"standard input cannot be kept in {directory}: {error.strerror}; set TMPDIR to a place with room"
            raise BadRequest(text) from error
        yield file.name
