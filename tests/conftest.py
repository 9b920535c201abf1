"""What every test needs whatever started it."""

import signal

# A job in the background of a shell ignores SIGINT and hands that down: tests send it to the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
