"""How fast the engine is on this machine: full history, default durability."""
