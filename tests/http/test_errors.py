"""The table of error codes: mypy finds a code that is misspelled, and this a code without a status."""

from typing import get_args

from ursula.http.errors import RETRY_AFTER_SECONDS, STATUS, HttpErrorCode
from ursula.model.outcomes import ErrorCode


def test_every_error_code_has_a_status() -> None:
    codes = [*get_args(ErrorCode), *get_args(HttpErrorCode)]
    assert len(codes) == len(set(codes))
    assert STATUS.keys() == set(codes)


def test_only_a_request_that_was_not_served_says_when_to_retry() -> None:
    assert {STATUS[code] for code in RETRY_AFTER_SECONDS} == {503}
    assert "outcome_unknown" not in RETRY_AFTER_SECONDS
