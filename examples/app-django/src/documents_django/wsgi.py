"""For servers: `gunicorn documents_django.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "documents_django.settings")
application = get_wsgi_application()
