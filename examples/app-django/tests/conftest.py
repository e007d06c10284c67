"""Django is set up before anything of the project is imported."""

import os

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "documents_django.settings"
django.setup()
