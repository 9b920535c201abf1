"""The link between edge and cloud: wire contract, ZeroMQ channel, heartbeats, emulator of bad networks."""

from specdec.link.channel import Link, connect

__all__ = ["Link", "connect"]
