"""Run five commands at once with asyncio, and say which of them failed. Usage: python many_at_once.py [IMAGE]"""

import asyncio
import sys

from exitd_client import AsyncClient, Exit


async def end_of(exitd: AsyncClient, image: str, code: int) -> Exit:
    made = await exitd.run(image, ["sh", "-c", f"exit {code}"], auto_remove=True, timeout=600)
    return await exitd.wait(made.id, timeout=60)


async def main(image: str) -> None:
    async with AsyncClient() as exitd:
        ends = await asyncio.gather(*(end_of(exitd, image, code) for code in range(5)))
        print("failed:", [end.code for end in ends if not end.is_success])


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "docker://busybox"))
