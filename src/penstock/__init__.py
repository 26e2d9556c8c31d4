"""Durable tasks and workflows on the database that you already have."""

__version__ = "0.1.0"
