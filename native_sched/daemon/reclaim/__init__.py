"""Offline memory gives way to online: which container, how, and how it comes back (docs/reclaim.md)."""
