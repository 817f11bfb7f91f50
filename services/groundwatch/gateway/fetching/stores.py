"""Fetching from object stores, with the operator's options and credentials."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from groundwatch.errors import InputError, MissingExtraError, SettingsError, TransientError
from groundwatch.runtime.security.urls import Url
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from obstore.store import GCSStore, S3Store

PIECE = 256 * 1024


class Stores:
    """One client for each bucket of the allow-list; a bucket's name cannot be another's choice."""

    def __init__(self, buckets: set[tuple[str, str]], options: Mapping[Any, Mapping[str, Any]]) -> None:
        """Raises `MissingExtraError` without what it takes, `SettingsError` for options that cannot be."""
        self._stores = {
            (scheme, bucket): _store(scheme, bucket, options.get(scheme, {})) for scheme, bucket in buckets
        }

    async def get(self, url: Url, most: int) -> bytes:
        """The object's bytes. Raises `InputError` for what will not change, `TransientError` for what may."""
        import obstore
        from obstore import exceptions

        store = self._stores[url.scheme, url.host]
        try:
            found = await obstore.get_async(store, url.path[1:])
            if found.meta["size"] > most:
                raise InputError(f"{url.shown} has more than {most} bytes")
            body = bytearray()
            async for piece in found.stream(min_chunk_size=PIECE):
                body += piece
                if len(body) > most:
                    raise InputError(f"{url.shown} has more than {most} bytes")
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise InputError(f"{url.shown} is not there") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            logger.warning("fetch.not_permitted", url=url.shown, error=_first_line(error))
            raise InputError(f"{url.shown} may not be read by this gateway") from error
        except exceptions.BaseError as error:
            logger.info("fetch.failed", url=url.shown, error=_first_line(error))
            raise TransientError(f"{url.shown} cannot be fetched now") from error
        return bytes(body)


def _store(scheme: str, bucket: str, options: Mapping[str, Any]) -> "S3Store | GCSStore":
    try:
        from obstore.exceptions import BaseError
        from obstore.store import GCSStore, S3Store
    except ImportError as error:
        raise MissingExtraError("what fetches from s3:// and gs:// (obstore)", "archive") from error
    config: Any = dict(options)
    retry: Any = {"max_retries": 1}
    try:
        if scheme == "s3":
            return S3Store(bucket, config=config, retry_config=retry)
        return GCSStore(bucket, config=config, retry_config=retry)
    except (BaseError, ValueError, TypeError) as error:
        raise SettingsError(f"setting 'gateway.fetch.options': {scheme}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
