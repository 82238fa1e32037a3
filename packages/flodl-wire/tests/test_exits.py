"""The exit codes, which scripts and systemd units rely on."""

from flodl_wire import exits


def test_exit_codes_are_the_promised_numbers() -> None:
    assert (exits.DONE, exits.NOT_DONE, exits.USAGE, exits.NO_COMMAND, exits.INTERRUPTED) == (0, 1, 2, 127, 130)
