"""How many facts were compared with what others have is told, whether or not all are as they were."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [str(value) for report in reports for name, value in report.user_properties if name == "facts"]
    if lines:
        terminalreporter.section("facts compared with others", sep="=")
        terminalreporter.write_line("\n".join(lines))
