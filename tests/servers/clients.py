"""The little that tests ask of any server, their own or one that was given: its version, and databases."""

import importlib
import os
import re
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar

from servers.errors import NoServer, ServerFailed
from servers.urls import address_of, database_at

CONNECT_SECONDS = 10


def _driver(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise NoServer(f"no {name} to talk to the server: pip install '{package}'") from missing


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version in any text: ``(10, 11, 4)`` of ``5.5.5-10.11.4-MariaDB``."""
    found = re.search(r"\d+(\.\d+)*", version.removeprefix("5.5.5-"))
    if found is None:
        raise ServerFailed(f"there is no version in {version!r}")
    return tuple(map(int, found.group().split(".")))


class Client(ABC):
    """Talks to the server at a URL, with a connection for each call."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError, ServerFailed)
    """What the calls raise when the server doesn't answer, or answers with an error."""

    def __init__(self, url: str) -> None:
        """Take the URL of any database in the server, as a user who may create others."""
        self.url = url

    @abstractmethod
    def version(self) -> tuple[int, ...]:
        """Return the numbers of the server's version."""

    @abstractmethod
    def create(self) -> str:
        """Create an empty database and return its URL."""

    @abstractmethod
    def drop(self, url: str) -> None:
        """Drop what `create` has made, though others may be connected to it."""

    @staticmethod
    def _new_name() -> str:
        return f"coatcheck_{os.getpid()}_{secrets.token_hex(4)}"


class PostgresqlClient(Client):
    """Through psycopg."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._psycopg = _driver("psycopg", "psycopg[binary]")
        self.errors = (*Client.errors, self._psycopg.Error)  # type: ignore[misc]  # known since the import

    def version(self) -> tuple[int, ...]:
        """Ask for it."""
        return numbers_of(self._ask("SHOW server_version"))

    def create(self) -> str:
        """Copy the empty template, to which nobody is connected."""
        name = self._new_name()
        self._ask(f"CREATE DATABASE {name} TEMPLATE template0")
        return database_at(self.url, name)

    def drop(self, url: str) -> None:
        """Drop it, and end the sessions in it."""
        self._ask(f"DROP DATABASE IF EXISTS {address_of(url, port=0).database} WITH (FORCE)")

    def connect(self) -> Any:
        """Return a connection of psycopg, in autocommit mode."""
        to = address_of(self.url, port=5432)
        return self._psycopg.connect(
            host=to.host,
            port=to.port,
            user=to.user,
            password=to.password or None,
            dbname=to.database or "postgres",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
        )

    def _ask(self, statement: str) -> str:
        with closing(self.connect()) as connection:
            answer = connection.execute(statement)
            return str(answer.fetchone()[0]) if answer.description else ""


class MysqlClient(Client):
    """Through PyMySQL; for MySQL and MariaDB."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._pymysql = _driver("pymysql", "pymysql")
        self.errors = (*Client.errors, self._pymysql.Error)  # type: ignore[misc]  # known since the import

    def version(self) -> tuple[int, ...]:
        """Ask for it."""
        return numbers_of(self._ask("SELECT VERSION()")[0][0])

    def create(self) -> str:
        """Create one for all of Unicode."""
        name = self._new_name()
        self._ask(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return database_at(self.url, name)

    def drop(self, url: str) -> None:
        """Drop it, after ending the sessions in it."""
        name = address_of(url, port=0).database
        # an open transaction would hold up the drop for ever
        for (connection,) in self._ask("SELECT id FROM information_schema.processlist WHERE db = %s", name):
            try:
                self._ask(f"KILL {connection}")
            except self._pymysql.Error:
                continue  # it has ended meanwhile
        self._ask(f"DROP DATABASE IF EXISTS {name}")

    def connect(self) -> Any:
        """Return a connection of PyMySQL, in autocommit mode."""
        to = address_of(self.url, port=3306)
        return self._pymysql.connect(
            host=to.host,
            port=to.port,
            user=to.user,
            password=to.password,
            database=to.database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
        )

    def _ask(self, statement: str, *values: str) -> Sequence[Any]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            rows: Sequence[Any] = cursor.fetchall()
            return rows


class RedisClient(Client):
    """Through a socket; its databases have numbers, and there are only as many as the server is set to have."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._taken: set[int] = set()

    def version(self) -> tuple[int, ...]:
        """Ask for it, once the data is loaded; Valkey says that of the Redis that it equals."""
        self.ask(0, "DBSIZE")
        info = self.ask(0, "INFO", "server")
        return numbers_of(info.partition("redis_version:")[2])

    def create(self) -> str:
        """Take one that is empty, but never the first, which others use by default."""
        count = int(self.ask(0, "CONFIG", "GET", "databases")[1])
        # another process may look for one too: everybody begins somewhere else
        first = secrets.randbelow(count)
        for number in (n % count for n in range(first, first + count) if n % count):
            if number not in self._taken and not self.ask(number, "DBSIZE"):
                self._taken.add(number)
                return database_at(self.url, str(number))
        raise ServerFailed(f"none of the {count} databases of {self.url} is empty")

    def drop(self, url: str) -> None:
        """Empty it."""
        number = int(address_of(url, port=0).database)
        self.ask(number, "FLUSHDB")
        self._taken.discard(number)

    def ask(self, database: int | None, *command: str) -> Any:
        """Send a command and return the answer; an error raises `ServerFailed`. A Sentinel has no databases."""
        to = address_of(self.url, port=6379)
        login = [["AUTH", *filter(None, [to.user]), to.password]] if to.password else []
        select = [["SELECT", str(database)]] if database is not None else []
        commands = [*login, *select, [*command]]
        with (
            closing(socket.create_connection((to.host, to.port), CONNECT_SECONDS)) as connection,
            connection.makefile("rb") as stream,
        ):
            for words in commands:
                text = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
                connection.sendall(f"*{len(words)}\r\n{text}".encode())
            return [self._reply(stream) for _ in commands][-1]

    def _reply(self, stream: Any) -> Any:
        line = stream.readline().decode().rstrip("\r\n")
        kind, rest = line[:1], line[1:]
        if kind == "$":
            return stream.read(int(rest) + 2)[:-2].decode()
        if kind == "*":
            return [self._reply(stream) for _ in range(int(rest))]
        if kind not in "+:" or not kind:
            raise ServerFailed(f"{self.url} answers {line!r}")
        return int(rest) if kind == ":" else rest
