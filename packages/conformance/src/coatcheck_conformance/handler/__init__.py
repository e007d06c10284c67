"""The suite of handlers: what a handler may do on the wire, and what its answers may mean."""
