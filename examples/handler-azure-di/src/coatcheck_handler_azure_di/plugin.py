"""What coatcheck finds of this distribution; light, it imports nothing else of it."""

from coatcheck.hooks import HandlerDescriptor, hookimpl


@hookimpl
def coatcheck_handlers() -> list[HandlerDescriptor]:
    """Offer the one handler that there is."""
    return [
        HandlerDescriptor(
            key="ocr:azure-di",
            factory="coatcheck_handler_azure_di.handler:AzureDiHandler",
            settings="coatcheck_http.settings:HttpSettings",
            account="coatcheck_http.accounts:ApiKey",
            params="coatcheck_handler_azure_di.handler:AnalyzeRequest",
            summary="documents to markdown, by Azure AI Document Intelligence",
        )
    ]
