"""``python -m headwater``: the command line, where no ``headwater`` is on the path."""

from headwater.cli.main import main

if __name__ == "__main__":
    main()
