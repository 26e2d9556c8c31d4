"""What turns functions into tasks, and tasks into executions."""
