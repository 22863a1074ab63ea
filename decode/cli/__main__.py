"""`python -m rescore.decode.cli`: the same as `rescore`."""

import sys

from rescore.decode.cli import main

if __name__ == "__main__":
    sys.exit(main())
