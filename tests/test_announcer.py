"""What a worker does between timed calls: when it looks at what they left behind, and whom it blames."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pytest

from runner.measure import fresh
from runner.process.faults import Tampered
from runner.worker.announcer import Announcer


class Session:
    """Counts looks at the state, which is changed from `harmed` on."""

    card = no_card = None
    device = "cpu"

    def __init__(self) -> None:
        self.looks, self.harmed = 0, ""
        self.cases = [types.SimpleNamespace(changed=lambda: "", output_bytes=[])]
        self.state = types.SimpleNamespace(changes=self._changes)
        self.modules = {4: "four", 7: "seven"}

    def _changes(self, own: str) -> str:
        self.looks += 1
        self.own = own
        return self.harmed


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def spent(monkeypatch) -> Iterator[None]:
    """Nothing is left to spend, and chance says no."""
    monkeypatch.setattr(fresh.Freshness, "_allowed_s", property(lambda self: -1.0))
    monkeypatch.setattr(fresh._random, "random", lambda: 1.0)
    yield


def watch(session: Session, **how) -> Announcer:
    return Announcer(session, [4, 7], "cold", **how)


def calls(one: Announcer, *indices: int) -> None:
    for index in indices:
        one.before(index)
        one.timed(index)


def test_each_call_is_looked_at_while_that_is_allowed(session):
    calls(watch(session), 0, 1, 0, 1)
    assert session.looks == 4


def test_later_calls_are_looked_at_by_chance(session, spent, monkeypatch):
    one = watch(session)
    calls(one, *[0, 1] * 50)
    assert session.looks == 0
    monkeypatch.setattr(fresh._random, "random", lambda: 0.0)
    calls(one, 0, 1)
    assert session.looks == 2


@pytest.mark.usefixtures("spent")
def test_each_call_is_looked_at_where_that_is_asked(session):
    calls(watch(session, each=True), 0, 1, 0)
    assert session.looks == 3


def test_who_called_since_the_last_look_is_blamed(session):
    one = watch(session)
    calls(one, 0)
    session.harmed = "the default dtype"
    with pytest.raises(Tampered, match="global state: the default dtype") as found:
        calls(one, 1)
    assert found.value.index == 7


@pytest.mark.usefixtures("spent")
def test_nobody_is_blamed_where_it_may_be_one_of_several(session):
    one = watch(session)
    calls(one, 0, 1)
    session.harmed = "the default dtype"
    with pytest.raises(Tampered) as found:
        one.unharmed(1)
    assert found.value.index is None


@pytest.mark.usefixtures("spent")
def test_a_call_whose_output_is_judged_is_looked_at_first(session):
    one = watch(session)
    session.ask = lambda *what, **told: pytest.fail("judged on inputs that somebody changed")
    session.cases[0].changed = lambda: "x"
    calls(one, 0)
    one.before(1)
    one._judged = True
    with pytest.raises(Tampered, match="its input x") as found:
        one.timed(1)
    assert found.value.index is None
