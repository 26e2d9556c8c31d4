"""Executions in PostgreSQL."""
