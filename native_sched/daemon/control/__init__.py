"""The control socket: its verbs, and what they set going."""
