"""What one containerd says of itself, for the checks."""

from dataclasses import dataclass, field

TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Facts:
    """error: why there are none, or empty; broken: plugins that do not work, with containerd's reason."""

    version: str = ""
    plugins: frozenset[str] = frozenset()
    broken: dict[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def serves_kubernetes(self) -> bool:
        """Whether it answers a kubelet. From 2.0 on the CRI's parts may be loaded without that."""
        return "io.containerd.grpc.v1.cri" in self.plugins


def ask(address: str) -> Facts:
    """By gRPC, within a bounded time; never raises."""
    import asyncio

    from containerd_api.client import Containerd, ContainerdError

    async def facts() -> Facts:
        async with Containerd(address, timeout_s=TIMEOUT_S) as containerd:
            version = await containerd.version()
            plugins = await containerd.plugins()
        broken = {f"{each.type}.{each.id}": each.error for each in plugins if each.error}
        names = frozenset(f"{each.type}.{each.id}" for each in plugins)
        return Facts(version, names - broken.keys(), broken)

    try:
        return asyncio.run(facts())
    except ContainerdError as error:
        return Facts(error=str(error))
