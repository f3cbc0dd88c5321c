"""The kernel IR: loops, conditions, loads, computations, stores; definitions and uses; shared memory."""
