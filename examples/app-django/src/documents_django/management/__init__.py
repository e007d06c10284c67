"""What the application adds to Django's command line."""
