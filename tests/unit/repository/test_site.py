"""The pages as a site: built as strictly as mkdocs can, and a page or a link that is wrong ends the build."""

import sys
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.places import REPOSITORY
from tools import site


def test_site_is_built_of_every_page(tmp_path: Path) -> None:
    run(sys.executable, "-m", "tools.site", tmp_path, cwd=REPOSITORY)
    made = {path.relative_to(tmp_path / "html").as_posix() for path in (tmp_path / "html").rglob("*.html")}
    for page in site.pages():
        name = page.relative_to(REPOSITORY).as_posix()
        assert name.replace("README.md", "index.md").replace(".md", ".html") in made, name
    assert (tmp_path / "html" / "search" / "search_index.json").is_file()


@pytest.mark.parametrize("link", ["docs/nowhere.md", "docs/install.md#nowhere"])
def test_link_that_leads_nowhere_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"# Start\n\n[there]({link})\n")
    (tmp_path / "docs" / "install.md").write_text("# Install\n")
    head = site.CONFIG.read_text().partition("nav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{head}nav: [README.md, docs/install.md]\n")
    monkeypatch.setattr(site, "TOP", tmp_path)
    monkeypatch.setattr(site, "CONFIG", tmp_path / "mkdocs.yml")
    monkeypatch.setattr(site, "pages", lambda: [tmp_path / "README.md", tmp_path / "docs" / "install.md"])
    assert site.build(tmp_path / "site") == 1
