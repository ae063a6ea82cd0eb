"""What tests/vm/check_reboot.py reads from the console of a machine that has gone down."""

import pytest

from tests.vm.check_reboot import DOWN_SECONDS, seconds_down

# As it was written by a machine.
CONSOLE = """\x1b[?7h
exitd-vm login: [   24.207178] check: reboot
[   38.750775] systemd-shutdown[1]: Sending SIGTERM to remaining processes...
[   38.798670] systemd-shutdown[1]: Sending SIGKILL to remaining processes...
[   38.844453] systemd-shutdown[1]: Rebooting.
"""


def test_a_reboot_takes_from_the_request_to_the_last_word() -> None:
    assert seconds_down(CONSOLE) == pytest.approx(14.637275)
    assert seconds_down(f"{CONSOLE}[  130.000000] reboot: Restarting system\n") > DOWN_SECONDS


def test_a_reboot_that_was_not_asked_for_is_no_reboot() -> None:
    with pytest.raises(ValueError, match="unpack"):
        seconds_down(CONSOLE.replace("check: reboot", ""))
