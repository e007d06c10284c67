"""What coatcheck finds by the entry point; light, so that a listing of plugins imports no HTTP client."""

from coatcheck.hooks import HandlerDescriptor, hookimpl

__all__ = ["coatcheck_handlers"]


@hookimpl
def coatcheck_handlers() -> list[HandlerDescriptor]:
    """Return the handlers of this distribution."""
    return []
