"""PostgreSQL of the tests' own, and PgBouncer in front of one."""

import pwd
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from servers.clients import Client, PostgresqlClient, numbers_of
from servers.errors import NoServer, ServerFailed
from servers.search import find_program, unprivileged_user, version_of
from servers.server import Recipe, Server
from servers.supervised import environment
from servers.supervisor import remove_shared_memory
from servers.urls import address_of, through


class Postgresql(Recipe):
    """A PostgreSQL server, who trusts everybody."""

    kind = "postgresql"
    stop_signal = signal.SIGINT

    def __init__(self, *, durable: bool) -> None:
        """Find the programs; `durable` makes a commit wait for the disk."""
        self.user = unprivileged_user()
        self._durable = "on" if durable else "off"
        program = find_program("postgres", user=self.user)
        if program is None:
            raise NoServer("no PostgreSQL: set COATCHECK_TEST_POSTGRESQL_URL or install PostgreSQL")
        self._program = program.resolve()

    def prepare(self, folder: Path) -> None:
        """Make an empty cluster."""
        done = subprocess.run(
            [
                *(self._program.with_name("initdb"), "-D", folder / "data", "-U", "coatcheck"),
                *("--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=folder,
            env=environment(folder),
            user=self.user or None,
            group=pwd.getpwnam(self.user).pw_gid if self.user else None,
        )
        if done.returncode:
            raise ServerFailed(f"initdb failed:\n{done.stdout}")

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it with small buffers, and nothing outside its folder."""
        settings = {
            "dynamic_shared_memory_type": "mmap",
            "fsync": self._durable,
            "full_page_writes": self._durable,
            "listen_addresses": "127.0.0.1",
            "max_connections": "200",
            "max_wal_senders": "0",
            "port": str(port),
            "shared_buffers": "64MB",
            "synchronous_commit": self._durable,
            "unix_socket_directories": "",
            "wal_level": "minimal",
        }
        options = [option for setting in settings.items() for option in ("-c", "=".join(setting))]
        return [str(self._program), "-D", str(folder / "data"), *options]

    def client(self, port: int) -> Client:
        """Talk to it as its superuser."""
        return PostgresqlClient(f"postgresql://coatcheck@127.0.0.1:{port}/postgres")

    def clean(self, folder: Path) -> None:
        """Remove the mark that its folder is in use."""
        remove_shared_memory(folder)


class PooledClient(PostgresqlClient):
    """Talks to PostgreSQL through PgBouncer, whose databases are those of the server behind it."""

    def __init__(self, url: str, behind: Server, version: str) -> None:
        super().__init__(url)
        self._behind = behind
        self._version = version

    def version(self) -> tuple[int, ...]:
        """Return that of PgBouncer, if it answers."""
        super().version()
        return numbers_of(self._version)

    def create(self) -> str:
        """Create one behind it."""
        here = address_of(self.url, port=0)
        return through(self._behind.new_database(), here.host, here.port)

    def drop(self, url: str) -> None:
        """Drop one behind it, where a database is known by its URL there."""
        there = address_of(self._behind.url, port=5432)
        self._behind.drop_database(through(url, there.host, there.port))


class Pgbouncer(Recipe):
    """PgBouncer in front of a PostgreSQL server: each transaction of a client may get another connection."""

    kind = "pgbouncer"
    stop_signal = signal.SIGTERM

    def __init__(self, behind: Server) -> None:
        """Find the program; the server `behind` it may be shared."""
        self.user = unprivileged_user()
        self._behind = behind
        program = find_program("pgbouncer", user=self.user)
        if program is None:
            raise NoServer("no PgBouncer: install PgBouncer")
        self._program = program

    def prepare(self, folder: Path) -> None:
        """Need nothing."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Write its configuration, and run it."""
        to = address_of(self._behind.url, port=5432)
        password = f" password='{to.password}'" if to.password else ""
        file = folder / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n* = host={to.host} port={to.port} user={to.user}{password}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = 20\n"
            "server_login_retry = 0.1\n"
        )
        return [str(self._program), str(file)]

    def client(self, port: int) -> Client:
        """Talk to it as the user of the server behind it."""
        url = through(self._behind.url, "127.0.0.1", port)
        if not urlsplit(url).path.strip("/"):
            url += "/postgres"
        return PooledClient(url, self._behind, version_of(self._program, self.user))
