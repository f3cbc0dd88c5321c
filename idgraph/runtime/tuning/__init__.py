"""Configurations of one fusion's kernels measured on the machine at hand, the best one remembered.

Stages: `moves` (the configs to try), `trials` (each one scheduled, emitted, compared and timed), `record` (the stored
result, as text), `tuner` (the search, and where its result is kept).
"""

from idgraph.runtime.tuning.trial import Measured
from idgraph.runtime.tuning.tuner import Tuned, Tuner, tune

__all__ = ["Measured", "Tuned", "Tuner", "tune"]
