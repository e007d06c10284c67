"""The settings of the project; keys are not among them, they are read where they are used."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "nothing here signs or encrypts anything")
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1").split(",")
INSTALLED_APPS = ["documents_django"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"]
ROOT_URLCONF = "documents_django.urls"
APPEND_SLASH = False
USE_TZ = True
TIME_ZONE = "UTC"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE_FILE", "documents.db"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # one that has read can write
    }
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"coatcheck": {"class": "logging.StreamHandler"}},
    "loggers": {"coatcheck": {"handlers": ["coatcheck"], "level": "INFO"}},
}

DATA_UPLOAD_MAX_MEMORY_SIZE = 1 << 20
"""Anybody can post to the callback address, so what is read before it is checked is bounded."""

DATALAB_URL = os.environ.get("DATALAB_URL")
"""A gateway or the sandbox; None is the provider itself."""
PUBLIC_URL = os.environ.get("PUBLIC_URL")
"""Where the provider reaches this application; None asks for no callbacks."""
