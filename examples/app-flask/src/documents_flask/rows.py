"""The application's own table."""

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

MAX_TITLE_CHARACTERS = 200


class Base(DeclarativeBase):
    """What all tables share."""


class Document(Base):
    """A document of somebody's, and the task that reads it."""

    __tablename__ = "document"

    task_id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(index=True)
    title: Mapped[str] = mapped_column(String(MAX_TITLE_CHARACTERS))
