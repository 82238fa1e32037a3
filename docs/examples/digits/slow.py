"""Plays a slower box: after each step, a chosen rank sleeps in proportion to what steps take."""

import argparse
import time
from collections import deque

from flodl_planes import local_cluster


def add_slow_option(parser):
    parser.add_argument(
        "--slow", metavar="RANK:FACTOR", action="append", default=[], type=rank_and_factor,
        help="let this rank take FACTOR times as long for each step (repeatable)",
    )  # fmt: skip


def rank_and_factor(text):
    rank, _, factor = text.partition(":")
    try:
        pair = int(rank), float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no RANK:FACTOR such as 1:2.5") from None
    if pair[0] < 0 or not 1 <= pair[1] <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: the rank is 0 or more, the factor from 1 to 1000")
    return pair


class Slowness:
    """`begin` where a step begins; the optimizer given to `after` sleeps at the end of each of its steps, until it has
    lasted `factor` times the processor time that steps usually take: a slower box would not be slowed any further by
    what else runs on this one. Usually is the lower quartile of the last ones.
    """

    def __init__(self, pairs):
        self.factor = dict(pairs).get(local_cluster().rank, 1.0)
        self.last = deque(maxlen=16)

    def begin(self):
        self.began, self.worked = time.perf_counter(), time.thread_time()

    def end(self, *_):
        if self.factor > 1:
            self.last.append(time.thread_time() - self.worked)
            usual = sorted(self.last)[len(self.last) // 4]
            time.sleep(max(0.0, self.began + self.factor * usual - time.perf_counter()))

    def after(self, optimizer):
        optimizer.register_step_post_hook(self.end)
        return optimizer
