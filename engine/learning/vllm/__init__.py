"""vLLM as a rollouter: its engine in the worker's own process, driven one step at a time (an optional extra)."""
