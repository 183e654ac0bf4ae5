"""What the engine tests take away after themselves."""

from mgpu_cli import kernel
from tests.support import host


def test_folder_mounted_on_itself_goes_with_the_home(private_host: None) -> None:
    """As dockerd and podman leave their data when they are killed."""
    with host.home("own") as home:
        data = home / "data"
        data.mkdir()
        for _ in range(2):
            kernel.mount(str(data), data, flags=kernel.MS_BIND)
        assert host.mounts_below(home) == [data, data]
    assert not home.exists()


def test_unmount_leaves_a_plain_path(private_host: None) -> None:
    with host.home("own") as home:
        (home / "link").symlink_to(home)
        for path in (home, home / "link", home / "none"):
            kernel.unmount(path)
        assert (home / "link").is_symlink()
