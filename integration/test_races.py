"""What comes at the same instant: a crowd makes one world, and a newcomer is fully in or told why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from integration.crowd import Comer, Serving

from flodl_wire.join_messages import Accept, Reject, WorldFormed

CROWDS, STARTS = 20, 50
STEP = 0.0005  # s, the least by which a start moves towards the newcomer's hello
COORDINATOR = 0.4  # s in which it has started on most boxes: behind it, a start and the world are one moment


async def let_in(comer: Comer) -> WorldFormed:
    assert isinstance(await comer.verdict(), Accept)
    return await comer.world()


async def after(seconds: float) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=max(0.0, seconds))


def two_lanes(lane: Callable[[int], Awaitable[None]]) -> None:
    """Two windows at a time, one after the other in each lane: most of a repeat is the start of processes."""

    async def both() -> None:
        await asyncio.gather(lane(0), lane(1))

    asyncio.run(both())


def test_eight_that_come_at_the_same_instant_make_one_world_every_time(tmp_path: Path) -> None:
    async def one_crowd(folder: Path) -> None:
        async with Serving(folder, min_rank_start=8, target_ranks=8) as window:
            crowd = await asyncio.gather(*(Comer.dial(window.port, f"h{number}") for number in range(8)))
            letters = await asyncio.gather(*map(let_in, crowd))
            assert {(letter.envelope.world_size, letter.envelope.num_workers) for letter in letters} == {(8, 8)}
            assert len({letter.envelope.run for letter in letters}) == 1, "one world"
            assert sorted(rank for letter in letters for rank in letter.envelope.worker.ranks) == list(range(8))
            state = await window.state()
            assert (state["phase"], state["joined_ranks"], state["refused"]) == ("forming", 8, [])
            for comer in crowd:
                await comer.close()

    async def lane(number: int) -> None:
        for _ in range(CROWDS // 2):
            await asyncio.wait_for(one_crowd(tmp_path / str(number)), 30)

    two_lanes(lane)


def test_one_that_comes_while_the_start_is_fired_is_fully_in_or_refused_and_never_left_waiting(tmp_path: Path) -> None:
    """The start is fired ever closer to the moment at which the newcomer is just in, from both sides of it: in one lane
    while the coordinator still starts (a start then waits for it, and so does the world), in the other behind that.
    """

    async def one_start(folder: Path, pause: float, lead: float) -> bool:
        """`lead`: seconds by which the newcomer dials before the start is fired. True when it came in."""
        async with Serving(folder, min_rank_start=2, start="manual") as window:
            first = await Comer.dial(window.port, "first", ranks=2)
            assert isinstance(await first.verdict(), Accept)
            await after(pause)

            async def come() -> tuple[Comer, Accept | Reject]:
                await after(-lead)
                comer = await Comer.dial(window.port, "late")
                return comer, await comer.verdict()

            async def fire() -> int:
                await after(lead)
                return await window.fire()

            (late, verdict), status = await asyncio.gather(come(), fire())
            assert status == 200
            came = isinstance(verdict, Accept)
            if isinstance(verdict, Accept):
                assert verdict.ranks == [2]
                assert (await late.world()).envelope.worker.ranks == [2]
            else:
                assert verdict.code == "window-closed" and "dial again" in verdict.fix
            assert (await first.world()).envelope.world_size == (3 if came else 2)
            state = await window.state()
            assert [member["host"] for member in state["members"]] == ["first", "late"][: 1 + came]
            await first.close()
            await late.close()
            return came

    async def lane(number: int) -> None:
        lead, step, seen = 0.0, STEP, set()
        for _ in range(STARTS // 2):
            came = await asyncio.wait_for(one_start(tmp_path / str(number), number * COORDINATOR, lead), 30)
            seen.add(came)
            step = 2 * step if len(seen) == 1 else max(STEP, step / 2)
            lead += -step if came else step

        assert seen == {True, False}, "both sides of the race were seen"

    two_lanes(lane)
