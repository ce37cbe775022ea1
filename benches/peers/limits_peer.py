"""Asks Python's `limits` for a time, from threads: URL THREADS KEYS SECONDS.

Prints how long it took, then how long each check waited, in ns, a line each.
"""

import sys
import threading
import time

from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter

url, threads, keys, seconds = sys.argv[1], *map(int, sys.argv[2:])
limiter = FixedWindowRateLimiter(storage_from_string(url))
limit = RateLimitItemPerSecond(1_000_000)
waits = []


def ask(first):
    turn, end = first, time.perf_counter() + seconds
    while time.perf_counter() < end:
        asked = time.perf_counter_ns()
        assert limiter.hit(limit, str(turn * 7919 % keys))
        waits.append(time.perf_counter_ns() - asked)
        turn += threads


started = time.perf_counter_ns()
asking = [threading.Thread(target=ask, args=(first,)) for first in range(threads)]
for thread in asking:
    thread.start()
for thread in asking:
    thread.join()
print(time.perf_counter_ns() - started)
print("\n".join(map(str, waits)))
