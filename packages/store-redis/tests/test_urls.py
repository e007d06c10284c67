"""What URLs say."""

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck_store_redis.plugin import coatcheck_stores
from coatcheck_store_redis.urls import SCHEMES, Place, Tls, Topology

SECRET = "p@ss:w/rd?#%&= é"
WRITTEN = "p%40ss%3Aw%2Frd%3F%23%25%26%3D%20%C3%A9"


@pytest.mark.parametrize(
    ("url", "addresses", "database"),
    [
        ("redis://host", (("host", 6379),), 0),
        ("redis://host/", (("host", 6379),), 0),
        ("redis://host:7000/3", (("host", 7000),), 3),
        ("redis://[::1]", (("::1", 6379),), 0),
        ("redis://[fe80::1]:7000/1", (("fe80::1", 7000),), 1),
        ("REDIS://127.0.0.1:1/0", (("127.0.0.1", 1),), 0),
    ],
)
def test_a_server_has_a_port_and_a_database(
    url: str, addresses: tuple[tuple[str, int], ...], database: int
) -> None:
    """What a URL does not say is port 6379 and database 0."""
    place = Place.parse(url)
    assert (place.topology, place.addresses, place.database) == (Topology.SINGLE, addresses, database)
    assert place.tls is None


@pytest.mark.parametrize(
    "start",
    ["redis://{}host/0", "redis+sentinel://{}host/name/0", "redis+cluster://{}host", "unix://{}/a.sock"],
)
def test_a_password_may_hold_anything(start: str) -> None:
    """It is written in percent-encoding, with a user or without, and is not shown."""
    alone = Place.parse(start.format(f":{WRITTEN}@"))
    assert (alone.username, alone.password) == (None, SECRET)
    both = Place.parse(start.format(f"us%40er:{WRITTEN}@"))
    assert (both.username, both.password) == ("us@er", SECRET)
    for place in (alone, both):
        assert "ss:w" not in place.shown + repr(place)
        assert WRITTEN not in place.shown
        assert ":***@" in place.shown


def test_sentinels_are_listed_and_know_a_name() -> None:
    """Their port is 26379 unless it is said; the database follows the name."""
    place = Place.parse("redis+sentinel://a,b:7000,[::1]/orders/2?sentinel_password=guards&namespace=x")
    assert place.addresses == (("a", 26379), ("b", 7000), ("::1", 26379))
    assert (place.topology, place.service, place.database) == (Topology.SENTINEL, "orders", 2)
    assert (place.password, place.sentinel_password) == (None, "guards")
    assert place.shown == "redis+sentinel://a:26379,b:7000,[::1]:26379/orders/2"
    assert place.settings == {"namespace": "x"}


def test_some_nodes_of_a_cluster_are_listed() -> None:
    """They tell of the others."""
    place = Place.parse("rediss+cluster://:secret@a,b:7000?ssl_check_hostname=no")
    assert (place.topology, place.addresses) == (Topology.CLUSTER, (("a", 6379), ("b", 7000)))
    assert place.tls == Tls(ssl_check_hostname=False)
    assert place.shown == "rediss+cluster://:***@a:6379,b:7000"


def test_a_socket_has_a_path() -> None:
    """The database of a socket is in the query string."""
    place = Place.parse("unix:///run/my%20redis.sock?db=4&timeout=5s")
    assert (place.path, place.database, place.addresses) == ("/run/my redis.sock", 4, ())
    assert place.settings == {"timeout": "5s"}
    assert place.shown == "unix:///run/my redis.sock?db=4"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://", "names no host"),
        ("redis://:6379", "names no host"),
        ("redis://host:abc", "has the port 'abc'"),
        ("redis://host:70000", "has the port '70000', which is no number from 1 to 65535"),
        ("redis://::1:6379", "stands in brackets"),
        ("redis://host/zero", "names the database 'zero'; databases of Redis have numbers"),
        ("redis://host/0/1", "goes on after the number of the database: '0/1'"),
        ("redis://a,b", r"names 2 servers; redis\+sentinel:// is for Sentinels, redis\+cluster:// for"),
        ("redis://host?ssl_certfile=x", "has ssl_certfile, which only counts in rediss://"),
        ("rediss://host?ssl_ca_certs=/no/such.pem", "ssl_ca_certs='/no/such.pem', and there is no such file"),
        ("rediss://host?ssl_check_hostname=maybe", "'maybe', which is neither true nor false"),
        ("redis://user:@host", "names the user 'user', but no password"),
        ("unix://redis.sock", "names no socket"),
        ("unix://", "names no socket"),
        ("redis+sentinel://a,b", "does not say under which name the Sentinels know the master"),
        ("redis+sentinel://a/0", "does not say under which name"),
        ("redis+cluster://a/1", "names database 1, but a Cluster has only database 0"),
    ],
)
def test_a_wrong_url_is_told_how_to_be_written(url: str, why: str) -> None:
    """The message has the value, and an example of the same kind."""
    with pytest.raises(
        ConfigurationError, match=f"{why}.*; write {url.partition(':')[0].replace('+', '.')}://"
    ):
        Place.parse(url)


def test_what_may_be_a_password_is_not_shown() -> None:
    """A password alone, without its colon, looks like a user: it is refused, and hidden."""
    with pytest.raises(ConfigurationError, match="a password alone has a colon before it") as refusal:
        Place.parse("redis://hunter2@host:6379/0")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("url", ["redis://:hunter2@host:port/0", "redis+sentinel://:hunter2@a,b/0"])
def test_a_wrong_url_shows_no_password(url: str) -> None:
    """Whatever is wrong with it."""
    with pytest.raises(ConfigurationError) as refusal:
        Place.parse(url)
    assert "hunter2" not in str(refusal.value)


def test_other_schemes_are_told_what_is_served() -> None:
    """The message lists all."""
    with pytest.raises(ConfigurationError, match="valkey:// is not served") as refusal:
        Place.parse("valkey://host")
    assert all(f"{scheme}://" in str(refusal.value) for scheme in SCHEMES)


def test_the_plugin_names_all_schemes() -> None:
    """It lists them itself, since it must not import what reads URLs."""
    (store,) = coatcheck_stores()
    assert store.schemes == SCHEMES
