"""How answers are scored: one short file a reward, and the process in which they run, where a hang can be ended."""
