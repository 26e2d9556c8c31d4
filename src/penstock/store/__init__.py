"""Where executions are kept: one contract, one implementation per database."""
