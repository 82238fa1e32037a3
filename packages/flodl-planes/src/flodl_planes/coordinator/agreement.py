"""Do the ranks' scripts mean the same training? Compared before the first batch, refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl_wire.config import MODES
from flodl_wire.faults import Fault, Refused
from flodl_wire.plane_messages import WIRES, RankHello, TensorSpec, Terms

TRAINS = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence")  # in which this hub runs rounds
DIRECT = ("nccl_sync", "nccl_cadence")  # of these, where the ranks move tensors among themselves


def check_mode(mode: str) -> Fault | None:
    """Whether the hub can coordinate `mode` at all."""
    if mode in TRAINS or mode == "torch":
        return None
    known = mode in MODES
    why = "this version's hub averages in " + " and ".join(TRAINS) if known else f"the modes are {', '.join(MODES)}"
    return Refused("bad-mode", f"cannot coordinate mode {mode}", why, "use --mode cpu_cadence")


def disagreement(hellos: Mapping[int, RankHello], mode: str) -> Fault | None:
    """The first thing that is wrong with the ranks' terms and models, or None. `hellos` holds every rank of the
    world.
    """
    ranks = sorted(hellos)
    for name in Terms.__struct_fields__:
        said: dict[str, list[int]] = {}
        for rank in ranks:
            said.setdefault(_word(getattr(hellos[rank].terms, name)), []).append(rank)
        if len(said) > 1:
            return Refused(
                "terms-differ",
                f"cannot train together: the ranks differ in {name}",
                "; ".join(f"{_ranks(who)} {'says' if len(who) == 1 else 'say'} {value}" for value, who in said.items()),
                "start every rank with the same script and arguments",
            )
    terms = hellos[ranks[0]].terms
    if terms.mode != mode:
        return Refused(
            "terms-differ",
            "cannot train: the script and the world differ in mode",
            f"Trainer(mode={terms.mode!r}), but the world was started as {mode}",
            f"leave Trainer's mode out, or start with --mode {terms.mode}",
        )
    for name in ("dataset", "batch_size", "epochs"):
        if getattr(terms, name) < 1:
            return Refused("bad-terms", "cannot train", f"{name} is {getattr(terms, name)}", "it must be 1 or more")
    if terms.wire not in WIRES:
        why = f"there is no wire {terms.wire!r}; known are {', '.join(WIRES)}"
        return Refused("bad-terms", "cannot train", why, "bring every host to the same release")
    over = {rank: hellos[rank].collective for rank in ranks}
    if len(set(over.values())) > 1:
        who = {kind: [rank for rank in ranks if over[rank] == kind] for kind in sorted(set(over.values()))}
        return Refused(
            "collectives-differ",
            f"cannot train in mode {mode}: the ranks cannot reach one another",
            "; ".join(f"{_ranks(some)} {'talks' if len(some) == 1 else 'talk'} {kind}" for kind, some in who.items()),
            "give every rank a GPU, or none; or use a cpu mode, which mixes them",
        )
    for rank in ranks[1:]:
        fault = _models(hellos[ranks[0]], hellos[rank])
        if fault:
            return fault
    return None


def _word(value: Any) -> str:
    return "nothing" if value is None or value == {} else str(value)


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


def _models(first: RankHello, other: RankHello) -> Fault | None:
    def refuse(why: str) -> Fault:
        return Refused(
            "schema-differs",
            f"cannot average rank {other.rank} with rank {first.rank}: their models differ",
            why,
            "build the same model on every rank",
        )

    for ours, theirs in zip(first.tensors, other.tensors, strict=False):
        if ours != theirs:
            return refuse(
                f"first difference: rank {first.rank} has {_tensor(ours)}, rank {other.rank} has {_tensor(theirs)}"
            )
    if len(first.tensors) != len(other.tensors):
        fewer, more = sorted((first, other), key=lambda hello: len(hello.tensors))
        extra = more.tensors[len(fewer.tensors)]
        return refuse(f"first difference: rank {more.rank} has {_tensor(extra)}, rank {fewer.rank} ends before it")
    if first.sections != other.sections:
        return refuse("their memory is laid out differently: different versions of flodl")
    if first.model_sig != other.model_sig:
        return refuse(f"signature {first.model_sig[:12]} against {other.model_sig[:12]}")
    return None


def _tensor(spec: TensorSpec) -> str:
    shape = "×".join(map(str, spec.shape)) or "scalar"
    ties = f" tied to {', '.join(spec.ties)}" if spec.ties else ""
    return f"{spec.kind} {spec.name} ({spec.dtype} {shape}{ties})"
