"""The application's own table."""

from __future__ import annotations  # Django's fields are generic in stubs only

from django.db import models

MAX_TITLE_CHARACTERS = 200


class Document(models.Model):
    """A document of somebody's, and the task that reads it."""

    task_id: models.CharField[str, str] = models.CharField(primary_key=True, max_length=36)
    tenant_id: models.CharField[str, str] = models.CharField(max_length=255, db_index=True)
    title: models.CharField[str, str] = models.CharField(max_length=MAX_TITLE_CHARACTERS)

    def __str__(self) -> str:
        """Return the title."""
        return self.title
