"""The table of documents."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates it."""

    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Document",
            fields=[
                ("task_id", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("tenant_id", models.CharField(db_index=True, max_length=255)),
                ("title", models.CharField(max_length=200)),
            ],
        ),
    ]
