"""What numbers mean, a file a subject: the time of devices, speed and staleness, learning, lending, steering, jobs."""
