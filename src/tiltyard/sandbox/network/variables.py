"""How programs inside learn of the proxy."""

from collections.abc import Mapping

PORT = 61_080
"""Where the proxy listens inside. Above the ports that connections are given, so that no program's
own connection can have it; the sandbox's loopback is its own, so all use the same."""


def proxy_variables(port: int = PORT) -> Mapping[str, str]:
    """The variables that curl, git, pip, urllib, requests, Node and Go read, each in its case.

    `all_proxy` names HTTP too: with `socks5h` there, Python programs that use httpx do not even
    start unless an extra is installed. SOCKS5 is served on the same port for those who ask for it.
    """
    url = f"http://127.0.0.1:{port}"
    values = {
        "http_proxy": url,
        "https_proxy": url,
        "all_proxy": url,
        "no_proxy": "localhost,127.0.0.1,::1",
    }
    return values | {name.upper(): value for name, value in values.items()}
