"""What migrations make tables with. Frozen, as they are: what is to be made otherwise is made by another class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

__all__ = ["Tables"]

_LONG = sa.Text().with_variant(mysql.LONGTEXT, "mysql", "mariadb")


class Tables:
    """Makes tables and columns as each kind of database needs them: text is compared by exact bytes."""

    def __init__(self) -> None:
        options = op.get_context().opts
        self.prefix, self.schema = options["table_prefix"], options["table_schema"]
        dialect = op.get_context().dialect
        collation = "utf8mb4_nopad_bin" if getattr(dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
        self._options: dict[str, Any] = {
            "mysql_engine": "InnoDB",
            "mysql_charset": "utf8mb4",
            "mysql_collate": collation,
        }
        self._options |= {name.replace("mysql", "mariadb"): value for name, value in self._options.items()}

    def create(self, name: str, *columns: sa.Column[Any]) -> sa.Table:
        """Create a table."""
        return op.create_table(f"{self.prefix}{name}", *columns, schema=self.schema, **self._options)

    def index(
        self,
        name: str,
        table: str,
        columns: Sequence[str],
        *,
        unique: bool = False,
        where: sa.ColumnElement[bool] | None = None,
    ) -> None:
        """Create an index, of the rows that satisfy `where` if the database can do that."""
        op.create_index(
            f"{self.prefix}{name}",
            f"{self.prefix}{table}",
            list(columns),
            unique=unique,
            schema=self.schema,
            sqlite_where=where,
            postgresql_where=where,
        )

    @staticmethod
    def word(name: str, length: int, *, required: bool = False, key: bool = False) -> sa.Column[str]:
        """Return a column for a short text."""
        collated = sa.String(length, collation="C")
        kind = sa.String(length).with_variant(collated, "postgresql")
        return sa.Column(name, kind, nullable=not (required or key), primary_key=key)

    def key(self, name: str, length: int) -> sa.Column[str]:
        """Return a column of a primary key."""
        return self.word(name, length, key=True)

    @staticmethod
    def number(name: str, *, required: bool = False) -> sa.Column[int]:
        """Return a column for an integer."""
        return sa.Column(name, sa.BigInteger, nullable=not required)

    @staticmethod
    def flag(name: str) -> sa.Column[int]:
        """Return a column for 0 or 1."""
        return sa.Column(name, sa.SmallInteger, nullable=False)

    @staticmethod
    def text(name: str) -> sa.Column[str]:
        """Return a column for a text of any length up to some ten thousand characters."""
        return sa.Column(name, sa.Text)

    @staticmethod
    def long(name: str, *, required: bool = False) -> sa.Column[str]:
        """Return a column for a text of any length."""
        return sa.Column(name, _LONG, nullable=not required)
