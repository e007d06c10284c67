"""MariaDB of the tests' own."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from servers.clients import Client, MysqlClient
from servers.errors import NoServer, ServerFailed
from servers.search import find_program
from servers.server import Recipe
from servers.supervised import environment

USER = "coatcheck"
PASSWORD = "umbrella"
"""Differs from all other parts of the URL, so that a test can tell it from them."""
UNFLUSHED = ("--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--sync-frm=0")
"""A commit is handed to the system, which outlives a killed server; nothing waits for the disk, nor do new tables."""


class Mariadb(Recipe):
    """A MariaDB server, with one user who may do everything."""

    kind = "mariadb"
    stop_signal = signal.SIGTERM

    def __init__(self, *, durable: bool) -> None:
        """Find the programs; `durable` makes a commit wait for the disk."""
        self._flush = ["--innodb-flush-log-at-trx-commit=1"] if durable else [*UNFLUSHED]
        program = find_program("mariadbd", "mysqld", says="MariaDB")
        installer = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
        if program is None or installer is None:
            raise NoServer("no MariaDB: set COATCHECK_TEST_MARIADB_URL or install MariaDB's server")
        self._program, self._installer = program, Path(installer)
        self._user = ["--user=root"] if os.geteuid() == 0 else []

    def prepare(self, folder: Path) -> None:
        """Make the system's tables, and say who may come in."""
        done = subprocess.run(
            [
                *(str(self._installer), "--no-defaults", f"--datadir={folder / 'data'}", *self._user),
                *("--auth-root-authentication-method=normal", "--skip-test-db"),
                *("--innodb-flush-method=nosync", "--innodb-log-file-size=16M"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=folder,
            env=environment(folder),
        )
        if done.returncode:
            raise ServerFailed(f"{self._installer.name} failed:\n{done.stdout}")
        (folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
        )

    def command(self, folder: Path, port: int) -> list[str]:
        """Run it with small buffers, and nothing outside its folder."""
        return [
            *(str(self._program), "--no-defaults", *self._user, f"--datadir={folder / 'data'}"),
            *(f"--tmpdir={folder}", f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"),
            *("--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve", "--skip-ssl"),
            *(f"--init-file={folder / 'init.sql'}", "--character-set-server=utf8mb4"),
            *("--max-connections=300", "--performance-schema=off", "--skip-log-bin"),
            *("--innodb-buffer-pool-size=128M", "--innodb-log-file-size=16M", *self._flush),
        ]

    def client(self, port: int) -> Client:
        """Talk to it as the one user."""
        return MysqlClient(f"mysql://{USER}:{PASSWORD}@127.0.0.1:{port}/mysql")
