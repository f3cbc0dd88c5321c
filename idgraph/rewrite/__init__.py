"""Fusion to fusion: gathers, reductions in two stages, broadcasts, computed tensors read at other coordinates."""
