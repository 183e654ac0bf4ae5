"""What a person who calls the tool has to be told, in one line."""


class Problem(Exception):
    """What, why, what to do."""
