"""What ends a run of the laboratory: one line, what and what to do."""


class LabError(Exception):
    pass
