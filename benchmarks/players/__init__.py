"""One program per system: it enqueues and works as that system's own documentation says."""
