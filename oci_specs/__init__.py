"""What users write, what the control socket carries, and how a spec is changed: pure functions and data.

Nothing is imported here: the create path runs on every container start and pays for each import.
"""
