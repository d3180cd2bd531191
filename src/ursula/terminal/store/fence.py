"""Ending the log of a cluster, for a restore of its store."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ursula.cold.objects.store import Store
    from ursula.config import Settings
    from ursula.engine.offline.restore import Fence


def fence_of(settings: "Settings", store: "Store") -> "Fence | None":
    """What ends the log of the cluster that the settings name; None if they name none."""
    from ursula.engine.offline.restore import RestoreRefused
    from ursula.engine.start.heartbeat import place_of
    from ursula.extras import how_to_install

    if not settings.cluster.name:
        return None

    async def fence(generation: int, groups: int) -> None:
        try:
            from ursula.cluster.failures import ClusterRefused
            from ursula.cluster.fence import fence_log
        except ModuleNotFoundError as error:
            raise RestoreRefused(
                f"to reach etcd, {error.name} must be installed: {how_to_install('cluster')}"
            ) from None
        try:
            await fence_log(settings.server, settings.cluster, await place_of(store), generation, groups)
        except ClusterRefused as error:
            raise RestoreRefused(str(error)) from None

    return fence
