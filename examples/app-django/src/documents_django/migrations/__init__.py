"""The changes of the application's own table."""
