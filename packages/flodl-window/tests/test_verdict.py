from __future__ import annotations

from flodl_window.verdict import Incident, Inquest, Surety, first_cause


def test_the_surest_comes_first_and_of_those_the_earliest() -> None:
    echo = Incident(1.0, Surety.ECHO, "echo")
    doubt = Incident(2.0, Surety.DOUBTFUL, "doubt")
    late = Incident(4.0, Surety.CAUSE, "late")
    early = Incident(3.0, Surety.CAUSE, "early")
    assert first_cause([echo, doubt, late, early]) is early


def test_a_sure_cause_settles_at_once_and_a_doubtful_one_waits() -> None:
    inquest = Inquest(1.0)
    inquest.add(Incident(10.0, Surety.DOUBTFUL, "relay"))
    assert inquest.settled(10.5) is None
    inquest.add(Incident(10.6, Surety.CAUSE, "rank"))
    found = inquest.settled(10.6)
    assert found is not None and found.what == "rank"


def test_a_doubtful_cause_stands_when_nothing_better_comes() -> None:
    inquest = Inquest(1.0)
    inquest.add(Incident(10.0, Surety.DOUBTFUL, "relay"))
    found = inquest.settled(11.0)
    assert found is not None and found.what == "relay"
