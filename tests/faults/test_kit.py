"""The fault kit itself: faults happen where and as often as they were asked for, and only there."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App
from penstock.errors import StoreUnavailable
from penstock.store.contract import Store
from penstock.testing import CRASH_POINTS, FOR_EVER, Faults, UnknownCrashPoint, lose_reply
from penstock.testing.crash_points import UnknownAction
from penstock.testing.notifications import Notifications

SSL_REQUEST = struct.pack("!II", 8, 80877103)


@pytest.mark.parametrize("name", CRASH_POINTS)
def test_every_crash_point_is_an_operation_of_the_store(name: str) -> None:
    assert hasattr(Store, CRASH_POINTS[name].operation)


def test_an_unknown_crash_point_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownCrashPoint, match="Did you mean 'after_claim'"):
        Faults().at("after_clam", lose_reply)


@pytest.mark.parametrize("words", ["explode", "killl 2"])
def test_an_unknown_fault_is_refused_with_those_that_there_are(words: str) -> None:
    with pytest.raises(UnknownAction, match="lose_reply, kill, stop, terminate"):
        Faults.described({"after_claim": words})


def test_a_fault_happens_as_often_as_it_was_asked_for_and_the_store_has_done_its_work(
    make_app: Callable[[], App],
) -> None:
    app, outcomes = make_app(), []
    with Faults.described({"after_create": "lose_reply 2 1"}).injected(app) as faults:
        for number in range(5):
            try:
                app.enqueue("later", {"number": number})
            except StoreUnavailable:
                outcomes.append("lost")
            else:
                outcomes.append("answered")
    assert outcomes == ["answered", "lost", "lost", "answered", "answered"]
    assert faults.happened == {"after_create": 2}
    assert app.counts()["ready"] == 5


def test_a_fault_before_an_operation_keeps_it_from_happening_until_it_is_cleared(
    make_app: Callable[[], App],
) -> None:
    app = make_app()
    with Faults().at("before_create", lose_reply, times=FOR_EVER).injected(app) as faults:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                app.enqueue("later")
        assert app.counts()["ready"] == 0
        faults.clear()
        app.enqueue("later")
    assert app.counts()["ready"] == 1


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


messages = st.lists(
    st.tuples(st.sampled_from([b"A", b"D", b"Z", b"N", b"S"]), st.binary(max_size=40)), max_size=12
)


@given(messages, st.lists(st.integers(1, 60)), st.booleans(), st.booleans())
def test_notifications_are_taken_out_and_nothing_else_however_the_stream_is_cut(
    told: list[tuple[bytes, bytes]], sizes: list[int], asks_for_encryption: bool, drop: bool
) -> None:
    following = Notifications()
    stream = b"".join(message(*one) for one in told)
    kept = [message(*one) for one in told if not drop or one[0] != b"A"]
    expected = b"".join(kept)
    if asks_for_encryption:
        following.asked(SSL_REQUEST)
        stream, expected = b"N" + stream, b"N" + expected
    passed = b""
    while stream:
        size = sizes.pop() if sizes else 7
        passed += following.removed_from(stream[:size], drop=drop)
        stream = stream[size:]
    assert passed == expected
    assert following.dropped == len(told) - len(kept)
