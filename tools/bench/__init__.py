"""Measurements and coverage: scripts that print tables, kept with their results."""
