"""URLs of servers and of the databases in them."""

from urllib.parse import SplitResult, unquote, urlsplit

from attrs import frozen


@frozen(kw_only=True)
class Address:
    """What a URL says to a driver."""

    host: str
    port: int
    user: str
    """Empty if the URL names none."""
    password: str
    database: str


def address_of(url: str, *, port: int) -> Address:
    """Return what a URL says; `port` is what it means if it says none."""
    parts = urlsplit(url)
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path.removeprefix("/")),
    )


def database_at(url: str, database: str) -> str:
    """Return the URL of another database in the same server."""
    return urlsplit(url)._replace(path=f"/{database}").geturl()


def through(url: str, host: str, port: int) -> str:
    """Return the URL of the same database by another way, such as a proxy."""
    parts: SplitResult = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login}{at}{host}:{port}").geturl()
