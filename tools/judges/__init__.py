"""Judges of the library that share no code with it, and random questions for them: tests and measurements use them."""
