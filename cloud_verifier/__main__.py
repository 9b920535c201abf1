# SPDX-License-Identifier: Apache-2.0
"""`python -m cloud_verifier --bind tcp://127.0.0.1:5555 --model PATH`: serve until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.downloads import shipped
from specdec.errors import SpecdecError
from specdec.settings import add_arguments


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line, without the usage text of thirty lines."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The command line: all settings of ServerConfig."""
    parser = _Parser(prog="cloud_verifier", description="Serve verdicts of a target model.")
    add_arguments(parser, ServerConfig)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    try:
        for name in vars(given).keys() & {"model", "draft_model", "exits"}:
            setattr(given, name, shipped(getattr(given, name)))
        config = ServerConfig(**vars(given))
    except (VerifierError, SpecdecError) as error:
        parser.error(str(error))
    try:
        from cloud_verifier.serving import serve

        return serve(config)
    except (VerifierError, SpecdecError) as error:
        print(f"cloud_verifier: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
