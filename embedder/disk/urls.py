"""URLs of remote data, and their text without secrets."""

import re

HIDDEN = "***"
"""Stands for credentials, and for the query of a URL, wherever one is shown."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://.*", re.DOTALL)
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_WEB = re.compile(r"https?://")
# A password may have "/" in it; digits behind the colon are a port.
_PASSWORD = re.compile(
    r"(?<=://)[^/@?#]*:(?:[^/?#]*@|(?!\d*(?:[/?#]|$)).*@)", re.DOTALL
)
_USER = re.compile(r"(?<=://)[^/@?#]*@")
_SIGNATURE = re.compile(
    r"(?i)(x-(amz|goog)-\w[\w-]*|signature|expires|policy|key-pair-id|awsaccesskeyid"
    r"|googleaccessid|sig|se|st|sp|sv|sr|skoid|sktid|skt|ske|sks|skv)=[^&#]*"
)  # of S3, Google, CloudFront and Azure
_WEB_QUERY = re.compile(r"[?#].*", re.DOTALL)
_SECRET_LENGTH = 4  # shorter parts of a query are in any text
_QUERY = re.compile(r"\?[\w.-]+=.*", re.DOTALL)  # else "?" is part of a glob


def is_url(source: object) -> bool:
    """Whether `source` is a string such as `s3://bucket/name`."""
    return isinstance(source, str) and _URL.fullmatch(source) is not None


def is_web(url: str) -> bool:
    """Whether `url` is of a web server: such servers have no folders, and queries."""
    return _WEB.match(url) is not None


def without_secrets(url: str) -> str:
    """`url` with `***` in place of its user, password and query; a path as it is."""
    if not is_url(url):
        return url
    shown = _PASSWORD.sub(f"{HIDDEN}@", url)
    if is_web(url):
        return _WEB_QUERY.sub(f"?{HIDDEN}", _USER.sub(f"{HIDDEN}@", shown))
    return _QUERY.sub(f"?{HIDDEN}", shown)


def without_signature(url: str) -> str:
    """`url` of a web server without the signature in its query, if there is one.

    Other parts of the query stay: they may name another object.
    """
    start, mark, query = url.partition("?")
    if not is_web(url) or not mark:
        return url
    parts = query.split("&")
    if not any(re.match(r"(?i)(x-(amz|goog)-)?sig(nature)?=", part) for part in parts):
        return url
    rest = "&".join(part for part in parts if not _SIGNATURE.fullmatch(part))
    return f"{start}?{rest}" if rest else start


def text_without_secrets(text: str, url: str) -> str:
    """`text` of a library about `url`, without the secrets of any URL in it."""
    for secret in _secrets(url):
        text = text.replace(secret, HIDDEN)
    return _IN_TEXT.sub(lambda match: without_secrets(match[0]), text)


def _secrets(url: str) -> list[str]:
    """What `without_secrets` hides, and its parts; the longest first."""
    hidden = [_PASSWORD, *((_USER, _WEB_QUERY) if is_web(url) else (_QUERY,))]
    matches = [match[0].strip("?@#") for p in hidden if (match := p.search(url))]
    parts = [part for each in matches for part in re.split(r"[:=&]", each)]
    secrets = {each for each in (*matches, *parts) if len(each) >= _SECRET_LENGTH}
    return sorted(secrets, key=len, reverse=True)
