"""The command line: ``idgraph demo | check | show | index | cycles | explain | emit | report | sweep``."""

from idgraph.cli.commands import main

__all__ = ["main"]
