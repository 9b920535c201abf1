"""Programs that treat a running verifier, console or API badly for minutes: `python -m tests.stress.NAME --help`."""
