"""What the disk still says of a container or an exec whose row cannot be read: its directories in STATE/c. Blocks."""

from supervisor.model.values import Process
from supervisor.monitor import rundir
from supervisor.runtime.foreign_shim import place
from supervisor.store.codec import Damaged
from supervisor.store.salvage import Remains


def look(state: str, container_id: str) -> Remains:
    """Read the newest run directory; a part that cannot be read is left out."""
    try:
        run = max((run for id, run in rundir.runs(state) if id == container_id), default=0)
    except OSError:
        return Remains()
    if not run:
        return Remains()
    path = rundir.path_of(state, container_id, run)
    return Remains(run, _named_in(path), _program_in(path))


def init_of_exec(state: str, row: Damaged) -> Process | None:
    """Return the process that the exec's directory names."""
    return _named_in(rundir.path_of(state, row.id, row.run, row.exec_id)) if row.exec_id else None


def _program_in(path: str) -> str:
    try:
        contact = place.read_contact(path)
    except OSError:
        return ""
    return contact.program if contact is not None else ""


def _named_in(path: str) -> Process | None:
    """The process that the directory names. One that cannot be read now is asked again by the look-up."""
    try:
        return rundir.created(path)
    except OSError:
        return None
