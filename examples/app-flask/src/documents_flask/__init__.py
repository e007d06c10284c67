"""An example of coatcheck in a Flask application: documents to Markdown over HTTP."""
