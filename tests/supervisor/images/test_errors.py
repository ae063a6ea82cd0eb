"""Every error about images has a wire code and a word of its own."""

import pytest

from supervisor.errors import CODES as OTHERS
from supervisor.errors import ExitdError
from supervisor.images import errors


@pytest.mark.parametrize("error", [each for each in vars(errors).values() if isinstance(each, type)])
def test_every_error_has_a_code_and_a_word_of_its_own(error: type[object]) -> None:
    if issubclass(error, ExitdError) and error is not ExitdError:
        assert error in errors.CODES
        others = {each.reason for each in (*OTHERS, *errors.CODES) if each is not error}
        assert error.reason not in others
