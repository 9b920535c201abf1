# SPDX-License-Identifier: Apache-2.0
"""`python -m specnav.cli`: the `specnav` command without its script."""

from specnav.cli.app import main

if __name__ == "__main__":
    main()
