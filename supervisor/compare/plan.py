"""How much is measured: what the options say, and what they mean."""

import json
from dataclasses import asdict

from shim.frozen import frozen

SIZES = (0, 1, 2, 4, 8)


@frozen
class Plan:
    """`pods` of `containers` members each are one crowd: it sees a restart and a storm. A round of latencies has
    `samples` pods idle and as many with every processor busy."""

    pods: int = 5
    containers: int = 10
    rounds: int = 3
    samples: int = 6
    ways: tuple[str, ...] = ()  # empty: all

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the pods whose memory is looked at, by their members."""
        return tuple(size for size in SIZES if size <= self.containers)

    @property
    def meanwhile(self) -> int:
        """Return how many end while the daemon is away."""
        return max(1, self.pods * self.containers // 10)


QUICK = Plan(pods=2, containers=4, rounds=1, samples=3)


def encode(plan: Plan) -> str:
    return json.dumps(asdict(plan))


def decode(text: str) -> Plan:
    found = json.loads(text)
    return Plan(**{**found, "ways": tuple(found["ways"])})
