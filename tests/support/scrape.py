"""One scrape of a running mgpud's metrics."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from oci_specs.unix_http import UnixConnection


class Scrape:
    """What was there. text: the exposition itself."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [one.value for one in self._samples if one.name == name and wanted <= one.labels.items()]

    def one(self, name: str, **labels: str) -> float:
        """The only sample with these labels among its own."""
        [found] = self.values(name, **labels)
        return found

    def of(self, name: str, container_id: str, **labels: str) -> float:
        return self.one(f"mgpu_container_{name}", container_id=container_id, **labels)


def text_at(path: Path) -> str:
    connection = UnixConnection(str(path), 10)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        body = response.read().decode()
    finally:
        connection.close()
    assert response.status == 200, body
    return body


def scrape(root: Path) -> Scrape:
    """A scrape of the mgpud that serves `root`."""
    return Scrape(text_at(root / "metrics.sock"))
