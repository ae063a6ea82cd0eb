"""The two designs side by side, measured on this machine: who takes part, what is measured, what is written of it."""
