"""
When bytes arrived. On Linux, the kernel stamps plain http's: however late this process gets to run, it is told.

Measured with 256 streams on two cores (docs/measurements.md): the time of the read is 0.4 ms late in the mean and 1 ms
in p99, the stamp 0.01 ms, for 1 us of CPU time per read. TLS is read by asyncio, which hands none on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SO_TIMESTAMPNS = 35  # asm-generic/socket.h: x86 and Arm; Python has no name for it
_STAMP = struct.Struct("qq")  # seconds, nanoseconds
KERNEL_STAMPS = sys.platform == "linux" and struct.calcsize("P") == 8  # else they are words of 32 bits
STAMP_BYTES = socket.CMSG_SPACE(_STAMP.size)
_STEADY_NS = 50_000  # two readings of one offset differ by less, unless we were preempted between them
_JUMP_NS = 1_000_000
_SAMPLE_NS = 10_000_000


class Receiver:
    """What all sockets of a run share: the buffer they read into, and the kernel's clock on the monotonic one."""

    def __init__(self) -> None:
        # A buffer that stays: recv() of this size would map and unmap memory at every read.
        self.buffer = memoryview(bytearray(65536))
        self.stamped = False  # by the kernel
        self.lags_ns = array("q")  # from the kernel's stamp to our read; without stamps, of a timer
        self.clock_jumps = 0
        self.offset_ns = _offset_ns()  # CLOCK_REALTIME - CLOCK_MONOTONIC, when last looked at

    def arrival_ns(self, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """When the last bytes of a read came, on the monotonic clock: the read's own time where no stamp is."""
        read_ns = time.monotonic_ns()
        offset_ns = time.time_ns() - read_ns
        if abs(offset_ns - self.offset_ns) > _STEADY_NS:
            offset_ns = self.check_clock()
        self.offset_ns = offset_ns
        if not ancillary:  # bytes that came before the kernel began to stamp
            return read_ns
        seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])  # the one control message that was asked for
        lag_ns: int = read_ns + offset_ns - seconds * 1_000_000_000 - nanoseconds
        if not 0 <= lag_ns <= read_ns:  # the clock was set between stamp and read; a stamp of 0 is none
            return read_ns
        self.lags_ns.append(lag_ns)
        return read_ns - lag_ns

    async def sample_lag(self) -> None:
        """
        Without stamps, take how late this process comes to a timer for how late it comes to a read.

        The event loops' timers are of milliseconds: one that is late by less is on time.
        """
        while not self.stamped:
            due_ns = time.monotonic_ns() + _SAMPLE_NS + 1_000_000
            await asyncio.sleep(_SAMPLE_NS / 1e9)
            self.lags_ns.append(max(time.monotonic_ns() - due_ns, 0))

    def check_clock(self) -> int:
        """Give the offset of CLOCK_REALTIME, and count a jump since the last look."""
        offset_ns = _offset_ns()
        self.clock_jumps += abs(offset_ns - self.offset_ns) > _JUMP_NS
        self.offset_ns = offset_ns
        return offset_ns


def _offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from the reading of five that took the shortest."""
    readings = []
    for _ in range(5):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, real - before))
    return min(readings)[1]
