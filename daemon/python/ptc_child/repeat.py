"""Makes what a run may draw by lot the same when it is repeated from its record."""

from random import seed as _seed


def settle(run):
    """Seeds `random` with the number the daemon chose; programs that want real entropy ask the system."""
    number = run.get("seed")
    if number is not None:
        _seed(number)
