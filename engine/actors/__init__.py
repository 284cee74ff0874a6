"""The Ray edge: the only place that imports ray. Everything above works with the Protocols of engine/devices.py."""
