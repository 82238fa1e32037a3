"""One attempt of `fdl join`: prepare, open the road, be represented by an agent until it ends.

The agent is a process of its own, ``flodl-agent run``: what one run leaves behind cannot touch the next, and a newer
release on disk is taken by the next attempt. Its stdin is ours, so it ends when we do, however that happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from flodl_agent import entry, sibling
from flodl_agent.forward import Forward
from flodl_agent.hello import describe
from flodl_agent.join_recipe import Recipe
from flodl_agent.offer import find_offers
from flodl_agent.persist import Attempt
from flodl_agent.rehearsal import stated_arguments
from flodl_agent.report import Ending
from flodl_wire import environ, exits
from flodl_wire.address import Address
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Fault, Refused, printable
from flodl_wire.specs import AgentSpec

Say = Callable[[str], None]

_GOODBYE = 20.0  # seconds an agent gets for its kill ladder and its goodbye, before it is killed


class Told(BaseException):
    """A signal told us to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


@contextmanager
def road(recipe: Recipe) -> Iterator[tuple[Address, Forward | None]]:
    """Where to dial, for as long as the attempt lasts. Raises Fault."""
    if recipe.ssh is None:
        yield recipe.controller, None
        return
    forward = Forward(recipe.ssh, recipe.controller)
    with forward as port:
        yield Address("127.0.0.1", port), forward


def prepare(recipe: Recipe) -> list[str]:
    """What this box must have before anybody is dialled; the program to run. Raises Refused."""
    if not Path(recipe.folder).is_dir():
        raise Refused("no-folder", "cannot join", f"there is no folder {recipe.folder}", "check where you stand")
    if recipe.data_path is not None and not Path(recipe.data_path).expanduser().is_dir():
        raise Refused(
            "no-data",
            f"cannot use data_path {recipe.data_path}",
            "there is no such folder on this box",
            "mount it, or mend --data-path",
        )
    return entry.resolve(recipe.words, recipe.folder)


def spec_for(recipe: Recipe, dial: Address, finished: str = "") -> AgentSpec:
    """What the agent is told; without signatures."""
    return AgentSpec(
        host=recipe.host,
        controller_host=dial.host,
        controller_port=dial.port,
        salt_hex=recipe.token,
        local_devices=recipe.devices,
        data_path=str(Path(recipe.data_path).expanduser()) if recipe.data_path else None,
        gpu_ram_share=recipe.gpu_ram_share,
        path=recipe.folder,
        args=recipe.args,
        road=recipe.road,
        finished=finished,
    )


def sign(spec: AgentSpec, recipe: Recipe, program: list[str], dial: Address, say: Say) -> None:
    """Write into `spec` what the program's model and data are, when it can be asked. Raises Fault."""
    if not recipe.sig_probe or not entry.knows_us(recipe.words.script, recipe.folder):
        return
    args = recipe.args
    if args is None:  # the model may depend on the run's own
        offers = find_offers(recipe.devices, recipe.host)
        salt = parse_salt(recipe.token, "the token") if recipe.token else None
        args = stated_arguments(dial, salt, describe(spec, offers, ""))
    if args is None:
        say("the controller states no arguments yet: the model is compared when the world forms")
        return
    found = entry.probe(program, args, recipe.folder)
    spec.model_sig_hex, spec.model_schema = found.model_sig or None, found.tensors
    spec.dataset_sig_hex = found.dataset_sig or None


def attempt(recipe: Recipe, finished: str, say: Say) -> Attempt:
    """From the preparation to the agent's end."""
    began = time.monotonic()
    try:
        program = prepare(recipe)
        with road(recipe) as (dial, forward):
            spec = spec_for(recipe, dial, finished)
            sign(spec, recipe, program, dial, say)
            ending = represent(spec, program)
            broken = forward.failed() if forward else None
    except Fault as fault:
        lasted = time.monotonic() - began
        return Attempt(
            exits.NOT_DONE, permanent=is_permanent(fault), lasted=lasted, why=printable(str(fault)), fix=fault.fix
        )
    except OSError as err:  # no memory for a process, a full disk: a box that persists outlives that
        why = f"cannot take part: {err.strerror or err}"
        return Attempt(exits.NOT_DONE, lasted=time.monotonic() - began, why=printable(why))
    why, fix = (str(broken), broken.fix) if broken and ending.code else (ending.why, ending.fix)
    lasted = time.monotonic() - began
    return Attempt(ending.code, ending.permanent, ending.instance, ending.formed, lasted, printable(why), fix)


def is_permanent(fault: Fault) -> bool:
    """True for a flaw of this box, which dialling again cannot mend. What is refused over there comes as Transient: a
    person there can mend it while this box goes on dialling.
    """
    return isinstance(fault, Refused)


def represent(spec: AgentSpec, program: list[str]) -> Ending:
    """Be represented by an agent; how that ended. A signal to us becomes its order to end, a second one kills it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(environ.INTERNAL_PREFIX)}
    env[environ.HOST_NAME] = spec.host
    process = subprocess.Popen(
        [sibling.find("flodl-agent"), "run", "--json", "--", *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        start_new_session=True,  # Ctrl-C reaches it through us
    )
    assert process.stdin and process.stdout
    with process.stdin, process.stdout:
        try:
            process.stdin.write(msgspec.json.encode(spec) + b"\n")
            process.stdin.flush()
            said = process.stdout.read()
            process.wait()
        except BrokenPipeError:
            said = process.stdout.read()
            process.wait()
        except BaseException:
            _end(process)
            raise
    try:
        return msgspec.json.decode(said, type=Ending)
    except msgspec.MsgspecError:
        return Ending(process.returncode if process.returncode > 0 else exits.NOT_DONE, why="the agent was killed")


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM, and KILL when it takes too long or we are told again. Its keeper ends what it started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GOODBYE)
    except (subprocess.TimeoutExpired, Told, KeyboardInterrupt):
        process.kill()
        process.wait()


def on_signal(number: int, _: Any) -> None:
    raise Told(number)


def speak(host: str) -> Say:
    """Lines for the person at this box, with the host in front as the agent's own have."""

    def say(text: str) -> None:
        print(f"{host}: {text}", file=sys.stderr, flush=True)

    return say
