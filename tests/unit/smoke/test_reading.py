"""Reads are spared where nobody can see it: pauses within their bounds, ACKs never at the price of a token's time."""

from __future__ import annotations

import asyncio

import pytest

from gpunode_tools.smoke import reading, stream
from gpunode_tools.smoke.dialects import Shape
from gpunode_tools.smoke.level import Level, Plan, Target


class Loop:
    """Keeps what is called soon."""

    def __init__(self):
        self.calls = []

    def call_soon(self, call):
        self.calls.append(call)


class Socket:
    def __init__(self):
        self.options = []

    def setsockopt(self, *option):
        self.options.append(option)


class Slot:
    """What `Reading` looks at."""

    def __init__(self, *, first=1.0):
        self.socket, self.transport, self.first = Socket(), object(), first

    @property
    def spared(self):
        return bool(self.socket.options)


def tuned(rate, gap, earlier=()):
    found = reading.Reading(Loop())
    for one in (*earlier, gap):
        found.tune(rate, [one] * reading.GAPS)
    return found


@pytest.mark.parametrize(
    ("rate", "gap", "pause"),
    [
        (20_000, 0.005, 0.0001),  # a fiftieth of the time between tokens
        (20_000, 0.100, reading.PAUSE_S),
        (200, 0.100, 0.0),  # nothing would come in it
        (500_000, 0.0005, 0.0),  # shorter than a wake-up
    ],
)
def test_a_pause_stays_within_its_bounds(rate, gap, pause):
    found = tuned(rate, gap)
    assert found.pause_s == pytest.approx(pause)
    assert found.due == bool(pause)


def test_the_shortest_gap_bounds_a_pause_for_the_rest_of_the_level():
    assert tuned(20_000, 0.010, earlier=[0.004]).pause_s == pytest.approx(0.00008)
    assert tuned(20_000, 0.010, earlier=[0.020]).longest_s == pytest.approx(reading.PAUSE_S)  # and the longest is told


def test_few_gaps_tell_nothing():
    found = reading.Reading(Loop())
    found.tune(20_000, [0.01] * (reading.GAPS - 1))
    assert not found.due


def test_one_pause_a_turn_and_none_once_it_does_not_pay(monkeypatch):
    slept = []
    monkeypatch.setattr(reading.time, "sleep", slept.append)
    found = tuned(20_000, 0.005)
    found.begin()
    assert not found.due
    found.loop.calls.pop()()
    assert found.due
    assert slept == [pytest.approx(0.0001)]
    found.begin()
    found.tune(100, [0.010] * reading.GAPS)
    found.loop.calls.pop()()
    assert not found.due


# Two more events at once than a quarter of eight connections is one too many; as many where no ACK was spared say that the client was late.
@pytest.mark.parametrize(("usual", "spared", "sparing"), [(0, 0, True), (0, 2, True), (0, 3, False), (9, 11, True), (9, 14, False)])
def test_acks_are_spared_only_where_half_of_the_connections_were_none_the_worse(usual, spared, sparing):
    found, slots = tuned(20_000, 0.010), [Slot() for _ in range(16)]
    found.try_acks(slots, 200)
    assert [slot.spared for slot in slots] == [False, True] * 8
    found.together = [usual, spared]
    found.conclude(slots, 200 + reading.TRIAL_GAPS * 16)
    assert found.spare_acks is sparing
    assert slots[0].spared is sparing


@pytest.mark.parametrize(("slots", "gap", "gaps"), [(4, 0.010, 10_000), (16, 0.030, 10_000), (16, 0.010, 210)])
def test_acks_are_not_spared_where_nothing_can_be_known_or_won(slots, gap, gaps):
    found, several = tuned(20_000, gap), [Slot() for _ in range(slots)]
    found.try_acks(several, 200)
    found.conclude(several, gaps)
    assert not found.spare_acks


def test_a_server_that_waits_for_acks_gets_them(truth, smoke, monkeypatch):
    verdicts = []
    conclude = reading.Reading.conclude

    def watched(self, slots, gaps):
        conclude(self, slots, gaps)
        verdicts.append(self.spare_acks)

    monkeypatch.setattr(reading.Reading, "conclude", watched)
    for held in (reading.TRIAL_HELD, 1e9):
        monkeypatch.setattr(reading, "TRIAL_HELD", held)
        truth.reset(ttft_ms=20, itl_ms=2, nagle=1)
        assert smoke(truth.url, concurrency=(16,), output_len=400, requests_per_slot=1)[1] == 0
    assert verdicts == [False, True]  # refused by what the trial saw, and by nothing else


class Transport:
    def __init__(self, *, closing=False, waiting=0):
        self.closing, self.waiting, self.written = closing, waiting, b""

    def get_extra_info(self, _name):
        return self

    def fileno(self):
        return 99

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return self.waiting

    def write(self, data):
        self.written += bytes(data)


@pytest.mark.parametrize(
    ("transport", "system", "left"),
    [
        (Transport(), len, b""),
        (Transport(), lambda _data: 10, b"content-length: 4\r\n\r\nbody"[10:]),
        (Transport(), ConnectionResetError, b"content-length: 4\r\n\r\nbody"),
        (Transport(), BlockingIOError, b"content-length: 4\r\n\r\nbody"),
        (Transport(closing=True), AssertionError, b"content-length: 4\r\n\r\nbody"),
        (Transport(waiting=1), AssertionError, b"content-length: 4\r\n\r\nbody"),
    ],
)
def test_a_request_leaves_at_once_and_the_transport_has_the_rest(monkeypatch, transport, system, left):
    def write(fd, data):
        assert fd == 99
        if isinstance(system, type):
            raise system
        return system(data)

    async def go():
        level = Level(Target("127.0.0.1", 1), Plan(1, 1, None, Shape("completions", "m", 8, 8)))
        slot = level.slots[0]
        slot.connection_made(transport)
        monkeypatch.setattr(stream.os, "write", write)
        slot.send(b"content-length: ", b"body", 8, warm=False)
        monkeypatch.undo()

    asyncio.run(go())
    assert transport.written == left
