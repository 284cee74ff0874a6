"""Kinds of events on the simulator's clock."""

SEQUENCE, CHUNK, STEP, READY, RELEASED, FAIL, BACK, REVOKE, WAKE, SWITCHED = range(10)
"""A sequence ends, a chunk ends, a step is made, a lease is ready, a block is home, a block dies, it is back, an
operator takes the leases back, the least time between two decisions is over, a device without a pool has changed its
role."""
