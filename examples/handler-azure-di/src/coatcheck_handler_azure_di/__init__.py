"""A coatcheck handler for Azure AI Document Intelligence: documents to markdown.

All that there is to use is in `coatcheck_handler_azure_di.handler`. Nothing is imported here, since coatcheck
imports this package whenever it lists what is installed.
"""
