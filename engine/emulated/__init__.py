"""Live emulated devices: the engine's real commands and events, modelled times and synthetic groups (design section 9).

They have the simulator's physics and learn nothing. No ray, no torch: a node of devices is pure, driven from outside.
"""
