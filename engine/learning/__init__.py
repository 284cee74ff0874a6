"""Generating answers and learning from them, in one process: models, tasks, rollouters, trainers, GRPO.

Knows nothing of devices, schedules or storage, and never imports ray. Arrays at every boundary are numpy; torch's
thread count is the caller's to set.
"""
