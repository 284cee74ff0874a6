"""One run inside the engine: its books, its loop, its telemetry."""
