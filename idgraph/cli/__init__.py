"""The command line: ``idgraph demo | check | show | index | cycles | explain | emit``."""

from idgraph.cli.commands import main

__all__ = ["main"]
