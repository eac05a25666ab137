"""Model and data adapters: their contract, registry and built-ins."""
