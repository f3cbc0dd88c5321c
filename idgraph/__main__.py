"""``python -m idgraph``: the command line."""

from idgraph.cli import main

if __name__ == "__main__":
    main()
