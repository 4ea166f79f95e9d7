"""The secret token of the live page: its syntax, and a file that holds it."""

from __future__ import annotations

import os
import re

_FEWEST, _MOST = 16, 256
# no blanks, and nothing that a cookie, a header or a URL would change
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def check_token(token: str) -> str:
    """The token if it is valid or empty; else a ValueError that does not repeat it."""
    if not token:
        return token
    if not _FEWEST <= len(token) <= _MOST:
        problem = f"has {len(token)} characters, must have {_FEWEST} to {_MOST}"
        raise ValueError(problem)
    if not _TOKEN.fullmatch(token):
        problem = "must consist of letters, digits and . _ ~ + / = -"
        raise ValueError(problem)
    return token


def read_token(path: str) -> str:
    """The token in a file; ValueError if there is none, or if others can read it."""
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                problem = f"'{path}' can be read by others: chmod 600"
                raise ValueError(problem)
            token = file.read(_MOST + 2).strip()
    except UnicodeDecodeError:
        problem = f"'{path}' is not text"
        raise ValueError(problem) from None
    except OSError as error:
        problem = f"'{path}' cannot be read: {(error.strerror or str(error)).lower()}"
        raise ValueError(problem) from None
    if not token:
        problem = f"'{path}' is empty"
        raise ValueError(problem)
    try:
        return check_token(token)
    except ValueError as error:
        problem = f"the token in '{path}' {error}"
        raise ValueError(problem) from None
