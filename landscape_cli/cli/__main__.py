"""``python -m landscape_cli.cli``: the program, where its command is not on the path."""

from landscape_cli.cli.app import main

if __name__ == "__main__":
    main()
