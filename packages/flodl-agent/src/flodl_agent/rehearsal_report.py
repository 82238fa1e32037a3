"""`fdl join --try`: what would happen, as text or as one JSON document. Two renderings of one `Report`."""

from __future__ import annotations

import asyncio

import msgspec

from flodl_agent.forward_argv import shown
from flodl_agent.hello import check_project, describe
from flodl_agent.join_attempt import is_permanent, road, sign, spec_for
from flodl_agent.join_recipe import Recipe
from flodl_agent.persist import PERMANENT
from flodl_agent.preparation import Preparation
from flodl_agent.rehearsal import Measured
from flodl_agent.rehearsal import rehearse as visit
from flodl_agent.report import speak
from flodl_wire import exits
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Fault, printable
from flodl_wire.join_messages import Accept, Reject

_ZEROS = "0"


class Report(msgspec.Struct, omit_defaults=True):
    """The contract of ``--try --json``; additive only. Seconds, bytes a second."""

    host: str
    controller: str
    road: str
    admitted: bool
    program: list[str] = []
    run: str = ""  # identity of a published run
    libtorch: str = ""  # the variant, "" for the torch of the environment
    devices: list[str] = []
    ranks: list[int] = []  # it would get
    args: list[str] | None = None  # the run states
    code: str = ""  # of the refusal, or of what went wrong
    why: str = ""
    fix: str = ""
    model_sig: str = ""
    tensors: int = 0
    dataset_sig: str = ""
    unasked: str = ""  # why model and data are not compared at the door
    round_trip_s: float | None = None
    up_bytes_per_s: float | None = None
    down_bytes_per_s: float | None = None


def rehearse(recipe: Recipe, *, as_json: bool) -> int:
    """Print the report; 0: it would be let in, 1: it would not, 2: a flaw of this box."""
    through = f"ssh {shown(recipe.ssh)}" if recipe.ssh else "direct"
    report = Report(recipe.host, str(recipe.controller), through, admitted=False)
    permanent = False
    try:
        fill(report, recipe)
    except Fault as fault:
        report.code, report.why, report.fix = fault.code, str(fault), fault.fix
        permanent = is_permanent(fault)
    print(msgspec.json.encode(report).decode() if as_json else text(report), flush=True)
    if report.admitted:
        return exits.DONE
    return PERMANENT if permanent else exits.NOT_DONE


def fill(report: Report, recipe: Recipe) -> None:
    with Preparation(recipe, speak(recipe.host)) as preparation:
        visit_with(preparation, report)


def visit_with(preparation: Preparation, report: Report) -> None:
    recipe, prepared = preparation.recipe, preparation.prepare()
    report.program, report.run = prepared.program, prepared.run
    report.libtorch = prepared.variant.name if prepared.variant else ""
    report.devices = [offer.label or offer.kind for offer in prepared.offers]
    salt = parse_salt(recipe.token, "the token") if recipe.token else None
    with road(recipe) as (dial, _):
        spec = spec_for(recipe, prepared, dial)
        report.unasked = sign(spec, recipe, prepared, dial, preparation.say)
        report.model_sig, report.tensors = spec.model_sig_hex or "", len(spec.model_schema)
        report.dataset_sig = spec.dataset_sig_hex or ""
        hello = describe(spec, prepared.offers, check_project(spec), prepared.variant)
        verdict, measured = asyncio.run(visit(dial, salt, hello, spec.model_schema, measure=True))
    if isinstance(verdict, Reject):
        report.code, report.why, report.fix = verdict.code, f"{verdict.what}: {verdict.why}", verdict.fix
    else:
        take_verdict(report, verdict, measured)


def take_verdict(report: Report, verdict: Accept, measured: Measured | None) -> None:
    report.admitted, report.ranks, report.args = True, verdict.ranks, verdict.args
    if measured:
        report.round_trip_s = round(measured.round_trip, 6)
        report.up_bytes_per_s, report.down_bytes_per_s = round(measured.up), round(measured.down)


def text(report: Report) -> str:
    """For people."""
    verdict = f"would be let in, with ranks {', '.join(map(str, report.ranks))}"
    lines = [f"rehearsal of {report.host} at {report.controller} ({report.road}); nobody was counted"]
    rows = [("verdict", verdict if report.admitted else f"no: {report.why}")]
    if report.fix:
        rows.append(("fix", report.fix))
    if report.program:
        rows.append(("program", " ".join(report.program)))
    if report.run:
        rows.append(("run", report.run))
    if report.libtorch:
        rows.append(("libtorch", report.libtorch))
    if report.args is not None:
        rows.append(("arguments", f"the run's: {' '.join(report.args) or 'none'}"))
    if report.devices:
        counts = {label: report.devices.count(label) for label in dict.fromkeys(report.devices)}
        rows.append(("devices", ", ".join(f"{count} × {label}" for label, count in counts.items())))
    if report.unasked:
        rows.append(("model", f"not compared at the door: {report.unasked}"))
    if report.model_sig:
        rows.append(("model", f"{report.model_sig[:12]}, {report.tensors} tensors"))
    if report.dataset_sig.strip(_ZEROS):
        rows.append(("data", report.dataset_sig[:12]))
    if report.round_trip_s is not None:
        up, down = rate(report.up_bytes_per_s or 0), rate(report.down_bytes_per_s or 0)
        rows.append(("road", f"round trip {report.round_trip_s * 1e3:.1f} ms, {up} up, {down} down"))
    return printable("\n".join([*lines, *(f"  {name:10} {value}" for name, value in rows)]))


def rate(per_second: float) -> str:
    return f"{per_second / 1e6:.1f} MB/s" if per_second >= 1e5 else f"{per_second / 1e3:.1f} kB/s"
