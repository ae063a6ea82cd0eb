"""crun as it works on this host, and the other runtimes as they are."""

import pathlib

from supervisor.runtime.oci import cgroups

# crun (1.8) refuses a hybrid host whose v2 side has controllers: it is shown a host without that side.
ON_HYBRID = '#!/bin/sh\nexec unshare --mount sh -c \'umount /sys/fs/cgroup/unified && exec crun "$@"\' crun "$@"\n'


def program(name: str, directory: pathlib.Path) -> str:
    """What to run for a runtime of this name: crun by a script in the directory, where it needs one."""
    if name != "crun" or cgroups.mode() is not cgroups.Mode.HYBRID:
        return name
    wrapper = directory / "crun"
    wrapper.write_text(ON_HYBRID)
    wrapper.chmod(0o755)
    return str(wrapper)
