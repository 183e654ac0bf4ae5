"""Pointing container engines and systemd at mgpu, and away from it again.

Text of a configuration goes in, text comes out; what reads and writes files is in `files` and `apply` alone.
"""
