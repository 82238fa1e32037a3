from __future__ import annotations

from typing import Any

import pytest
from window_worlds import cluster, hello, offers

from flodl_window.cohort import Cohort, classify
from flodl_window.ledger import Ledger
from flodl_window.roster import read_roster
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer, Hello


def ledger(*devices: object, walk_ins: bool = False, **cohort: Any) -> Ledger:
    of = cluster(*devices) if devices else None
    return Ledger(read_roster(of, "here") if of else [], Cohort(**cohort), walk_ins or of is None)


def admit(book: Ledger, message: Hello) -> None:
    book.admit(message, len(book.members) + 1, "10.0.0.9", 1.0)


def refusal(book: Ledger, message: Hello) -> Refused:
    before = (dict(book.members), book.joined, book.capacity(), dict(book.seeds.bound))
    with pytest.raises(Refused) as caught:
        admit(book, message)
    after = (dict(book.members), book.joined, book.capacity(), dict(book.seeds.bound))
    assert after == before, "a refusal left a trace"
    assert caught.value.why and caught.value.fix
    return caught.value


def test_ranks_follow_the_roster_whoever_comes_first() -> None:
    book = ledger("cpu:2", "cpu:1", walk_ins=True)
    admit(book, hello("stranger", 3))
    admit(book, hello("node-b", 1))
    admit(book, hello("node-a", 2))
    assert book.ranks() == {"node-a": [0, 1], "node-b": [2], "stranger": [3, 4, 5]}
    assert book.ranks_of("stranger") == [3, 4, 5]
    assert book.joined == 6 and book.complete


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (hello(" "), "bad-host-name"),
        (hello("../x"), "bad-host-name"),
        (hello("node-a", 0), "no-devices"),
        (hello("node-a", 257), "too-many-devices"),
        (Hello("node-a", "x", [*offers(1), *offers(1)]), "duplicate-device"),
        (hello("node-c", 2), "unknown-host"),
        (hello("node-a", 3), "devices-differ"),
        (hello("node-a", 2, manifest_hash="other"), "manifest-differs"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_and_leaves_no_trace(message: Hello, code: str) -> None:
    assert refusal(ledger("cpu:2", "cpu:1", manifest_hash="ours"), message).code == code


def test_a_host_is_in_once() -> None:
    book = ledger("cpu:1", "cpu:1")
    admit(book, hello("node-a"))
    assert refusal(book, hello("node-a")).code == "host-already-in"
    book.strike("node-a")
    admit(book, hello("node-a"))
    assert list(book.members) == ["node-a"] and book.joined == 1


def test_vendors_never_mix_under_nccl_and_may_elsewhere() -> None:
    for nccl in (True, False):
        book = ledger(nccl=nccl)
        admit(book, hello("a", 1, "cuda", libtorch="cu128"))
        if nccl:
            refused = refusal(book, hello("b", 1, "rocm", libtorch="rocm70"))
            assert refused.why == "it runs rocm70, the cohort runs cu128; NCCL cannot mix vendors"
        else:
            admit(book, hello("b", 1, "rocm", libtorch="rocm70"))


def test_in_an_nccl_world_all_ranks_have_gpus_or_none_has() -> None:
    for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
        book = ledger(nccl=True)
        admit(book, hello("a", 1, first))
        admit(book, hello("b", 1, first))
        assert refusal(book, hello("c", 1, second)).code == "mode-needs-gpus"


def test_nccl_must_match_in_major_and_minor_but_not_in_patch() -> None:
    book = ledger(nccl=True)
    admit(book, hello("a", 1, "cuda", nccl_version=[2, 27, 5]))
    admit(book, hello("b", 1, "cuda", nccl_version=[2, 27, 3]))
    assert refusal(book, hello("c", 1, "cuda", nccl_version=[2, 26, 5])).code == "nccl-differs"
    admit(ledger(nccl=False), hello("c", 1, "cuda", nccl_version=[2, 26, 5]))


def test_one_world_holds_one_run_and_one_model_and_one_data_set() -> None:
    book = ledger()
    admit(book, hello("plain"))
    admit(book, hello("a", run_id="aaaaaaaa1", model_sig="1" * 64, dataset_sig="3" * 64))
    assert refusal(book, hello("b", run_id="bbbbbbbb2")).why == "it holds run bbbbbbbb, a holds aaaaaaaa"
    assert refusal(book, hello("b", model_sig="2" * 64)).code == "model-differs"
    assert refusal(book, hello("b", dataset_sig="4" * 64)).code == "dataset-differs"
    admit(book, hello("b", run_id="aaaaaaaa1", model_sig="0" * 64, dataset_sig="0" * 64))


def test_what_a_refused_or_departed_host_brought_binds_nobody() -> None:
    book = ledger()
    admit(book, hello("first", model_sig="1" * 64))
    refusal(book, hello("second", run_id="stale", model_sig="2" * 64))
    admit(book, hello("third", run_id="fresh"))
    book.strike("first")
    admit(book, hello("fourth", model_sig="2" * 64))


def test_what_the_controller_knows_itself_binds_from_the_start() -> None:
    assert "the controller" in refusal(ledger(run_id="ours"), hello("a", run_id="theirs")).why


def test_a_walk_in_with_other_arguments_is_refused_with_both_lists() -> None:
    book = ledger(args=["--lr", "0.1"])
    refused = refusal(book, hello("a", argv=["--lr", "1"]))
    assert "['--lr', '1']" in refused.why and "['--lr', '0.1']" in refused.why
    admit(book, hello("b", argv=["--lr", "0.1"]))
    admit(book, hello("c"))


def test_the_size_of_an_all_host_is_known_when_it_is_in() -> None:
    book = ledger("all", "cpu:2")
    assert book.capacity() == (3, False)
    admit(book, hello("node-a", 4, "cuda"))
    assert book.capacity() == (6, True)
    book.strike("node-a")
    assert book.capacity() == (3, False)


@pytest.mark.parametrize(
    ("kind", "label", "vendor"),
    [
        ("cuda", "precompiled/cu128", "nvidia"),
        ("cuda", "", "nvidia"),
        ("cuda", "rocm70", "amd"),
        ("rocm", "", "amd"),
        ("cpu", "cpu", ""),
        ("cpu", "", ""),
        ("cpu", "builds/sm61-sm120", "nvidia"),
    ],
)
def test_the_vendor_is_read_from_devices_and_label(kind: str, label: str, vendor: str) -> None:
    assert classify(Hello("a", "x", [DeviceOffer(kind, 0)], libtorch=label)) == vendor
