"""Calls at absolute moments of CLOCK_MONOTONIC, kept to about 0.1 ms: epoll's own timeout has whole milliseconds."""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import os
import struct
import time
from array import array
from collections.abc import Callable

now = time.perf_counter  # CLOCK_MONOTONIC: the same in every process of this machine
_libc = ctypes.CDLL(None, use_errno=True)
EARLY_S = 20e-6  # what is due within this is done at once: arming the timer again takes about as long
Call = Callable[[object, float], None]


class Timeline:
    """*fd* becomes readable when the next call is due."""

    def __init__(self) -> None:
        self.fd = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self.late_s = array("d")
        self._armed: float | None = None
        self._calls: list[tuple[float, int, Call, object]] = []
        self._number = 0

    def at(self, moment_s: float, call: Call, argument: object) -> None:
        self._number += 1
        heapq.heappush(self._calls, (moment_s, self._number, call, argument))
        self._arm(moment_s)

    def fire(self) -> None:
        """Does what is due; each call gets the moment that it was due at."""
        self._armed = None
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)
        while self._calls:
            due_s, clock_s = self._calls[0][0], now()
            if due_s > clock_s + EARLY_S:
                self._arm(due_s)
                return
            _, _, call, argument = heapq.heappop(self._calls)
            self.late_s.append(clock_s - due_s)
            call(argument, due_s)

    def _arm(self, moment_s: float) -> None:
        if self._armed is not None and self._armed <= moment_s:
            return
        self._armed = moment_s
        nanoseconds = max(1, int(moment_s * 1e9))
        setting = struct.pack("qqqq", 0, 0, nanoseconds // 10**9, nanoseconds % 10**9)
        _libc.timerfd_settime(self.fd, 1, setting, None)  # TFD_TIMER_ABSTIME


def no_timer_slack() -> None:
    """The kernel may else join timers that are 50 µs apart."""
    _libc.prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: 1 ns
