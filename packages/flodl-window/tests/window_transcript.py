"""Stories of a window as text that a person can read: what is done stands behind ``>``, what comes of it below.

    > window start=manual min_rank_start=2
    waiting: have 0 ranks, need 2 more
    > hello a
    …

``python window_transcript.py`` plays every story in transcripts/ again and writes what comes of it now; look at the
difference before you commit it.

Words: ``window [KEY=VALUE …] [roster=cpu:2,cpu:1] [mode=…]``; ``hello HOST [RANKS] [KEY=VALUE …]`` (keys of a hello,
kind=cuda); ``gone HOST``; ``at SECONDS``; ``start [stranger]``; ``published RUN …`` (all that this box ever
published); ``ready`` (the coordinator, which is ready unless the
window says ready=no).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.knobs import resolve
from flodl_wire.faults import Refused
from flodl_wire.hub_messages import Ready
from flodl_wire.join_messages import Accept, Reject, WorldFormed

FOLDER = Path(__file__).parent / "transcripts"
TOKEN = "a" * 32


def stories() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


def play(text: str) -> str:
    """The story in `text`, told anew."""
    out: list[str] = []
    world: Driven | None = None
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            out.append(line)
        elif line.startswith("> "):
            out.append(line)
            verb, *words = line[2:].split()
            if verb == "window":
                made = opened(words)
                world = made if isinstance(made, Driven) else None
                out.append(made if isinstance(made, str) else state(made))
            else:
                assert world is not None, f"no window is open at {line!r}"
                out += told(world, verb, words)
    return "\n".join(out) + "\n"


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def opened(words: list[str]) -> Driven | str:
    keys = {key: value(text) for key, _, text in (word.partition("=") for word in words)}
    roster, mode, ready = keys.pop("roster", ""), keys.pop("mode", "cpu_cadence"), keys.pop("ready", "yes")
    keys.setdefault("token", TOKEN)
    if not roster:
        keys.setdefault("discovery", True)
    devices = [spec.replace("+", ",") for spec in str(roster).split(",") if spec]
    try:
        of = cluster(*devices, **keys)
        resolve(of, mode, fanout=bool(devices), loopback=False)
    except Refused as refused:
        return f"REFUSED {refused}\n  fix: {refused.fix}"
    return Driven(of, ready=ready == "yes", mode=mode, fanout=bool(devices), nccl=mode.startswith("nccl"))


def told(world: Driven, verb: str, words: list[str]) -> list[str]:
    before = state(world)
    if verb == "at":
        effects = world.at(float(words[0]))
    elif verb == "hello":
        effects = world.hello(greeting(words))
    elif verb == "gone":
        effects = world.gone(words[0])
    elif verb == "start":
        effects = world.do(ev.StartAsked("stranger" not in words))
    elif verb == "published":
        effects = world.do(ev.RunsServed(tuple(words)))
    elif verb == "ready":
        effects = world.hub(Ready("/x"))
    else:
        raise AssertionError(f"no such word: {verb}")
    lines = [line for effect in effects for line in shown(world, effect)]
    after = state(world)
    return lines + ([after] if after != before or not lines else [])


def greeting(words: list[str]) -> Any:
    host, count = words[0], 1
    rest = words[1:]
    if rest and rest[0].isdigit():
        count = int(rest.pop(0))
    keys = {key: value(text) for key, _, text in (word.partition("=") for word in rest)}
    kind = keys.pop("kind", "cpu")
    for signature in ("model_sig", "dataset_sig"):
        if signature in keys:
            keys[signature] = str(keys[signature]) * 64
    return hello(host, count, kind, **keys)


def shown(world: Driven, effect: ev.Effect) -> list[str]:
    if isinstance(effect, ev.Send):
        message = effect.message
        if isinstance(message, Accept):
            return [f"  in, ranks {message.ranks}"]
        if isinstance(message, Reject):
            return [f"  OUT {message.code}: {message.why}", f"      fix: {message.fix}"]
        if isinstance(message, WorldFormed):
            worker = message.envelope.worker
            return [f"  world formed for {worker.host}: ranks {worker.ranks} of {message.envelope.world_size}"]
    if isinstance(effect, ev.AnswerStart):
        return [f"  {effect.status} {json.dumps(effect.body)}"]
    return []


def state(world: Driven) -> str:
    run = world.run
    return f"{run.phase.value}: {run.why}" + (" [armed]" if run.window.armed and run.phase.window_open else "")


if __name__ == "__main__":
    for path in stories():
        path.write_text(play(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.name)
