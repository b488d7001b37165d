"""Which test starts next, so that the processors are busy to the end and no lane is left to run alone.

A job is one process: a test, or cases of one GoogleTest program. `jobs_of` makes them. `Schedule` decides: `next` gives a job
that may start now or None, `ended` takes it back. Neither reads a clock, so a test can drive both.

The rule: the job that the longest chain waits for goes first. The chain of a job with a lock is all that its lane has left. A job
starts while the processors that the running jobs are known to keep busy leave room for it. If the first job finds no room, only
jobs that mostly wait may pass it, so that it is not passed for ever.
"""

import collections
import dataclasses

import listing
from listing import Cost

MOST_BATCH_S = 12.0  # the cases of a process take about this long, and a failed one is soon known
MOST_BATCH_CASES = 150
OWN_PROCESS_S = 4.0  # a case of this length gets a process to itself
UNKNOWN_CASE = Cost(0.05, 1.0)
UNKNOWN_TEST = Cost(3.0, 0.35)
UNKNOWN_LONG = Cost(240.0, 0.8)  # many at once would hold one another up until their time limits
ROOM = 1.6  # busy processors for each one there is: what was recorded is a mean, with pauses in it
WAITS = 0.3  # a job that keeps less than this busy mostly waits
MOST_AT_ONCE = 3  # for each processor. What was recorded beside many others is too little, as each had a share alone


@dataclasses.dataclass(eq=False)
class Job:
    tests: list
    cost: Cost

    @property
    def locks(self):
        return self.tests[0].locks

    @property
    def serial(self):
        return self.tests[0].serial


def cost_of(test, costs):
    unknown = UNKNOWN_LONG if test.is_long else UNKNOWN_CASE if test.shares_process else UNKNOWN_TEST
    cost = costs.get(test.name, unknown)
    # Ranks of PyTorch compute all the time. Beside others that do so, each looks as if it waited.
    computes = listing.PEERS in test.labels and not test.locks
    return Cost(cost.seconds, max(cost.cores, 1.0)) if computes else cost


def jobs_of(tests, costs):
    """Cases of a program share a process where they may; any other test is a job of its own. The order of cases stays."""
    jobs, shared = [], collections.defaultdict(list)
    for test in tests:
        # Cases of peers share all there is, since the import of PyTorch costs more than any of them.
        long_case = cost_of(test, costs).seconds >= OWN_PROCESS_S and listing.PEERS not in test.labels
        if not test.shares_process or long_case:
            jobs.append(Job([test], cost_of(test, costs)))
        else:
            shared[test.command[0], test.folder, test.environment, test.timeout_s].append(test)
    for cases in shared.values():
        batch, seconds, busy = [], 0.0, 0.0
        for test in cases:
            cost = cost_of(test, costs)
            full = seconds + cost.seconds > MOST_BATCH_S and listing.PEERS not in test.labels
            if batch and (full or len(batch) == MOST_BATCH_CASES):
                jobs.append(Job(batch, Cost(seconds, busy / seconds)))
                batch, seconds, busy = [], 0.0, 0.0
            batch.append(test)
            seconds += cost.seconds
            busy += cost.seconds * cost.cores
        jobs.append(Job(batch, Cost(seconds, busy / seconds)))
    return jobs


class Schedule:
    def __init__(self, jobs, cores):
        self._waiting = list(jobs)
        self._running = []
        self._room = cores * ROOM
        self._most = cores * MOST_AT_ONCE
        self._left = collections.Counter()  # seconds of each lock's jobs that have not ended
        for job in jobs:
            for lock in job.locks:
                self._left[lock] += job.cost.seconds

    def __bool__(self):
        return bool(self._waiting)

    def _chain(self, job):
        """Seconds that end no sooner than this job lets them; of a lane's jobs, the longest first."""
        return max((self._left[lock] for lock in job.locks), default=job.cost.seconds), job.cost.seconds

    def next(self):
        """The job that starts now, or None where the running ones must go on first."""
        if not self._waiting or len(self._running) >= self._most or any(job.serial for job in self._running):
            return None
        together = [job for job in self._waiting if not job.serial]
        if not together:  # serial jobs come last, when everything else has ended
            return None if self._running else self._start(max(self._waiting, key=lambda job: job.cost.seconds))
        taken = frozenset().union(*(job.locks for job in self._running))
        free = sorted((job for job in together if not job.locks & taken), key=self._chain, reverse=True)
        room = self._room - sum(job.cost.cores for job in self._running)
        for place, job in enumerate(free):
            if not self._running or (job.cost.cores <= room and (place == 0 or job.cost.cores < WAITS)):
                return self._start(job)
        return None

    def _start(self, job):
        self._waiting.remove(job)
        self._running.append(job)
        return job

    def ended(self, job):
        self._running.remove(job)
        for lock in job.locks:
            self._left[lock] -= job.cost.seconds
