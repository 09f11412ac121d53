"""What this does."""
from __future__ import annotations

def f(x: NotDefinedAnywhere) -> None: ...

print(__doc__, f.__annotations__)
