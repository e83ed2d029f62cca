"""python -m airsplit: the command line, as torchrun starts it."""

import sys

from airsplit.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
