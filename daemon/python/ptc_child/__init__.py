"""The runtime that runs one program inside one confined worker."""
