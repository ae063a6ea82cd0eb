"""The compiled extension. What its library has and of which types is said once, in core/core.h."""

from typing import Any

ffi: Any
lib: Any
