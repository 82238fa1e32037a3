"""The figures as Prometheus reads them, written by its own client library (imported on the first request)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flodl_window.live.history import History
from flodl_wire.state import PHASES, State

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Figures:
    """What the library asks for its figures."""

    def __init__(self, state: State, history: History) -> None:
        self._state, self._history = state, history

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        state, history = self._state, self._history
        run = InfoMetricFamily("flodl_run", "the run")
        run.add_metric([], {"run": state.run, "mode": state.mode})
        yield run
        phase = GaugeMetricFamily("flodl_phase", "1 for the phase the run is in", labels=["phase"])
        for name in PHASES:
            phase.add_metric([name], float(name == state.phase))
        yield phase

        def gauge(name: str, text: str, value: float | None) -> Iterator[Any]:
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)

        yield from gauge("flodl_hosts", "hosts that are in", len(state.members))
        yield from gauge("flodl_ranks", "ranks that are in", state.joined_ranks)
        yield from gauge("flodl_ranks_lost", "ranks that were lost", sum(rank.status == "lost" for rank in state.ranks))
        yield from gauge("flodl_degraded", "1 when the run goes on without a rank it began with", float(state.degraded))
        yield from gauge("flodl_window_remaining_seconds", "until the window closes", state.window_remaining_secs)
        progress = state.progress
        if progress is not None:
            yield from gauge("flodl_epoch", "epochs merged so far and the present one", progress.epoch + 1)
            yield from gauge("flodl_epochs", "epochs of the run", progress.epochs)
            yield from gauge("flodl_epoch_samples", "samples merged in this epoch", progress.samples)
            yield from gauge("flodl_samples_per_second", "samples merged per second", progress.samples_per_s)
            yield from gauge("flodl_loss", "training loss of the present epoch", progress.loss)
            yield from gauge("flodl_balance", "1: nobody ever waited for anybody", progress.balance)
            yield from gauge("flodl_sync_share", "share of the ranks' time that averaging took", progress.sync_share)
            yield from gauge("flodl_rounds", "averages made", progress.rounds)
            hosts = {rank.rank: rank.host for rank in state.ranks}
            rate = GaugeMetricFamily(
                "flodl_rank_samples_per_second", "samples per busy second", labels=["rank", "host"]
            )
            for each in progress.ranks:
                rate.add_metric([str(each.rank), hosts.get(each.rank, "")], each.samples_per_s)
            yield rate
        yield from self._hosts()
        evaluation = GaugeMetricFamily("flodl_evaluation", "newest value of a metric", labels=["metric"])
        for column in history.epochs.columns:
            value = history.epochs.last(column)
            if column.startswith("eval:") and value is not None:
                evaluation.add_metric([column[5:]], value)
        yield evaluation

    def _hosts(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        texts = {
            "cpu": ("flodl_host_cpu_share", "share of all processors in use"),
            "memory": ("flodl_host_memory_share", "share of memory in use"),
            "rx": ("flodl_host_received_bytes_per_second", "over every interface but loopback"),
            "tx": ("flodl_host_sent_bytes_per_second", "over every interface but loopback"),
        }
        for column, (name, text) in texts.items():
            family = GaugeMetricFamily(name, text, labels=["host"])
            for host, table in self._history.hosts.items():
                value = table.last(column)
                if value is not None:
                    family.add_metric([host], value)
            yield family
        busy = GaugeMetricFamily("flodl_gpu_busy_share", "as its driver says", labels=["host", "gpu"])
        memory = GaugeMetricFamily("flodl_gpu_memory_share", "of its memory in use", labels=["host", "gpu"])
        for host, table in self._history.hosts.items():
            for column in table.columns:
                value = table.last(column)
                if column.startswith("gpu") and value is not None:
                    number = column[3:].partition("_")[0]
                    (memory if column.endswith("_memory") else busy).add_metric([host, number], value)
        yield busy
        yield memory


def render(state: State, history: History) -> bytes:
    """The text of /metrics."""
    from prometheus_client.core import CollectorRegistry
    from prometheus_client.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(state, history))
    return bytes(generate_latest(registry))
