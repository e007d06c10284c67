"""The suite of plugin distributions; what it looks at happens in processes of its own."""
