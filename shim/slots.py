"""The numbers of the descriptors that exitd-shim finds when it begins, read from core/core.h."""

from shim import native

STATUS_FD = native.number("STATUS_FD")  # the first of all
OUT_FD = native.number("OUT_FD")
ERR_FD = native.number("ERR_FD")
OUT_WRITE_FD = native.number("OUT_WRITE_FD")
ERR_WRITE_FD = native.number("ERR_WRITE_FD")
JOIN_FD = native.number("JOIN_FD")  # the first of plan.JOIN_MAX namespaces
IN_FD = native.number("IN_FD")
IN_WRITE_FD = native.number("IN_WRITE_FD")
STAGE_READ_FD = native.number("STAGE_READ_FD")
STAGE_WRITE_FD = native.number("STAGE_WRITE_FD")
SLOTS_END = native.number("SLOTS_END")  # behind the last of all

KEPT_OUTPUT = (OUT_FD, ERR_FD, STAGE_READ_FD, STAGE_WRITE_FD)  # what the keeper keeps copies of, and exitd too
OUTPUT = (OUT_FD, ERR_FD, OUT_WRITE_FD, ERR_WRITE_FD)
INPUT = (IN_FD, IN_WRITE_FD)
OWN_OUTPUT = (JOIN_FD, JOIN_FD + 1)  # isulad-shim's stdout and stderr: its containers join no namespaces
