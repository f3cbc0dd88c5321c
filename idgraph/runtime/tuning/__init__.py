"""Configurations of one fusion's kernels measured on the machine at hand, the best one remembered.

The data's way: `moves` (which configs there are), `trials` (each one scheduled, emitted, compared and timed), `record`
(what is remembered, as text), `tuner` (the search, and where its result is kept).
"""

from idgraph.runtime.tuning.record import Measured
from idgraph.runtime.tuning.tuner import Tuned, Tuner, tune

__all__ = ["Measured", "Tuned", "Tuner", "tune"]
