"""Writing on connections that belong to the caller, in the caller's own transaction."""
