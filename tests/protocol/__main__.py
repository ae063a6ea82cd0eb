"""Writes the tables of docs/protocol.md, and prints each search and each refusal with the way that led to it.

python -m tests.protocol
"""

import time

from tests.protocol.bounds import BOUNDS, MUTATIONS
from tests.protocol.page import PAGE, refusal, written
from tests.protocol.search import search


def main() -> None:
    for bound in BOUNDS:
        begun = time.process_time()
        found = search(bound)
        seconds = time.process_time() - begun
        print(f"{bound.name}: {found.states} states, {found.moves} moves, {seconds:.1f} s")
    for mutation in MUTATIONS:
        print(f"\n{mutation.name}:\n{refusal(mutation)}")
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
