"""Every metric there is: those of a single server, and those of a node of a cluster."""

from pathlib import Path

import httpx
from tests.cluster.three_nodes import cluster_of
from tests.conftest import StartServer
from tests.http.wire import TEXT, make, post
from tests.scrape import Scrape, scrape


def export_everything(start_server: StartServer, folder: Path) -> Scrape:
    """The metrics of a server that has done a little of everything, and those that only a cluster has."""
    with httpx.Client(base_url=start_server().url, timeout=60) as api:
        make(api, "/v1/stream/exported", TEXT)
        post(api, "/v1/stream/exported", b"x", TEXT)
        single = scrape(api)
    with cluster_of(1, folder) as (node,), httpx.Client(base_url=node.url, timeout=60) as api:
        return scrape(api).with_families_of(single)
