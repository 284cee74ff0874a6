"""What can be said of a job's model without loading it: where it lies, its size, the memory that the job will need.

Imports neither torch nor transformers: the engine asks at launch, before any device is spent. What only those can tell
is asked of a process of its own (`trials`).
"""
