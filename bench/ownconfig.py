"""The config.json that exitd has its runtime run, for those that are compared with it: all of them run the same."""

import json
import pathlib
from dataclasses import dataclass

from bench.ours import Daemon
from supervisor.api.client import Client
from supervisor.compare.machine import CGROUP, Scratch


@dataclass(frozen=True, slots=True)
class OwnConfig:
    """As exitd wrote it, and the cgroup that stands in it."""

    scratch: Scratch
    text: str
    cgroup: str

    def bundle(self, id: str, cgroup: str = "") -> str:
        """A bundle of it, in a cgroup for this id alone if none is named. Raises ValueError: exitd's is not in it."""
        config = json.loads(self.text)
        if config["linux"]["cgroupsPath"] != self.cgroup:
            raise ValueError(f"exitd's config.json has the cgroup {config['linux']['cgroupsPath']}, not {self.cgroup}")
        config["linux"]["cgroupsPath"] = cgroup or f"{CGROUP}/{id}"
        place = self.scratch.root_place(f"bundles/{id}-own")
        pathlib.Path(f"{place}/config.json").write_text(json.dumps(config))
        return place


def own_config(scratch: Scratch, daemon: Daemon, client: Client) -> OwnConfig:
    """Of a container that is made for this from the bundle that all rows use, and removed again."""
    id = daemon.create(client)
    text = pathlib.Path(f"{daemon.root}/c/{id}/bundle/config.json").read_text()
    client.remove(id, force=True)
    return OwnConfig(scratch, text, f"/exitd/{id}")
