"""What systemd says of the host as a whole."""

import shutil
import subprocess

ANSWER_SECONDS = 10.0
STOPPING = "stopping"  # systemctl(1), is-system-running: shutdown.target is active, or its job is queued


def system_state() -> str:
    """Return systemd's word for the state of the host; empty if it gives none. Blocks for at most ANSWER_SECONDS."""
    program = shutil.which("systemctl")
    if program is None:
        return ""
    try:
        command = [program, "is-system-running"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
