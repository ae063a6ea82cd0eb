"""The streams of what runs under another's shim: to the byte, whoever dies meanwhile, and nothing stays behind."""

import asyncio

from tests.system import pumprig
from tests.system.pumprig import Stage
from tests.system.shimrig import Keeper, Rig
from tests.system.streamrig import texts


def test_both_streams_are_in_the_log_when_the_end_is_told(rig: Rig, keeper: Keeper) -> None:
    async def play() -> None:
        async with pumprig.daemon(rig) as pumps:
            stage = Stage(rig)
            await stage.begin(pumps)
            async with pumprig.other(stage) as other:
                await other.do("open")
                await other.says(b"one\n")
                await other.says(b"two\n", "err")
                await other.says(b"three")
            await stage.ended(pumps)
            log = stage.log_path.read_bytes()
            assert (texts(log), texts(log, "stderr")) == (b"one\nthree", b"two\n")
            await pumps.remove(stage.key)

    asyncio.run(play())
