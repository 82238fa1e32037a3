"""One attempt of `fdl join`: prepare, open the road, be represented by an agent until it ends.

The agent is a process of its own, ``flodl-agent run``: what one run leaves behind cannot touch the next, and a newer
release on disk is taken by the next attempt. Its stdin is ours, so it ends when we do, however that happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from flodl_agent import entry
from flodl_agent.forward import Forward
from flodl_agent.hello import describe
from flodl_agent.join_recipe import Recipe
from flodl_agent.persist import Attempt
from flodl_agent.preparation import Preparation, Prepared
from flodl_agent.rehearsal import stated_arguments
from flodl_agent.report import Ending, Say
from flodl_wire import environ, exits, sibling
from flodl_wire.address import Address
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Fault, Refused, printable
from flodl_wire.specs import AgentSpec

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


def spec_for(recipe: Recipe, prepared: Prepared, dial: Address, finished: str = "") -> AgentSpec:
    """What the agent is told; without signatures."""
    return AgentSpec(
        host=recipe.host,
        controller_host=dial.host,
        controller_port=dial.port,
        salt_hex=recipe.token,
        local_devices=recipe.devices,
        libtorch=str(prepared.variant.folder) if prepared.variant else "",
        run_id=prepared.run or None,
        data_path=recipe.data_path,
        gpu_ram_share=recipe.gpu_ram_share,
        path=prepared.folder,
        args=prepared.args,
        road=recipe.road,
        finished=finished,
    )


def sign(spec: AgentSpec, recipe: Recipe, prepared: Prepared, dial: Address, say: Say) -> str:
    """Write into `spec` what the program's model and data are, when it can be asked; why it is not, else "". Raises
    Fault.
    """
    if not recipe.sig_probe:
        return "the probe is switched off"
    file = entry.source(prepared.program, prepared.script, prepared.folder)
    if why := entry.unasked(file, prepared.folder):
        return why
    args = prepared.args
    if args is None:  # the model may depend on the run's own
        salt = parse_salt(recipe.token, "the token") if recipe.token else None
        args = stated_arguments(dial, salt, describe(spec, prepared.offers, ""))
    if args is None:
        why = "the controller states no arguments yet"
        say(f"{why}: the model is compared when the world forms")
        return why
    found = entry.probe(prepared.program, args, prepared.folder, prepared.environment)
    spec.model_sig_hex, spec.model_schema = found.model_sig or None, found.tensors
    spec.dataset_sig_hex = found.dataset_sig or None
    return "" if found.model_sig else "asked for it, the program came to no Trainer"


def attempt(preparation: Preparation, finished: str) -> Attempt:
    """From the preparation to the agent's end."""
    began = time.monotonic()
    recipe = preparation.recipe
    try:
        prepared = preparation.prepare()
        with road(recipe) as (dial, forward):
            spec = spec_for(recipe, prepared, dial, finished)
            sign(spec, recipe, prepared, dial, preparation.say)
            ending = represent(spec, prepared.program)
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
        [sibling.require("flodl-agent"), "run", "--json", "--", *program],
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
