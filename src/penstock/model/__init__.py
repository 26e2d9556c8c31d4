"""Pure rules and values: no clock, no database, no thread."""
