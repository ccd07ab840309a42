"""Posts a few facts to an address that the user chose."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

TIMEOUT_S = 15.0
ATTEMPTS = 3


def post(url: str, body: bytes) -> str:
    """Posts JSON; retries if the server may have been asleep.

    Returns the error, without the address, which may be a secret; "" on success.
    """
    request = urllib.request.Request(
        url, data=body, method="POST", headers={"Content-Type": "application/json", "User-Agent": "tuiapp"}
    )
    opener = urllib.request.build_opener(_NoRedirect)
    problem = ""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        try:
            with opener.open(request, timeout=TIMEOUT_S):
                return ""
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}"
            error.close()
            if error.code < 500:
                break
        except urllib.error.URLError as error:
            problem = str(error.reason)
        except Exception as error:  # http.client and ssl have their own; none may keep the rest from being done.
            problem = type(error).__name__
    return problem


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the other address may be somebody else's."""

    def redirect_request(self, *_: object) -> None:
        return None
