"""An example of coatcheck in a Django project: documents to Markdown over HTTP."""
