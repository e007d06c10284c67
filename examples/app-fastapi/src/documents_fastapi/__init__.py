"""An example of coatcheck in a FastAPI application: documents to Markdown over HTTP."""
