"""Whether the Hugging Face hub can be reached, asked once and quickly."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies


@cache
def hub_is_named() -> bool:
    """Whether the hub's name can be looked up; behind a proxy it is the proxy's to say."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(endpoint).hostname, 443)
    except OSError:
        return False
    return True


def no_retries_without_a_network() -> None:
    """Switch the hub's clients to what is cached where there is no network to wait for.

    They would try five times, for half a minute, and print as much.
    """
    if hub_is_named():
        return
    import datasets
    import huggingface_hub

    datasets.config.HF_HUB_OFFLINE = True
    huggingface_hub.constants.HF_HUB_OFFLINE = True
